"""One fix that might be verified, and what such are ranked by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from xttsbench.fixes.spec import WORTH
from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline, PipelineOp, place

_MOST: Final = 6
"""Fixes that are worth verifying at most."""


@dataclass(frozen=True)
class Proposal:
    """A fix, or several together, that might be verified.

    Attributes:
        name: the fixes joined by `` + ``, in the order in which they are applied.
        fixes: each by its name.
        predicted_speedup: of the whole; ``None`` where nothing is predicted.
        what: for a person, in a few words.
        places: the user's lines that it changes.
        worth: whether it is worth verifying.
        why_not: why it is not, or cannot be.
        first_pass_s: seconds until a cache is full, which a trial of it has to wait for.
    """

    name: str
    fixes: tuple[str, ...]
    predicted_speedup: float | None
    what: str
    places: tuple[Location, ...]
    worth: bool
    why_not: str | None = None
    first_pass_s: float | None = None


@dataclass(frozen=True)
class Option:
    """A proposal with what it is ranked by: a speed-up, expected or guessed, and how simple it is."""

    proposal: Proposal
    score: float
    to_prove: bool = False
    held_bytes: float = 0.0


def ranked(options: Sequence[Option]) -> tuple[Proposal, ...]:
    """Those worth verifying first; nearly equal ones by what has to be proved, their number of fixes, and memory."""

    def key(option: Option) -> tuple[float, bool, int, float]:
        score = round(math.log(max(option.score, 1e-6)) / math.log(WORTH))
        return (-score, option.to_prove, len(option.proposal.fixes), option.held_bytes)

    worth = sorted((one for one in options if one.proposal.worth), key=key)
    others = sorted((one for one in options if not one.proposal.worth), key=key)
    late = [
        replace(one.proposal, worth=False, why_not=f"{_MOST} others are expected to give more") for one in worth[_MOST:]
    ]
    return (*(one.proposal for one in worth[:_MOST]), *late, *(one.proposal for one in others))


def places(names: Iterable[str], pipeline: Pipeline) -> tuple[Location, ...]:
    """The user's lines that made the named ops, with those of the Python functions that they run, each once."""
    wanted = set(names)
    ops = [op for op in pipeline.ops if op.name in wanted]
    found = [location for op in ops for location in _of(op, pipeline)]
    return tuple(dict.fromkeys(location for location in found if location.file))


def _of(op: PipelineOp, pipeline: Pipeline) -> list[Location]:
    own = [one.location for one in pipeline.python_functions if one.token in op.python_functions]
    return [place(op), *(location.model_copy(update={"op": op.name}) for location in own)]
