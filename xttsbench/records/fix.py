"""What became of each fix that a run proposed: what it was expected to give, what it gave, what is applied again."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator

from xttsbench.records.base import (
    SCHEMA_VERSION,
    Estimate,
    Location,
    Record,
    Word,
    evidence_of_version_1,
)
from xttsbench.records.elements import GraphIdentity

How = Literal["identical", "rounding", "other order", "other batches", "distribution", "different", "unknown"]
"""``identical``: the same bits in the same order; ``rounding``: floats closer than the tolerance; ``other order``: the
same samples in an order that nobody was promised; ``other batches``: the same samples but for padding, batched
otherwise as asked for; ``distribution``: random values, drawn from what looks like the same
distribution; ``different``: other data; ``unknown``: it could not be told."""

Outcome = Literal["accepted", "rejected", "not verified"]


class Semantics(Record):
    """Whether a fixed pipeline yields the data of the original."""

    equivalent: bool | None
    how: How
    sentence: str
    """For a person: what was compared, or where they differ first."""
    elements: int = 0
    """That were compared, over all epochs."""
    epochs: int = 0
    rows: int = 0
    """Samples of an epoch that were compared, at most."""
    rows_of: int | None = None
    """Samples that an epoch of the whole dataset has; ``None`` where the dataset does not tell."""
    timed_batches: int = 0
    """Batches of the timed runs that were compared with the original's, by digests."""
    timed_of: int = 0
    """Batches that the fix was timed on."""
    timed_why_not: str | None = None
    """Why the batches of the timed runs tell nothing, where they do not."""

    @property
    def checked(self) -> str:
        """How much was compared, in words; empty where nothing was."""
        if not self.rows:
            return ""
        of = f"{self.rows_of:,}" if self.rows_of is not None else "an unknown number"
        epochs = f"{self.epochs} {'epoch' if self.epochs == 1 else 'epochs'}"
        said = f"checked {self.rows:,} {'row' if self.rows == 1 else 'rows'} of {of}, over {epochs}"
        if self.timed_batches:
            return f"{said}, and {self.timed_batches:,} of {self.timed_of:,} timed batches"
        return said


class Edit(Record):
    """One change of the user's source."""

    fix: str
    file: str
    line: int
    before: str
    """The call, or the line, as it stands."""
    after: str


class Patch(Record):
    """A fix in the user's own terms."""

    edits: tuple[Edit, ...] = ()
    diff: str = ""
    """Unified diff of all files; empty where there is no edit."""
    files: dict[str, str] = {}
    """File -> its whole text with the edits, which is what was run."""
    unpatched: dict[str, str] = {}
    """Fix -> why there is no edit for it, with what to write by hand."""
    also: tuple[str, ...] = ()
    """Who else runs the changed lines, a sentence each: what they make changes as well."""
    ran: bool = False
    """Whether the patched copy was run."""
    equivalent: bool | None = None
    """Whether the patched copy was run and yields the data of the original; ``None`` where it was not run."""
    verified_speedup: Estimate | None = None
    """Of the patched copy, against the original."""
    why_not: str | None = None
    """Why it was not run, or how that ended."""


class FixResult(Record):
    """One fix, or several together, from proposal to verdict."""

    name: str
    """As :mod:`xttsbench.records.pipeline` names fixes; several joined by `` + ``."""
    fixes: tuple[str, ...]
    what: str
    """For a person: what it does, in a few words."""
    outcome: Outcome
    why: str
    """In one sentence: why it was accepted, rejected, or not verified."""
    predicted_speedup: float | None = None
    verified_speedup: Estimate | None = None
    step_time_s: Estimate | None = None
    decision: Word | Literal["ended"] | None = None
    blocks: int = 0
    semantics: Semantics | None = None
    places: tuple[Location, ...] = ()
    """The user's lines that it changes."""
    patch: Patch | None = None
    chosen: bool = False
    """Whether this is what the run proposes in the end."""
    rounds: int = 0
    """Paired rounds beside the original."""
    evidence: float | None = None
    """The e-value that it differs from the original."""
    source_limit: int = 0
    """Elements of each source on which it was measured, where it keeps a cache that takes long to fill; 0 where all
    data were read."""

    @model_validator(mode="before")
    @classmethod
    def _version_1(cls, found: Any) -> Any:
        return evidence_of_version_1(found)


class Optimized(Record):
    """``optimized.yaml``: fixes that a run of ``xttsbench optimize`` verified, to be applied again without looking."""

    schema_version: int = SCHEMA_VERSION
    run: str
    """Directory of the run."""
    target: str
    kwargs: dict[str, Any] = {}
    fixes: tuple[str, ...]
    """In the order in which they are applied; empty where nothing was better than the original."""
    identity: GraphIdentity | None
    """Of the pipeline as it was, and must be again."""
    speedup: Estimate | None
    """Verified, against the original."""
    equivalent: bool | None
    data: str
    """What was found about the data, in a sentence."""
    proven: bool
    """True only where the interval clears 1 and the data are the same."""
    blocks: int = 0
    accelerator: str = "real device"
    cache_directory: str | None = None
    """Where a cache on disk is kept."""
    fingerprint: str = ""
    """Of the machine and the versions that it was measured on."""
    xttsbench_version: str = ""
