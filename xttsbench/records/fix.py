"""Fixes: how they are written, and what became of each that a run proposed.

A fix is written ``name``, ``name:<n>`` or ``name@<op>`` (``parallel-map:32``, ``cache@ParallelMapDatasetV2/_7``), one
of the step ``step:<mode>`` or ``step:<mode>:<n>``; several are joined by `` + `` in the order in which they are
applied. They are parsed, printed and taken apart here, and only here. Which names there are, and what may follow each,
is :mod:`xttsbench.fixes.registry`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from xttsbench.records.base import SCHEMA_VERSION, Estimate, Location, Record, Word
from xttsbench.records.pipeline import GraphIdentity

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
            kind, mark, value = text.rpartition(":")
            return cls(kind, mark, value) if value.isdecimal() else cls(text)
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
        """Whether the fix changes the step, not its input."""
        return self.kind.startswith(_OF_STEP)


@dataclass(frozen=True, slots=True)
class FixSet:
    """Fixes in the order in which they are applied: what a trial, a configuration or a saved plan puts on a target."""

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

    def without(self, kind: str) -> FixSet:
        """Subset of the fixes of other kinds."""
        return FixSet(tuple(fix for fix in self.fixes if fix.kind != kind))

    @property
    def names(self) -> tuple[str, ...]:
        """Each as it is written."""
        return tuple(map(str, self.fixes))

    @property
    def of_dataset(self) -> FixSet:
        """Subset of the fixes that change the input."""
        return FixSet(tuple(fix for fix in self.fixes if not fix.is_of_step))

    @property
    def of_step(self) -> FixSet:
        """Subset of the fixes that change the step."""
        return FixSet(tuple(fix for fix in self.fixes if fix.is_of_step))


How = Literal["identical", "rounding", "other order", "distribution", "different", "unknown"]
"""``identical``: the same bits in the same order; ``rounding``: floats closer than the tolerance; ``other order``: the
same samples in an order that nobody was promised; ``distribution``: random values, drawn from what looks like the same
distribution; ``different``: other data; ``unknown``: it could not be told."""

Outcome = Literal["accepted", "rejected", "not verified"]


class Semantics(Record):
    """Whether a fixed pipeline yields the data of the original."""

    equivalent: bool | None
    how: How
    sentence: str
    """Description of what was compared, or of the first difference."""
    elements: int = 0
    """Elements that were compared, over all epochs."""
    epochs: int = 0
    rows: int = 0
    """Samples of an epoch that were compared."""
    rows_of: int | None = None
    timed_batches: int = 0
    """Batches of the timed runs that were compared with the original's."""
    timed_of: int = 0
    timed_why_not: str | None = None

    @property
    def checked(self) -> str:
        """Phrase for the amount of compared data; empty where none was compared."""
        if not self.rows:
            return ""
        of = f"the {self.rows_of:,} that an epoch yields" if self.rows_of is not None else "a dataset of unknown length"
        epochs = f"{self.epochs} {'epoch' if self.epochs == 1 else 'epochs'}"
        said = f"checked {self.rows:,} {'row' if self.rows == 1 else 'rows'} of {of}, over {epochs}"
        if self.timed_batches:
            return f"{said}, and {self.timed_batches:,} of the {self.timed_of:,} batches of the timed runs"
        return said


class Edit(Record):
    """One change of the user's source."""

    fix: str
    file: str
    line: int
    before: str
    after: str


class Patch(Record):
    """A fix as edits of the user's source."""

    edits: tuple[Edit, ...] = ()
    diff: str = ""
    """Unified diff of all files; empty where there is no edit."""
    files: dict[str, str] = {}
    """File -> its whole text with the edits."""
    unpatched: dict[str, str] = {}
    """Fix -> why there is no edit for it, with what to write by hand."""
    assumed: tuple[str, ...] = ()
    """Functions that the user said are pure."""
    also: tuple[str, ...] = ()
    """Other code that runs the changed lines, a sentence each."""
    ran: bool = False
    equivalent: bool | None = None
    """Whether the patched copy yields the data of the original; ``None`` where it was not run."""
    verified_speedup: Estimate | None = None
    why_not: str | None = None
    """Why the patched copy was not run, or how its run ended."""


class FixResult(Record):
    """One fix, or several together, from proposal to verdict."""

    name: str
    """As ``xttsbench list fixes`` names it; several joined by `` + ``."""
    fixes: tuple[str, ...]
    what: str
    outcome: Outcome
    why: str
    predicted_speedup: float | None = None
    verified_speedup: Estimate | None = None
    step_time_s: Estimate | None = None
    decision: Word | Literal["ended"] | None = None
    blocks: int = 0
    semantics: Semantics | None = None
    places: tuple[Location, ...] = ()
    """Lines of the user's source that the fix is about."""
    patch: Patch | None = None
    chosen: bool = False
    """Whether the run proposes this fix in the end."""
    rounds: int = 0
    evidence: float | None = None
    source_limit: int = 0
    """Elements of each source to which the data were cut for a cache; 0 where they were not."""

    @property
    def speed(self) -> Estimate | None:
        """Speed-up: measured, else estimated; ``None`` where neither is known."""
        exact = self.predicted_speedup
        return self.verified_speedup or (Estimate.exactly(exact) if exact is not None else None)

    @property
    def words(self) -> str:
        """Phrase for what it does; its name where there is none."""
        return self.what or self.name


class Optimized(Record):
    """``optimized.yaml``: fixes that a run accepted, to be applied again without another search."""

    schema_version: int = SCHEMA_VERSION
    run: str
    target: str
    kwargs: dict[str, Any] = {}
    fixes: tuple[str, ...]
    """The fixes in the order in which they are applied; empty where none was accepted."""
    identity: GraphIdentity | None
    """Identity of the pipeline. When the fixes are applied, its ``graph`` has to be the same."""
    speedup: Estimate | None
    equivalent: bool | None
    data: str
    assume_pure: tuple[str, ...] = ()
    proven: bool
    blocks: int = 0
    accelerator: str = "real device"
    fingerprint: str = ""
    """Hash of the machine and the versions."""
    xttsbench_version: str = ""
