"""Something that the text of the user's own source shows, with its place: never a verdict by itself."""

from __future__ import annotations

from typing import Literal

from xttsbench.records.base import Record

SourceKind = Literal[
    "autotune-arithmetic",
    "fixed-npy-header",
    "dead-option",
    "option-never-applied",
    "pool-size",
    "late-environment",
    "late-threads",
    "own-environment",
    "growth-with-limit",
]
"""``late-environment``: a variable that TensorFlow reads at its import, set after it; ``own-environment``: set before
it, so that a process that had imported TensorFlow already did not see it; ``late-threads``: thread settings after
something has run; ``growth-with-limit``: memory growth beside a memory limit; ``pool-size``: where a pipeline's pool
gets its threads, which is no fault by itself."""


class SourceFact(Record):
    """One place in the user's source."""

    kind: SourceKind
    file: str
    line: int
    text: str
    """The line as it stands."""
    detail: str = ""
