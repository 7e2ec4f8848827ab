"""The JSON Schema of ``report.json``, for programs that read it; ``make schema`` writes it beside this file.

Fields are only added within a version, so a reader has to expect some that the schema of its own version does not have.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from xttsbench.records.base import SCHEMA_VERSION
from xttsbench.records.report import Report


def schema() -> dict[str, Any]:
    """The schema of this version's reports."""
    made: dict[str, Any] = _open(Report.model_json_schema())
    made["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        **made,
        "title": f"report.json of xttsbench, schema_version {SCHEMA_VERSION}",
        "required": sorted({*made["required"], "schema_version"}),
    }


def text() -> str:
    """The schema as the file has it."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def _open(part: Any, *, named: bool = False) -> Any:
    """Without what would refuse fields that a later release adds, and without titles, which repeat the keys.

    Args:
        part: of a schema.
        named: whether its keys are the names of fields, which are all kept.
    """
    if isinstance(part, dict):
        kept = (
            part
            if named
            else {k: v for k, v in part.items() if k != "title" and (k, v) != ("additionalProperties", False)}
        )
        return {key: _open(value, named=not named and key in ("properties", "$defs")) for key, value in kept.items()}
    return [_open(one) for one in part] if isinstance(part, list) else part


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")
