"""The fixes of a report as cards, the best first: gain, how sure that is, what it does to the data, the patch.

A card's bar runs from 1x to the gain on a scale that all cards share, logarithmic in the gain. Its colour says whether
the step gets faster; it is hatched where the gain is estimated, or measured and not decided.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from xttsbench.fixes.spec import WORTH
from xttsbench.records.base import FASTER, SLOWER, Estimate
from xttsbench.records.fix import FixResult
from xttsbench.records.report import Report
from xttsbench.reporting import units
from xttsbench.reporting.document import Block, Cleaned, Code, Fact, Facts, Fold, Paragraph, Section
from xttsbench.reporting.sections import fixes as words

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
    ranked = sorted(report.fixes, key=_rank)
    cards = _cards(ranked)
    worth = [card for card, found in zip(cards, ranked, strict=True) if _open(found)]
    others = tuple(card for card, found in zip(cards, ranked, strict=True) if not _open(found))
    chosen = next((found for found in report.fixes if found.chosen), None)
    blocks: list[Block] = [Paragraph(words.proposal(report, chosen)), *worth]
    if chosen and chosen.patch and (said := words.patched(chosen.patch)):
        blocks.append(Paragraph(said))
    if chosen and chosen.patch and chosen.patch.unpatched:
        by_hand = tuple(Fact(fix, what) for fix, what in chosen.patch.unpatched.items())
        blocks.append(Facts(by_hand, ("fix", "what to write"), "By hand:"))
    if applied := words.call(report.optimized):
        blocks.append(Code(applied, "python", "Without editing the source:"))
    if others:
        blocks.append(Fold(f"{len(others)} more, not worth it here or rejected", others))
    yield Section("Fixes, the best first", tuple(blocks))


def _rank(found: FixResult) -> tuple[int, float]:
    order = 0 if found.chosen else {"accepted": 1, "not verified": 2, "rejected": 3}[found.outcome]
    gain = found.verified_speedup.estimate if found.verified_speedup else found.predicted_speedup
    return order, -(gain or 0.0)


def _open(found: FixResult) -> bool:
    """Whether its card stands open: it was accepted, or not tried though it may give something."""
    return (
        found.chosen
        or found.outcome == "accepted"
        or (found.outcome == "not verified" and (found.predicted_speedup or 0.0) >= WORTH)
    )


def _cards(ranked: Sequence[FixResult]) -> list[FixCard]:
    gains = [_estimate(found) for found in ranked]
    ends = [bound for gain in gains if gain for bound in (gain.estimate, gain.low, gain.high) if bound > 0]
    low, high = min([1.0, *ends]) / _MARGIN, max([1.1, *ends]) * _MARGIN

    def place(value: float) -> float:
        return math.log(min(max(value, low), high) / low) / math.log(high / low)

    cards = []
    for rank, (found, gain) in enumerate(zip(ranked, gains, strict=True), start=1):
        measured = found.verified_speedup is not None
        drawn = None
        if gain is not None:
            drawn = Gain(
                units.ratio_interval(gain) if measured else units.ratio(gain.estimate),
                _tone(found, gain),
                measured and found.decision in (*FASTER, *SLOWER),
                *map(place, (1.0, gain.estimate, gain.low, gain.high)),
            )
        data = "" if found.semantics is None else words.DATA[found.semantics.how]
        cards.append(
            FixCard(
                rank=rank,
                name=found.name,
                what=found.what or found.name,
                basis="measured" if measured else "estimated" if gain else "",
                gain=drawn,
                data=data,
                outcome=f"{found.outcome}: {found.why}" if found.why else found.outcome,
                where=tuple(dict.fromkeys(_where(found))),
                patch=Code((found.patch.diff,) if found.patch else (), "diff"),
                proposed=found.chosen,
            )
        )
    return cards


def _estimate(found: FixResult) -> Estimate | None:
    if found.verified_speedup is not None or found.predicted_speedup is None:
        return found.verified_speedup
    return Estimate(estimate=found.predicted_speedup, low=found.predicted_speedup, high=found.predicted_speedup)


def _tone(found: FixResult, gain: Estimate) -> Literal["better", "worse", "none"]:
    if found.verified_speedup is None:
        return "better" if gain.estimate >= WORTH else "none"
    return "better" if gain.low > 1.0 else "worse" if gain.high < 1.0 else "none"


def _where(found: FixResult) -> Iterator[str]:
    for place in found.places:
        if place.file:
            yield f"{place.file}:{place.line}" if place.line is not None else place.file
