"""Result for an edit of a target, as ``xttsbench prove`` reports it."""

from __future__ import annotations

from typing import Literal

from xttsbench.records.base import MARGIN, Record
from xttsbench.records.fix import Semantics
from xttsbench.records.pipeline import Place, Shown

Outcome = Literal["same", "reordered", "differs", "not proved"]
Speed = Literal["passed", "failed", "undecided", "not measured"]


class Proof(Record):
    """Result for an edit: whether the new version of a target yields the data of the old one."""

    old: str
    """The version before, as the command line named it."""
    new: str
    outcome: Outcome
    semantics: Semantics
    """Comparison of the data, and what was checked."""
    place: Place | None = None
    """Place of the first difference in the new version, where one was found; all numbers count from 0."""
    old_place: Place | None = None
    """Place of the same sample in the old version."""
    shown: Shown | None = None
    """Values of both versions at that place."""
    remedy: str = ""
    """Advice on how to prove what is not proved; else empty."""
    speed: Speed = "not measured"
    """Whether the new version keeps the old one's speed within the margin."""
    margin: float = MARGIN
    """Share of the old one's speed that the new one may lose."""
