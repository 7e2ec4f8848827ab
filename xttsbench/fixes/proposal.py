"""A fix, or several together, that might be verified, and how proposals are ranked. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from xttsbench.fixes.cache import CACHE, over_a_training
from xttsbench.fixes.rounds import WHOLE_S
from xttsbench.fixes.spec import WORTH
from xttsbench.records.base import Location
from xttsbench.records.fix import FixSet

_MOST: Final = 6  # fixes that are worth verifying at most


@dataclass(frozen=True)
class Proposal:
    """A fix, or several together, that might be verified."""

    name: str  # the fixes joined by ` + `, in the order in which they are applied
    fixes: tuple[str, ...]  # each by its name
    predicted_speedup: float | None  # of the whole; `None` where nothing is predicted
    what: str  # for a person, in a few words
    places: tuple[Location, ...]  # the user's lines that it changes
    worth: bool  # whether it is worth verifying
    why_not: str | None = None  # why it is not, or cannot be
    hazard: str | None = None  # why it is not: it may change the data, which no trial has to show
    first_pass_s: float | None = None  # seconds until a cache is full, which a trial of it has to wait for
    score: float = 1.0  # speed-up that it is ranked by, expected or guessed
    to_prove: bool = False  # whether running it has to show that the data stay the same
    held_bytes: float = 0.0  # memory that it takes

    @property
    def fills_long(self) -> bool:
        """Whether the proposal fills a cache for longer than a trial can wait, or for an unknown time."""
        return CACHE.name in FixSet.of(self.fixes) and (self.first_pass_s or math.inf) > WHOLE_S


def ranked(proposals: Sequence[Proposal]) -> tuple[Proposal, ...]:
    """Proposals sorted by worth; nearly equal ones by the need of a proof, their number of fixes, and memory."""

    def key(one: Proposal) -> tuple[float, bool, int, float]:
        score = round(math.log(max(_over_a_training(one, proposals), 1e-6)) / math.log(WORTH))
        return (-score, one.to_prove, len(one.fixes), one.held_bytes)

    worth = sorted((one for one in proposals if one.worth), key=key)
    others = sorted((one for one in proposals if not one.worth), key=key)
    late = [replace(one, worth=False, why_not=f"{_MOST} others are expected to give more") for one in worth[_MOST:]]
    return (*worth[:_MOST], *late, *others)


def _over_a_training(proposal: Proposal, every: Sequence[Proposal]) -> float:
    """The score of a proposal, in which a first pass counts that is too long to be waited for."""
    if not proposal.fills_long:
        return proposal.score
    others = FixSet.of(proposal.fixes).without(CACHE.name)
    # Its other fixes are at work while the cache is filled.
    first = [one.score for one in every if one.worth and FixSet.of(one.fixes) <= others]
    return over_a_training(max(first, default=1.0), max(proposal.score, 1e-6))
