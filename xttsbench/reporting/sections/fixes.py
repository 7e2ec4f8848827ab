"""Results of the fixes, in words: measurements, the patch of the proposal, and how to apply it.

A fix that could not be measured is no result; it has one line with the reason. Beside it, what the model estimates.

The page has them as cards, the best first: gain, how sure that is, what it does to the data, the patch. A card's bar
runs from 1x to the gain on a scale that all cards share, logarithmic in the gain. Its colour says whether the step gets
faster; it is hatched where the gain is estimated, or measured and not decided.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from xttsbench.fixes.registry import said
from xttsbench.fixes.spec import WORTH
from xttsbench.records.base import DECIDED, FASTER, SLOWER, Estimate
from xttsbench.records.fix import FixResult, FixSet, Optimized, Patch, Semantics
from xttsbench.records.pipeline import Prediction
from xttsbench.records.report import Report
from xttsbench.reporting import units
from xttsbench.reporting.document import (
    Block,
    Cell,
    Cleaned,
    Code,
    Fact,
    Facts,
    Fold,
    Paragraph,
    Section,
    View,
    folded,
    table,
)
from xttsbench.reporting.sections import cell
from xttsbench.reporting.sections.answer import with_calls
from xttsbench.reporting.words import short_path

NOT_ESTIMATED: Final = "not estimated"
PLAN: Final = "optimized.yaml"
_MOST_PREDICTED: Final = 4
_PATCH_LINES: Final = 40  # Of a diff, on a terminal
_FIXES: Final = ("fix", "estimated", "measured", "data", "outcome and why")
_PREDICTED: Final = ("condition", "batches a second", "speed-up", "limited by", "measured", "remark")
DATA: Final = {
    "identical": "the same, bit for bit",
    "rounding": "the same, but for rounding",
    "other order": "the same samples, another order",
    "other batches": "the same samples, OTHER BATCHES",
    "distribution": "random, drawn alike",
    "different": "OTHER DATA",
    "unknown": "not proved to be the same",
}


def section(report: Report) -> Iterator[Section]:
    """Section on the proposal, its application, tried and untried fixes; empty without a search for fixes."""
    if not report.fixes and report.optimized is None:
        return
    chosen = next((found for found in report.fixes if found.chosen), None)
    blocks: list[Block] = [Paragraph(proposal(report, chosen))]
    if tried := [found for found in report.fixes if found.outcome != "not verified"]:
        blocks.append(table(_FIXES, [_row(found, report) for found in tried]))
    blocks += applied(report, chosen, with_diff=True)
    left = [found for found in report.fixes if found.outcome == "not verified"]
    if left:
        why = tuple(Fact(with_calls(found.words, report), with_calls(found.why, report)) for found in left)
        blocks.append(Facts(why, ("fix", "why"), "Not measured:"))
    yield Section("Fixes", tuple(blocks))


def applied(report: Report, chosen: FixResult | None, *, with_diff: bool) -> Iterator[Block]:
    """Blocks that apply the proposal: its patch, whether that was run, edits left to do by hand, and a call."""
    patch = chosen.patch if chosen else None
    if said := patched(patch):
        yield Paragraph(said)
    if with_diff and patch and patch.diff.strip():
        yield Code((patch.diff,), "diff", shown=_PATCH_LINES, rest="in the run's patch.diff")
    if patch and patch.unpatched:
        by_hand = tuple(Fact(fix, what) for fix, what in patch.unpatched.items())
        yield Facts(by_hand, ("fix", "what to write"), "By hand:")
    if code := call(report.optimized):
        yield Code(code, "python", "Without editing the source:")


def predictions(report: Report) -> Iterator[Section]:
    """The target as it is, the fixes that give most, and the ceiling, in four columns."""
    rows = [found for found in report.predictions if found.batches_per_s is not None]
    fixes = [found for found in rows if found.fixes and (found.speedup or 0.0) >= WORTH]
    best = sorted(fixes, key=lambda found: -(found.speedup or 0.0))[:_MOST_PREDICTED]
    if chosen := [_prediction(found, report)[:4] for found in rows if not found.fixes or found in best]:
        yield Section("What the model estimates", (table(_PREDICTED[:4], chosen),), view=View.FULL)


def predictions_in_full(report: Report) -> Fold:
    """A row for each condition that the model was asked about."""
    return folded(
        "What the model estimates, in full", _PREDICTED, [_prediction(found, report) for found in report.predictions]
    )


def _prediction(found: Prediction, report: Report) -> tuple[str | Cell, ...]:
    rate, speedup = found.batches_per_s, found.speedup
    return (
        with_calls(said(FixSet.of(found.fixes)), report) if found.fixes else found.name,
        NOT_ESTIMATED if rate is None else units.number(rate),
        "" if speedup is None else units.ratio(speedup),
        with_calls(found.limited_by, report),
        cell(found.measured_per_s, lambda measured: units.rate_bounds(measured, unit=" /s")),
        found.why_not or "",
    )


def proposal(report: Report, chosen: FixResult | None) -> str:
    """Sentence on the proposed fix, or on the reason for proposing none."""
    if chosen is None:
        if not report.fixes:
            return "There was no fix to try: the pipeline stays as it is."
        return "No fix was accepted: the pipeline stays as it is."
    speed = "" if chosen.verified_speedup is None else f", {units.ratio_interval(chosen.verified_speedup)} as fast"
    blocks = f" in {chosen.blocks:,} {'process' if chosen.blocks == 1 else 'processes'}" if chosen.blocks else ""
    said = with_calls(chosen.semantics.sentence, report) if chosen.semantics else ""
    return f"Proposed: {with_calls(chosen.words, report)}{speed}{blocks}.{f' Data: {said}' if said else ''}"


def _row(found: FixResult, report: Report) -> tuple[str | Cell, ...]:
    predicted, achieved = found.predicted_speedup, found.verified_speedup
    outcome = "proposed" if found.chosen else found.outcome
    return (
        with_calls(found.words, report),
        NOT_ESTIMATED if predicted is None else units.ratio(predicted),
        cell(achieved, units.ratio_bounds),
        same_data(found.semantics),
        with_calls(_said(outcome, found.why), report),
    )


def same_data(found: Semantics | None) -> str:
    """Whether the data are the same, and how much of them was compared."""
    if found is None:
        return "not compared"
    return f"{DATA[found.how]} ({found.checked})" if found.checked else DATA[found.how]


def patched(patch: Patch | None) -> str:
    """Whether the source with the edits was run, and what came of it."""
    if patch is None or not (patch.diff.strip() or patch.why_not):
        return ""
    words = []
    if patch.equivalent is not None:
        words.append("yields the same data" if patch.equivalent else "gives OTHER DATA")
    if patch.verified_speedup is not None:
        words.append(f"is {units.ratio_interval(patch.verified_speedup)} as fast")
    said = f"The source with this patch was {'run; it' if words else 'not run'} {' and '.join(words)}".rstrip()
    said += f": {patch.why_not}" if patch.why_not else "."
    if not words and not said.endswith("."):
        said += "."
    return " ".join([said, *(f"{one}." for one in patch.also)])


def call(optimized: Optimized | None) -> tuple[str, ...]:
    """``xttsbench.optimize`` with the saved plan; without fixes there is nothing to apply, and a script takes none."""
    if optimized is None or not optimized.fixes or optimized.target.endswith(".py"):
        return ()
    place = f"{optimized.run.rstrip('/')}/{PLAN}" if optimized.run else PLAN
    return ("import xttsbench", f"dataset, report = xttsbench.optimize({optimized.target!r}, plan={place!r})")


_ORDER: Final = {"chosen": 0, "accepted": 1, "not verified": 2, "rejected": 3}
_MARGIN: Final = 1.06  # Room beside the smallest and the largest gain on the scale, as a ratio


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
    what: str
    basis: str
    gain: Gain | None
    data: str
    outcome: str
    where: tuple[str, ...]
    patch: Code
    proposed: bool


def as_cards(report: Report) -> Iterator[Section]:
    """Sections of the page: the proposal, worthwhile fixes as cards, the way to apply it, other fixes folded away."""
    if not report.fixes and report.optimized is None:
        return
    ranked = sorted(((found, *_gain(found)) for found in report.fixes), key=_rank)
    worth: list[FixCard] = []
    others: list[FixCard] = []
    for card, (found, gain, _) in zip(_cards(ranked, report), ranked, strict=True):
        (worth if _open(found, gain) else others).append(card)
    chosen = next((found for found in report.fixes if found.chosen), None)
    blocks: list[Block] = [Paragraph(proposal(report, chosen)), *worth]
    blocks += applied(report, chosen, with_diff=False)
    if others:
        blocks.append(Fold(f"{len(others)} more, not worth it here or rejected", tuple(others)))
    yield Section("Fixes, the best first", tuple(blocks))


def _gain(found: FixResult) -> tuple[Estimate | None, str]:
    if found.verified_speedup is not None:
        return found.verified_speedup, "measured"
    if found.predicted_speedup is None:
        return None, ""
    exact = found.predicted_speedup
    return Estimate(estimate=exact, low=exact, high=exact), "estimated"


def _rank(rated: tuple[FixResult, Estimate | None, str]) -> tuple[int, bool, float]:
    """Sort key: the proposal first; among unproven fixes, measured gains before estimated ones."""
    found, gain, basis = rated
    return _ORDER["chosen" if found.chosen else found.outcome], not basis.startswith("measured"), -_size(gain)


def _size(gain: Estimate | None) -> float:
    return gain.estimate if gain else 0.0


def _open(found: FixResult, gain: Estimate | None) -> bool:
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
        cards.append(
            FixCard(
                rank=rank,
                what=with_calls(found.words, report),
                basis=basis,
                gain=drawn,
                data="" if found.semantics is None else same_data(found.semantics),
                outcome=with_calls(_said(_became(found, basis), found.why), report),
                where=tuple(dict.fromkeys(_where(found))),
                patch=Code((found.patch.diff,) if found.patch else (), "diff"),
                proposed=found.chosen,
            )
        )
    return cards


def _said(became: str, why: str) -> str:
    return why if why.startswith(became) else ": ".join(filter(None, (became, why)))


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
            yield short_path(place.file) + ("" if place.line is None else f":{place.line}")
