"""Fixes as they are written in JSON, YAML and on the command line: parsed, printed and taken apart here, and only here.

A fix is written ``name``, ``name:<n>`` or ``name@<op>`` (``parallel-map:32``, ``cache@ParallelMapDatasetV2/_7``), one
of the step ``step:<mode>``; several are joined by `` + `` in the order in which they are applied. Which names there
are, and what may follow each, is :mod:`xttsbench.fixes.registry`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_BETWEEN: Final = " + "
_OF_STEP: Final = "step:"


@dataclass(frozen=True, slots=True)
class Fix:
    """One fix as it is written; whether there is one of that name is not known here.

    Attributes:
        kind: its name in the registry; of the step, with ``step:``.
        mark: what stands between the name and what follows it: ``:`` before a number, ``@`` before an op, or nothing.
        value: what follows, as it is written.
    """

    kind: str
    mark: str = ""
    value: str = ""

    @classmethod
    def parse(cls, text: str) -> Fix:
        """The fix of a text; every text is one."""
        if text.startswith(_OF_STEP):
            return cls(text)
        kind, mark, value = text.partition("@")
        return cls(kind, mark, value) if mark else cls(*text.partition(":"))

    @classmethod
    def of(cls, kind: str, number: int | None = None) -> Fix:
        """A fix of a kind, with a number where there is one."""
        return cls(kind) if number is None else cls(kind, ":", str(number))

    def __str__(self) -> str:
        return f"{self.kind}{self.mark}{self.value}"

    @property
    def number(self) -> int | None:
        """The number that follows the name; ``None`` where there is none, or what follows is none."""
        return int(self.value) if self.mark == ":" and self.value.isascii() and self.value.isdecimal() else None

    @property
    def op(self) -> str | None:
        """The name of the op that follows; ``None`` where there is none."""
        return self.value if self.mark == "@" else None

    @property
    def is_of_step(self) -> bool:
        """Whether it changes the step, not its input."""
        return self.kind.startswith(_OF_STEP)

    @property
    def is_cache(self) -> bool:
        """Whether it keeps elements from pass to pass, in memory or on disk."""
        return self.kind in ("cache", "cache-file")


@dataclass(frozen=True, slots=True)
class FixSet:
    """Fixes in the order in which they are applied: what a trial, an arm or a saved plan puts on a target."""

    fixes: tuple[Fix, ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> FixSet:
        """The fixes of a text; none of ``None``."""
        return cls() if text is None else cls.of(text.split(_BETWEEN))

    @classmethod
    def of(cls, names: Iterable[str]) -> FixSet:
        """The fixes of these texts, one each."""
        return cls(tuple(Fix.parse(name.strip()) for name in names))

    def __str__(self) -> str:
        return _BETWEEN.join(map(str, self.fixes))

    def __iter__(self) -> Iterator[Fix]:
        return iter(self.fixes)

    def __len__(self) -> int:
        return len(self.fixes)

    def __contains__(self, kind: object) -> bool:
        """Whether a fix of that kind is among them."""
        return any(fix.kind == kind for fix in self.fixes)

    def __le__(self, other: FixSet) -> bool:
        """Whether all of them are among the others, whatever the order."""
        return set(self.fixes) <= set(other.fixes)

    def __lt__(self, other: FixSet) -> bool:
        return set(self.fixes) < set(other.fixes)

    @property
    def names(self) -> tuple[str, ...]:
        """Each as it is written."""
        return tuple(map(str, self.fixes))

    @property
    def of_dataset(self) -> FixSet:
        """Those that change the input."""
        return FixSet(tuple(fix for fix in self.fixes if not fix.is_of_step))

    @property
    def of_step(self) -> FixSet:
        """Those that change the step."""
        return FixSet(tuple(fix for fix in self.fixes if fix.is_of_step))

    @property
    def keeps_files(self) -> bool:
        """Whether one of them keeps elements on disk."""
        return "cache-file" in self
