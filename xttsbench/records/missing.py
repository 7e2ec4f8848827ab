"""Values that were not measured, and why: ``None`` in a record, ``{"missing": reason}`` in its file.

Until a record is made a :class:`Missing` stands for the value; then the reason is in ``unmeasured`` of the record that
holds all of them, under the path of the field.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, SerializationInfo, SerializerFunctionWrapHandler, model_serializer, model_validator

from xttsbench.records.base import Record

_KEY: Final = "missing"
_TABLE: Final = "unmeasured"
_DEEPEST: Final = 50  # levels; no report has a third of them, whatever a file of somebody else may have


@dataclass(frozen=True, slots=True)
class Missing:
    """A value that is not known; ``reason`` is a part of a sentence."""

    reason: str


def nulls(
    path: str,
    record: BaseModel,
    why: str | Mapping[str, str],
    *,
    only: Collection[str] = (),
    but: Collection[str] = (),
    default: str = "not measured",
) -> dict[str, str]:
    """The path of each field that is null, with a reason.

    Args:
        path: of the record in the report.
        record: that the fields are of.
        why: the reason, or one for each field.
        only: the fields that count; all without it.
        but: fields that may be null without a reason.
        default: for fields that ``why`` does not name.
    """
    reasons = dict.fromkeys(type(record).model_fields, why) if isinstance(why, str) else why
    return {
        f"{path}.{name}": reasons.get(name, default)
        for name in only or type(record).model_fields
        if getattr(record, name) is None and name not in but
    }


class Reasoned(Record):
    """A record with a field ``unmeasured``, path -> reason, whose JSON has each reason in the place of its value.

    What is left in ``unmeasured`` there has no such place: a trial that was not run, a number that is 0 by definition.
    """

    @model_serializer(mode="wrap")
    def _told(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
        content = handler(self)
        return _placed(content) if info.mode == "json" else content

    @model_validator(mode="before")
    @classmethod
    def _read(cls, content: Any) -> Any:
        return _taken(content) if isinstance(content, dict) else content


def _placed(content: dict[str, Any]) -> dict[str, Any]:
    """Put each reason where the value would be."""
    left = {}
    for path, reason in content[_TABLE].items():
        *above, name = path.split(".")
        holder: Any = content
        for part in above:
            holder = _at(holder, part)
        if isinstance(holder, dict) and name in holder and holder[name] is None:
            holder[name] = {_KEY: reason}
        else:
            left[path] = reason
    return content | {_TABLE: left}


def _at(holder: Any, part: str) -> Any:
    if isinstance(holder, dict):
        return holder.get(part)
    if isinstance(holder, list) and part.isdecimal() and int(part) < len(holder):
        return holder[int(part)]
    return None


def _taken(content: dict[str, Any]) -> dict[str, Any]:
    """Take the reasons out of the places of values; what was given stays as it is."""
    found: dict[str, str] = {}
    made = {key: _without(one, str(key), found) for key, one in content.items()}
    given = made.get(_TABLE, {})
    return made | {_TABLE: {**found, **given}} if found and isinstance(given, dict) else made


def _without(value: Any, path: str, found: dict[str, str], depth: int = 0) -> Any:
    if depth > _DEEPEST:
        return value
    if isinstance(value, dict):
        if value.keys() == {_KEY} and isinstance(value[_KEY], str):
            found[path] = value[_KEY]
            return None
        return {key: _without(one, f"{path}.{key}", found, depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        return [_without(one, f"{path}.{index}", found, depth + 1) for index, one in enumerate(value)]
    return value
