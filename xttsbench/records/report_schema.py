"""The JSON Schema of ``report.json``, for programs that read it; ``make schema`` writes it beside this file.

Fields are only added within a version, so a reader has to expect some that the schema of its own version does not have.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from xttsbench.records.base import SCHEMA_VERSION, Record
from xttsbench.records.report import Report


def schema(record: type[Record] = Report, file: str = "report.json") -> dict[str, Any]:
    """The schema of a file that holds one such record, by default of this version's reports."""
    made: dict[str, Any] = _open(record.model_json_schema(schema_generator=_Documented))
    made["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        **made,
        "title": f"{file} of xttsbench, schema_version {SCHEMA_VERSION}",
        "required": sorted({*made["required"], "schema_version"}),
    }


def text() -> str:
    """The schema as the file has it."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


class _Documented(GenerateJsonSchema):
    """With the docstrings beneath fields as their descriptions."""

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        for record in schema["cls"].__mro__[:-2]:  # without object and BaseModel
            for field, meaning in _meanings(record):
                if field in made["properties"]:
                    made["properties"][field].setdefault("description", meaning)
        return made


def _meanings(record: type) -> Iterator[tuple[str, str]]:
    """The fields of a record that have a docstring beneath them.

    Pydantic's ``use_attribute_docstrings`` reads them from the source as well, but whenever the module is imported.
    """
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    assert isinstance(found, ast.ClassDef)
    for field, beneath in pairwise(found.body):
        match field, beneath:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(meaning))):
                yield name, inspect.cleandoc(meaning)


def _open(part: Any, *, named: bool = False) -> Any:
    """Without what would refuse fields that a later release adds, and without titles, which repeat the keys.

    Where its keys are the names of fields, all are kept.
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
