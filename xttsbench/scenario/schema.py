"""The JSON Schema of a scenario, for editors that complete keys and mark errors while one is written.

``python -m xttsbench.scenario.schema FILE`` writes it; ``make schema`` does so for ``scenarios/scenario.schema.json``,
which the scenarios beside it name in their first line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import CoreSchema

from xttsbench.scenario.settings import Scenario


class _Generator(GenerateJsonSchema):
    """Without titles of fields, which would repeat the keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        return {"$schema": self.schema_dialect} | super().generate(schema, mode)


def schema() -> dict[str, Any]:
    """Return the schema: what each key may hold; what several keys together must be is checked when one is loaded."""
    made: dict[str, Any] = _plain_text(Scenario.model_json_schema(by_alias=True, schema_generator=_Generator))
    return made


def text() -> str:
    """Return the schema as the file has it."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _plain_text(part: Any) -> Any:
    if isinstance(part, dict):
        return {
            key: value.replace("``", "`") if key == "description" and isinstance(value, str) else _plain_text(value)
            for key, value in part.items()
        }
    return [_plain_text(item) for item in part] if isinstance(part, list) else part


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text(), encoding="utf-8")
    else:
        sys.stdout.write(text())
