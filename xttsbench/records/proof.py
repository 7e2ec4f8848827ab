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
    """As the command line named it."""
    new: str
    outcome: Outcome
    semantics: Semantics
    """Comparison of the data, and what was checked."""
    place: Place | None = None
    """First difference in the new version, where one was found at a place; all numbers count from 0."""
    old_place: Place | None = None
    """Place of the same sample in the old one."""
    shown: Shown | None = None
    """Both values at that place."""
    remedy: str = ""
    """Remedy that would prove what is not proved."""
    speed: Speed = "not measured"
    """Whether the new version keeps the old one's speed within the margin."""
    margin: float = MARGIN
    """Share of the old one's speed that the new one may lose."""
