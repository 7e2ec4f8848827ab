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

    @property
    def fills_long(self) -> bool:
        """Whether the proposal fills a cache for longer than a trial can wait, or for an unknown time."""
        return CACHE.name in FixSet.of(self.fixes) and (self.first_pass_s or math.inf) > WHOLE_S


@dataclass(frozen=True)
class Option:
    """A proposal with what it is ranked by: a speed-up, expected or guessed, and how simple it is."""

    proposal: Proposal
    score: float
    to_prove: bool = False
    held_bytes: float = 0.0


def ranked(options: Sequence[Option]) -> tuple[Proposal, ...]:
    """Proposals sorted by worth; nearly equal ones by the need of a proof, their number of fixes, and memory."""

    def key(option: Option) -> tuple[float, bool, int, float]:
        score = round(math.log(max(_over_a_training(option, options), 1e-6)) / math.log(WORTH))
        return (-score, option.to_prove, len(option.proposal.fixes), option.held_bytes)

    worth = sorted((one for one in options if one.proposal.worth), key=key)
    others = sorted((one for one in options if not one.proposal.worth), key=key)
    late = [
        replace(one.proposal, worth=False, why_not=f"{_MOST} others are expected to give more") for one in worth[_MOST:]
    ]
    return (*(one.proposal for one in worth[:_MOST]), *late, *(one.proposal for one in others))


def _over_a_training(option: Option, options: Sequence[Option]) -> float:
    """The score of an option, in which a first pass counts that is too long to be waited for."""
    proposal = option.proposal
    if not proposal.fills_long:
        return option.score
    others = FixSet.of(proposal.fixes).without(CACHE.name)
    # Its other fixes are at work while the cache is filled.
    first = [one.score for one in options if one.proposal.worth and FixSet.of(one.proposal.fixes) <= others]
    return over_a_training(max(first, default=1.0), max(option.score, 1e-6))
