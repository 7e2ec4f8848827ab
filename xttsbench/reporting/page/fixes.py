"""The fixes of a report as cards, the best first: gain, how sure that is, what it does to the data, the patch.

A card's bar runs from 1x to the gain on a scale that all cards share, logarithmic in the gain. Its colour says whether
the step gets faster; it is hatched where the gain is estimated, or measured and not decided.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from xttsbench.fixes.spec import WORTH
from xttsbench.records.base import DECIDED, FASTER, SLOWER, Estimate
from xttsbench.records.fix import FixResult, FixSet
from xttsbench.records.report import Arm, Report
from xttsbench.reporting import units
from xttsbench.reporting.document import Block, Cleaned, Code, Fold, Paragraph, Section
from xttsbench.reporting.sections import fixes as words
from xttsbench.reporting.sections.answer import one_trial, with_calls
from xttsbench.reporting.words import short_path

_ORDER: Final = {"chosen": 0, "accepted": 1, "not verified": 2, "rejected": 3}
_MARGIN: Final = 1.06
"""Room beside the smallest and the largest gain on the scale, as a ratio."""


@dataclass(frozen=True, slots=True)
class Gain(Cleaned):
    """A speed-up and where it lies on the scale of its list: positions 0..1.

    Attributes:
        sure: whether it was measured and decided.
    """

    text: str
    tone: Literal["better", "worse", "none"]
    sure: bool
    one: float
    at: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class FixCard(Block):
    """One fix; ``basis`` says in a word or two what its gain rests on."""

    rank: int
    name: str
    what: str
    basis: str
    gain: Gain | None
    data: str
    outcome: str
    where: tuple[str, ...]
    patch: Code
    proposed: bool


def section(report: Report) -> Iterator[Section]:
    """What is proposed, the fixes that may be worth it as cards, how to apply the proposal, the others folded away."""
    if not report.fixes and report.optimized is None:
        return
    tried = one_trial(report)
    rated = [(found, *_gain(found, tried)) for found in report.fixes]
    ranked = sorted(rated, key=_rank)
    cards = _cards(ranked, report)
    opens = [_open(found, gain) for found, gain, _ in ranked]
    worth = [card for card, is_open in zip(cards, opens, strict=True) if is_open]
    others = tuple(card for card, is_open in zip(cards, opens, strict=True) if not is_open)
    chosen = next((found for found in report.fixes if found.chosen), None)
    blocks: list[Block] = [Paragraph(words.proposal(report, chosen)), *worth]
    blocks += words.applied(report, chosen.patch if chosen else None, with_diff=False)
    if others:
        blocks.append(Fold(f"{len(others)} more, not worth it here or rejected", others))
    yield Section("Fixes, the best first", tuple(blocks))


def _gain(found: FixResult, tried: Mapping[frozenset[str], Arm]) -> tuple[Estimate | None, str]:
    """What it gives, and what that rests on."""
    if found.verified_speedup is not None:
        return found.verified_speedup, "measured"
    if found.outcome == "not verified" and (arm := tried.get(frozenset(fix.kind for fix in FixSet.of(found.fixes)))):
        return arm.effect, "measured in one trial"
    if found.predicted_speedup is None:
        return None, ""
    exact = found.predicted_speedup
    return Estimate(estimate=exact, low=exact, high=exact), "estimated"


def _rank(rated: tuple[FixResult, Estimate | None, str]) -> tuple[int, bool, float]:
    """What is proposed first; of what was not proven, what a trial measured comes before what is estimated."""
    found, gain, basis = rated
    return _ORDER["chosen" if found.chosen else found.outcome], not basis.startswith("measured"), -_size(gain)


def _size(gain: Estimate | None) -> float:
    return gain.estimate if gain else 0.0


def _open(found: FixResult, gain: Estimate | None) -> bool:
    """Whether its card stands open: it was accepted, or not verified though it may give something."""
    accepted = found.chosen or found.outcome == "accepted"
    return accepted or (found.outcome == "not verified" and _size(gain) >= WORTH)


def _cards(ranked: Sequence[tuple[FixResult, Estimate | None, str]], report: Report) -> list[FixCard]:
    gains = [gain for _, gain, _ in ranked]
    ends = [bound for gain in gains if gain for bound in (gain.estimate, gain.low, gain.high) if bound > 0]
    low, high = min([1.0, *ends]) / _MARGIN, max([1.1, *ends]) * _MARGIN

    def place(value: float) -> float:
        return math.log(min(max(value, low), high) / low) / math.log(high / low)

    cards = []
    for rank, (found, gain, basis) in enumerate(ranked, start=1):
        drawn = None
        if gain is not None:
            drawn = Gain(
                units.ratio_interval(gain) if gain.low < gain.high else units.ratio(gain.estimate),
                _tone(gain, basis),
                basis == "measured" and found.decision in (*FASTER, *SLOWER),
                *map(place, (1.0, gain.estimate, gain.low, gain.high)),
            )
        data = "" if found.semantics is None else words.same_data(found.semantics)
        cards.append(
            FixCard(
                rank=rank,
                name=found.name,
                what=with_calls(found.what or found.name, report),
                basis=basis,
                gain=drawn,
                data=data,
                outcome=": ".join(word for word in (_became(found, basis), found.why) if word),
                where=tuple(dict.fromkeys(_where(found))),
                patch=Code((found.patch.diff,) if found.patch else (), "diff"),
                proposed=found.chosen,
            )
        )
    return cards


def _became(found: FixResult, basis: str) -> str:
    if found.outcome != "not verified":
        return found.outcome
    if found.verified_speedup is not None:
        return "not taken" if found.decision in DECIDED else "undecided"
    return "not proven" if basis.startswith("measured") else "not measured"


def _tone(gain: Estimate, basis: str) -> Literal["better", "worse", "none"]:
    if basis == "estimated":
        return "better" if gain.estimate >= WORTH else "none"
    return "better" if gain.low > 1.0 else "worse" if gain.high < 1.0 else "none"


def _where(found: FixResult) -> Iterator[str]:
    for place in found.places:
        if place.file:
            file = short_path(place.file)
            yield f"{file}:{place.line}" if place.line is not None else file
