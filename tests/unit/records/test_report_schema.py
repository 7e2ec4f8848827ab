"""The JSON Schema of report.json: current, versioned, and what real reports follow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from xttsbench.records import report_schema
from xttsbench.records.base import SCHEMA_VERSION

ROOT = Path(__file__).parents[3]
SCHEMA = report_schema.schema()
FILE = Path(report_schema.__file__).with_name("report.schema.json")
TYPES = {"object": dict, "array": list, "string": str, "null": type(None), "integer": int, "number": (int, float)}
KNOWN = {"type", "$ref", "anyOf", "enum", "const", "properties", "additionalProperties", "items", "required"}
KNOWN |= {"description", "default", "$defs", "$schema", "title", "prefixItems", "minItems", "maxItems"}
KNOWN |= {"minimum", "exclusiveMinimum"}


def stored() -> list[Path]:
    found = sorted((ROOT / "reports" / "reference").glob("**/report.json"))
    return [path for path in found if json.loads(path.read_bytes())["schema_version"] == SCHEMA_VERSION]


def errors(value: Any, part: dict[str, Any], place: str = "") -> Iterator[str]:
    """What a validator would find, for the keywords that the schema has."""
    assert set(part) <= KNOWN, set(part) - KNOWN
    if "$ref" in part:
        yield from errors(value, SCHEMA["$defs"][part["$ref"].rpartition("/")[2]], place)
    if "anyOf" in part and all(list(errors(value, one, place)) for one in part["anyOf"]):
        yield f"{place}: none of the forms"
    if "enum" in part and value not in part["enum"]:
        yield f"{place}: not one of {part['enum']}"
    if "const" in part and value != part["const"]:
        yield f"{place}: not {part['const']}"
    kind = part.get("type")
    if kind == "boolean" and not isinstance(value, bool):
        yield f"{place}: no boolean"
    if kind in TYPES and (not isinstance(value, TYPES[kind]) or isinstance(value, bool)):
        yield f"{place}: no {kind}"
        return
    if isinstance(value, dict):
        yield from (f"{place}.{key}: missing" for key in part.get("required", ()) if key not in value)
        more = part.get("additionalProperties", {})
        for key, one in value.items():
            form = part.get("properties", {}).get(key, more)
            yield from errors(one, form if isinstance(form, dict) else {}, f"{place}.{key}")
    for index, one in enumerate(value if isinstance(value, list) else ()):
        yield from errors(one, part.get("items", {}), f"{place}[{index}]")


def test_the_file_is_current() -> None:
    assert FILE.read_text(encoding="utf-8") == report_schema.text(), "make schema writes it again"


def test_there_are_reports_of_more_than_one_kind() -> None:
    assert {json.loads(path.read_bytes())["kind"] for path in stored()} >= {"diagnose", "optimize"}


@pytest.mark.parametrize("path", stored(), ids=lambda path: path.parent.name)
def test_a_stored_report_follows_it(path) -> None:
    assert list(errors(json.loads(path.read_bytes()), SCHEMA)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": 1}, ".schema_version: not 2"),
        ({"kind": "guess"}, ".kind: not one of"),
        ({"verdict": {"bottleneck": "input"}}, ".verdict.summary: missing"),
        ({"findings": [{"rule": 3}]}, ".findings[0].rule: no string"),
        ({"arms": "none"}, ".arms: no array"),
    ],
)
def test_what_is_no_report_does_not(change, said) -> None:
    found = list(errors(json.loads(stored()[0].read_bytes()) | change, SCHEMA))
    assert any(one.startswith(said) for one in found), found


def test_a_field_that_a_later_release_adds_is_no_error() -> None:
    report = json.loads(stored()[0].read_bytes()) | {"added_later": 1}
    report["verdict"]["added_later"] = 1
    assert list(errors(report, SCHEMA)) == []
