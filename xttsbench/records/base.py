"""The base of every record: frozen, strict, versioned, and free of input and output.

A record is what crosses a process or a file boundary. Units are in the field names, or in that of the field
that holds the record, and ``None`` always means "not measured", never zero: the report's ``unmeasured`` has the reason
under the path of the field, and its file in the place of the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any, Final, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError

SCHEMA_VERSION: Final = 3
"""Version of every file that this package writes; others are refused. In 3 a report has the reason for a value that was
not measured in its place."""
MARGIN: Final = 0.02
"""The smallest difference in speed that matters, as a share, where nobody says otherwise."""


class Record(BaseModel):
    """A frozen record that refuses fields it does not know.

    Attribute assignment raises; a changed record is a new one (``model_copy(update=...)``).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="null")

    def model_dump_json(self, **how: Any) -> str:
        """The record as JSON for files and people; what is not UTF-8 in its text is replaced."""
        try:
            written = super().model_dump_json(**how)
        except PydanticSerializationError:
            written = _REPLACED
        # A key of a mapping raises nothing, but has a mark for each byte of what is one character.
        return BaseModel.model_dump_json(Rewriting().kept(self), **how) if _REPLACED in written else written

    def to_line(self) -> str:
        """The record as one line of JSON for another process, whose text is what it was, UTF-8 or not."""
        return json.dumps(self.model_dump(), allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str | bytes) -> Self:
        """The record that :meth:`to_line` has made a line of."""
        return cls.model_validate(json.loads(line))


_NOT_UTF8: Final = re.compile("[\ud800-\udfff]")
_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"


def readable(text: str) -> str:
    """The text with a mark for each byte that is not UTF-8, so that it can stand in a file and on a screen."""
    return _NOT_UTF8.sub(_REPLACED, text)


class Rewriting:
    """Makes values again with other text in them; by itself what is not UTF-8 is replaced and the rest is the same."""

    def kept(self, value: Any, name: str = "") -> Any:
        """A value of JSON or a record as it may be kept; ``name`` is that of the field or key that holds it."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.key(key): self.kept(one, str(key)) for key, one in value.items()}
        if isinstance(value, list | tuple) and not {*map(type, value)} <= {int, float}:
            return type(value)(self.items(value))
        if isinstance(value, BaseModel):
            return value.model_copy(update={one: self.kept(getattr(value, one), one) for one in _spoken(type(value))})
        return value

    def text(self, text: str) -> str:
        """A text as it may be kept."""
        return readable(text)

    def key(self, key: Any) -> Any:
        """A key of a mapping; names of the program stay what they are."""
        return self.text(key) if isinstance(key, str) and not key.isidentifier() else key

    def items(self, values: Collection[Any]) -> Iterator[Any]:
        """The items of a list."""
        return map(self.kept, values)


@cache
def _spoken(kind: type[BaseModel]) -> tuple[str, ...]:
    """Fields that may hold text of others, and not only one of a few words."""
    return tuple(name for name, field in kind.model_fields.items() if _holds_text(field.annotation))


def _holds_text(annotation: Any) -> bool:
    if annotation in (str, Any) or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return not getattr(annotation, "WORDLESS", False)
    return any(map(_holds_text, get_args(annotation)))


class Estimate(Record):
    """A number with its interval (95 % unless the field says otherwise), in the unit of the field that holds it."""

    estimate: float
    low: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> Estimate:
        """Estimate without a width, such as a model's."""
        return cls(estimate=value, low=value, high=value)

    def times(self, factor: float) -> Estimate:
        """The estimate of so many times as much; the factor is exact and positive."""
        return Estimate(estimate=factor * self.estimate, low=factor * self.low, high=factor * self.high)


Word = Literal[
    "clearly_faster",
    "faster",
    "likely_faster",
    "no_difference",
    "likely_slower",
    "slower",
    "clearly_slower",
    "undecided",
]
"""Strength of the evidence on one configuration against another (:mod:`xttsbench.analysis.evidence`)."""
FASTER: Final = ("clearly_faster", "faster")
SLOWER: Final = ("clearly_slower", "slower")
DECIDED: Final = (*FASTER, *SLOWER, "no_difference")
"""Words that end the question."""


class Location(Record):
    """Place in the user's program: a file and line of the code, and the op of the graph, as far as they are known."""

    file: str | None = None
    line: int | None = None
    op: str | None = None


def name_and_place(text: str | None) -> tuple[str, Location]:
    """A function's name and place from ``name (file:line)``; what is not in the text is empty, or ``None``."""
    name, _, rest = (text or "").partition(" (")
    file, _, line = rest.rstrip(")").rpartition(":")
    return name, Location(file=file, line=int(line)) if file and line.isdigit() else Location()


def other_version(version: object) -> str:
    """Why a file of that schema version is refused, as a part of a sentence."""
    return f"schema_version is {version!r}, and this version of xttsbench reads {SCHEMA_VERSION}"
