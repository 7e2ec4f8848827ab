"""The JSON Schema: current, of no machine, and what the shipped scenarios follow."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from xttsbench.scenario.schema import schema, text
from xttsbench.scenario.settings import Scenario
from xttsbench.scenario.yaml_file import read_yaml
from xttsbench.shipped import available, shipped

ROOT = Path(__file__).parents[3]
FILE = ROOT / "scenarios" / "scenario.schema.json"
TYPES = {"object": dict, "array": list, "string": str, "null": type(None), "integer": int, "number": float}
COMMENTS = {"description", "title", "default", "$defs", "$schema"}


def errors(value: Any, part: dict[str, Any], place: str = "") -> Iterator[str]:
    """What a JSON Schema validator would find, for the keywords that ours has; another keyword is an error too."""
    part = dict(part)
    if "$ref" in part:
        part = schema()["$defs"][part.pop("$ref").removeprefix("#/$defs/")] | part
    for keyword, most in (("oneOf", 1), ("anyOf", 99)):
        fitting = [not list(errors(value, form, place)) for form in part.get(keyword, ())]
        if keyword in part and not 1 <= sum(fitting) <= most:
            yield f"{place}: {sum(fitting)} of the forms"
        part.pop(keyword, None)
    kinds = part.pop("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    own = (
        "boolean" if isinstance(value, bool) else next(kind for kind, made in TYPES.items() if isinstance(value, made))
    )
    if kinds and own not in kinds and not (own == "integer" and "number" in kinds):
        yield f"{place}: no {' or '.join(kinds)}"
        return
    properties, more = part.pop("properties", {}), part.pop("additionalProperties", True)
    if isinstance(value, dict):
        for key, item in value.items():
            if key in properties or isinstance(more, dict):
                yield from errors(item, properties.get(key, more), f"{place}.{key}")
            elif not more:
                yield f"{place}.{key}: unknown"
    yield from (f"{place}.{key}: missing" for key in part.pop("required", ()) if key not in value)
    for index, item in enumerate(value if isinstance(value, list) else ()):
        yield from errors(item, part.get("items", {}), f"{place}[{index}]")
    part.pop("items", None)
    checks = {
        "minItems": lambda limit: len(value) >= limit,
        "maxItems": lambda limit: len(value) <= limit,
        "minProperties": lambda limit: len(value) >= limit,
        "minLength": lambda limit: len(value) >= limit,
        "maxLength": lambda limit: len(value) <= limit,
        "minimum": lambda limit: value >= limit,
        "maximum": lambda limit: value <= limit,
        "exclusiveMinimum": lambda limit: value > limit,
        "exclusiveMaximum": lambda limit: value < limit,
        "pattern": lambda limit: re.search(limit, value),
        "const": lambda limit: value == limit,
    }
    for keyword, limit in part.items():
        if keyword not in COMMENTS and not checks[keyword](limit):
            yield f"{place}: {keyword} {limit}"


def test_the_file_is_current() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "run: make schema"
    assert json.loads(text()) == schema()


def test_the_module_writes_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "xttsbench.scenario.schema"]
    subprocess.run([*command, str(tmp_path / "made.json")], check=True, cwd=ROOT)
    assert (tmp_path / "made.json").read_text(encoding="utf-8") == text()


def test_it_names_no_machine_and_no_host() -> None:
    assert re.findall(r"https?://[^\"]*", text()) == ["https://json-schema.org/draft/2020-12/schema"]
    assert str(ROOT) not in text()
    assert "/home" not in text()


def test_every_key_is_described() -> None:
    made = schema()
    assert set(made["properties"]) == set(Scenario.model_fields)
    for part in (made, *made["$defs"].values()):
        assert part["description"]
        assert part["additionalProperties"] is False
        bare = [key for key, field in part["properties"].items() if not field.get("description")]
        assert bare == []


def test_it_is_shipped_beside_the_scenarios_and_is_none() -> None:
    assert shipped("scenarios", "loader").with_name(FILE.name).is_file()
    assert not any("schema" in name for name in available("scenarios"))


@pytest.mark.parametrize("name", available("scenarios"))
def test_every_shipped_scenario_follows_it(name: str) -> None:
    assert list(errors(read_yaml(shipped("scenarios", name)).content, schema())) == []


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        ("blokcs: 8", ".blokcs: unknown"),
        ("blocks: 0", ".blocks: minimum 1"),
        ("workload: speech", ".workload: 0 of the forms"),
        ("grid: {a: 1}", ".grid: 0 of the forms"),
        ("grid: {a: {from: 1}}", ".grid: 0 of the forms"),
        ("skip: [{a: {mn: 1}}]", ".skip[0].a: 0 of the forms"),
        ("skip: [{a: {min: 1}, b: [1], c: null}]", None),
        ("sweep: {finalist: 1}", ".sweep.finalist: unknown"),
        ("accelerator: 10", ".accelerator: 0 of the forms"),
        ("limits: {trial_s: 0}", ".limits.trial_s: exclusiveMinimum 0"),
    ],
)
def test_it_finds_what_is_wrong(lines: str, place: str | None) -> None:
    found = list(errors(yaml.safe_load(f"name: x\n{lines}\n"), schema()))
    assert found == ([place] if place else []), found
