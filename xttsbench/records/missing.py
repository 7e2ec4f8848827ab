"""What was not measured, and why: a reason that stands where a number would, until a record is made of it.

In a record such a value is null, and the report's ``unmeasured`` has the reason under the path of the field.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel


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
) -> Iterator[tuple[str, str]]:
    """The path of each field that is null, with a reason.

    Args:
        path: of the record in the report.
        record: that the fields are of.
        why: the reason, or one for each field.
        only: the fields that count; all without it.
        but: fields that may be null without a reason.
        default: for fields that ``why`` does not name.
    """
    for name in only or type(record).model_fields:
        if getattr(record, name) is None and name not in but:
            yield f"{path}.{name}", why if isinstance(why, str) else why.get(name, default)
