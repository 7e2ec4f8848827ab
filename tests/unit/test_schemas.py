"""The JSON Schemas of scenarios and of report.json: of no machine, and what real ones follow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.by_file import load
from xttsbench.records.base import SCHEMA_VERSION
from xttsbench.scenario.load import read_yaml
from xttsbench.scenario.settings import Scenario
from xttsbench.shipped import available, shipped

ROOT = Path(__file__).parents[2]
reference = load(ROOT / "docs" / "reference.py", "docs_reference")
REPORT, SCENARIO = reference.report_schema(), reference.scenario_schema()
TYPES = {"object": dict, "array": list, "string": str, "null": type(None), "integer": int, "number": (int, float)}
LIMITS = {
    "minItems": lambda value, limit: len(value) >= limit,
    "maxItems": lambda value, limit: len(value) <= limit,
    "minProperties": lambda value, limit: len(value) >= limit,
    "minLength": lambda value, limit: len(value) >= limit,
    "maxLength": lambda value, limit: len(value) <= limit,
    "minimum": lambda value, limit: value >= limit,
    "maximum": lambda value, limit: value <= limit,
    "exclusiveMinimum": lambda value, limit: value > limit,
    "exclusiveMaximum": lambda value, limit: value < limit,
    "pattern": lambda value, limit: re.search(limit, value),
    "const": lambda value, limit: value == limit,
    "enum": lambda value, limit: value in limit,
}
KNOWN = {*LIMITS, "type", "$ref", "anyOf", "oneOf", "properties", "additionalProperties", "items", "required"}
KNOWN |= {"description", "title", "default", "$defs", "$schema", "prefixItems"}


def errors(value: Any, part: dict[str, Any], whole: dict[str, Any], place: str = "") -> Iterator[str]:
    """What a validator would find, for the keywords that these schemas have."""
    assert set(part) <= KNOWN, set(part) - KNOWN
    if "$ref" in part:
        part = whole["$defs"][part["$ref"].removeprefix("#/$defs/")] | {k: v for k, v in part.items() if k != "$ref"}
    for keyword, most in (("oneOf", 1), ("anyOf", 99)):
        fitting = [not list(errors(value, form, whole, place)) for form in part.get(keyword, ())]
        if keyword in part and not 1 <= sum(fitting) <= most:
            yield f"{place}: {sum(fitting)} of the forms"
    kinds = [part["type"]] if isinstance(part.get("type"), str) else part.get("type", [])
    fits = any(isinstance(value, TYPES[kind]) and not isinstance(value, bool) for kind in kinds if kind in TYPES)
    if kinds and not fits and not ("boolean" in kinds and isinstance(value, bool)):
        yield f"{place}: no {' or '.join(kinds)}"
        return
    if isinstance(value, dict):
        yield from (f"{place}.{key}: missing" for key in part.get("required", ()) if key not in value)
        properties, more = part.get("properties", {}), part.get("additionalProperties", True)
        for key, one in value.items():
            form = properties.get(key, more)
            if isinstance(form, dict):
                yield from errors(one, form, whole, f"{place}.{key}")
            elif not form:
                yield f"{place}.{key}: unknown"
    for index, one in enumerate(value if isinstance(value, list) else ()):
        yield from errors(one, part.get("items", {}), whole, f"{place}[{index}]")
    for keyword, fits in LIMITS.items():
        if keyword in part and not fits(value, part[keyword]):
            yield f"{place}: {keyword} {part[keyword]}"


def stored() -> list[Path]:
    found = sorted((ROOT / "reports" / "reference").glob("**/report.json"))
    return [path for path in found if json.loads(path.read_bytes())["schema_version"] == SCHEMA_VERSION]


def test_there_are_reports_of_more_than_one_kind() -> None:
    assert {json.loads(path.read_bytes())["kind"] for path in stored()} >= {"diagnose", "optimize"}


@pytest.mark.parametrize("path", stored(), ids=lambda path: path.parent.name)
def test_a_stored_report_follows_its_schema(path) -> None:
    assert list(errors(json.loads(path.read_bytes()), REPORT, REPORT)) == []


def test_a_field_that_a_later_release_adds_is_no_error() -> None:
    report = json.loads(stored()[0].read_bytes()) | {"added_later": 1}
    report["verdict"]["added_later"] = 1
    assert list(errors(report, REPORT, REPORT)) == []


def test_the_schema_of_scenarios_names_no_machine_and_no_host() -> None:
    text = json.dumps(SCENARIO)
    assert re.findall(r"https?://[^\"]*", text) == ["https://json-schema.org/draft/2020-12/schema"]
    assert str(ROOT) not in text
    assert "/home" not in text


def test_every_key_of_a_scenario_is_described() -> None:
    assert set(SCENARIO["properties"]) == set(Scenario.model_fields)
    for part in (SCENARIO, *SCENARIO["$defs"].values()):
        assert part["description"]
        assert part["additionalProperties"] is False
        assert [key for key, field in part["properties"].items() if not field.get("description")] == []


def test_the_schema_is_shipped_beside_the_scenarios_and_is_none() -> None:
    assert shipped("scenarios", "loader").with_name("scenario.schema.json").is_file()
    assert not any("schema" in name for name in available("scenarios"))


@pytest.mark.parametrize("name", available("scenarios"))
def test_every_shipped_scenario_follows_it(name: str) -> None:
    assert list(errors(read_yaml(shipped("scenarios", name)).content, SCENARIO, SCENARIO)) == []


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        ("blokcs: 8", ".blokcs: unknown"),
        ("blocks: 0", ".blocks: minimum 1"),
        ("workload: speech", ".workload: 0 of the forms"),
        ("grid: {a: 1}", ".grid: 0 of the forms"),
        ("grid: {a: [1, 2, 3], b: [1, null]}", None),
        ("sweep: {finalist: 1}", ".sweep.finalist: unknown"),
        ("accelerator: 10", ".accelerator: 0 of the forms"),
        ("limits: {trial_s: 0}", ".limits.trial_s: exclusiveMinimum 0"),
    ],
)
def test_it_finds_what_is_wrong_in_a_scenario(lines: str, place: str | None) -> None:
    found = list(errors(yaml.safe_load(f"name: x\n{lines}\n"), SCENARIO, SCENARIO))
    assert found == ([place] if place else []), found
