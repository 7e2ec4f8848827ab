"""Results of the fixes, in words: measurements, the patch of the proposal, and how to apply it.

A fix that was not measured is among them, with the reason.

The page has them as cards, the best first: gain, how sure that is, what it does to the data, the patch. A card's bar
runs from 1x to the gain on a scale that all cards share, logarithmic in the gain. Its colour says whether the step gets
faster; it is hatched where the gain is estimated, or measured and not decided.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from xttsbench.fixes.spec import WORTH
from xttsbench.records.base import DECIDED, FASTER, SLOWER, Estimate
from xttsbench.records.fix import FixResult, Optimized, Patch, Semantics
from xttsbench.records.report import Report
from xttsbench.reporting import document as doc
from xttsbench.reporting import units
from xttsbench.reporting.sections import cell
from xttsbench.reporting.sections.answer import after, nothing_accepted
from xttsbench.reporting.sections.naming import with_calls

NOT_ESTIMATED: Final = "not estimated"
PLAN: Final = "optimized.yaml"
_PATCH_LINES: Final = 40  # Of a diff, on a terminal
_FIXES: Final = ("fix", "estimated", "measured", "data", "outcome and why")
DATA: Final = {
    "identical": "the same, bit for bit",
    "rounding": "the same, but for rounding",
    "other order": "the same samples, another order",
    "distribution": "random, drawn alike",
    "different": "OTHER DATA",
    "unknown": "not proved to be the same",
}


def section(report: Report) -> Iterator[doc.Section]:
    """Section on the proposal, its application, tried and untried fixes; empty without a search for fixes."""
    if not report.fixes and report.optimized is None:
        return
    chosen = next((found for found in report.fixes if found.chosen), None)
    blocks: list[doc.Block] = [doc.Paragraph(proposal(report, chosen))]
    if report.fixes:
        blocks.append(doc.table(_FIXES, [_row(found, report) for found in report.fixes]))
    blocks += applied(report, chosen, with_diff=True)
    yield doc.Section("Fixes", tuple(blocks))


def applied(report: Report, chosen: FixResult | None, *, with_diff: bool) -> Iterator[doc.Block]:
    """Blocks that apply the proposal: its patch, whether that was run, edits left to do by hand, and a call."""
    patch = chosen.patch if chosen else None
    if said := patched(patch):
        yield doc.Paragraph(said)
    if with_diff and patch and patch.diff.strip():
        yield doc.Code((patch.diff,), "diff", shown=_PATCH_LINES, rest="in the run's patch.diff")
    if patch and patch.unpatched:
        by_hand = tuple(doc.Fact(fix, what) for fix, what in patch.unpatched.items())
        yield doc.Facts(by_hand, ("fix", "what to write"), "By hand:")
    if code := call(report.optimized):
        yield doc.Code(code, "python", "Without editing the source:")


def beside(report: Report) -> Iterator[tuple[str | doc.Cell, ...]]:
    """Rows of the fixes that were measured, as the table of configurations has them; the time is that of the answer."""
    now = report.verdict.step_time_s
    for found in report.fixes:
        if (speed := found.verified_speedup) is not None and now is not None:
            result = "proposed" if found.chosen else _became(found)
            words = with_calls(found.words, report)
            yield words, after(now, speed, report), cell(speed, units.ratio_bounds), f"{found.blocks:,}", result


def times_beside(report: Report) -> Iterator[doc.Paragraph]:
    """Remark on the times in those rows; none without a row."""
    if any(beside(report)):
        said = "The step time of a fix is that of the original divided by the speed-up"
        yield doc.Paragraph(f"{said}, which rounds of both in turns measured.", "soft")


def proposal(report: Report, chosen: FixResult | None) -> str:
    """Sentence on the proposed fix, or on the reason for proposing none."""
    if chosen is None:
        if not report.fixes:
            return "There was no fix to try: the pipeline stays as it is."
        return f"No fix was {'accepted' if nothing_accepted(report) else 'tried'}: the pipeline stays as it is."
    speed = "" if chosen.verified_speedup is None else f", {units.ratio_interval(chosen.verified_speedup)} as fast"
    blocks = f" in {chosen.blocks:,} {'process' if chosen.blocks == 1 else 'processes'}" if chosen.blocks else ""
    said = with_calls(chosen.semantics.sentence, report) if chosen.semantics else ""
    return f"Proposed: {with_calls(chosen.words, report)}{speed}{blocks}.{f' Data: {said}' if said else ''}"


def _row(found: FixResult, report: Report) -> tuple[str | doc.Cell, ...]:
    predicted, achieved = found.predicted_speedup, found.verified_speedup
    return (
        with_calls(found.words, report),
        NOT_ESTIMATED if predicted is None else units.ratio(predicted),
        cell(achieved, units.ratio_bounds),
        same_data(found.semantics),
        with_calls(_said("proposed", found.why) if found.chosen else outcome(found), report),
    )


def same_data(found: Semantics | None) -> str:
    """Whether the data are the same, and how much of them was compared."""
    if found is None:
        return "not compared"
    # Data that differ were compared no further than where that showed.
    return f"{DATA[found.how]} ({found.checked})" if found.checked and found.equivalent else DATA[found.how]


def patched(patch: Patch | None) -> str:
    """Whether the source with the edits was run, and what came of it."""
    if patch is None or not (patch.diff.strip() or patch.why_not) or (patch.unpatched and not patch.diff.strip()):
        return ""  # which is said where the edits by hand are
    words = []
    if patch.equivalent is not None:
        words.append("yields the same data" if patch.equivalent else "gives OTHER DATA")
    if patch.verified_speedup is not None:
        words.append(f"is {units.ratio_interval(patch.verified_speedup)} as fast, timed by itself")
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
class Gain(doc.Cleaned):
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
class FixCard(doc.Block):
    """One fix; ``basis`` says in a word or two what its gain rests on."""

    rank: int
    what: str
    basis: str
    gain: Gain | None
    data: str
    outcome: str
    where: tuple[str, ...]
    patch: doc.Code
    proposed: bool


def as_cards(report: Report) -> Iterator[doc.Section]:
    """Sections of the page: the proposal, worthwhile fixes as cards, the way to apply it, other fixes folded away."""
    if not report.fixes and report.optimized is None:
        return
    ranked = sorted(sorted(report.fixes, key=_rank), key=lambda one: not _open(one))  # numbered as they stand
    cards, opened = _cards(ranked, report), sum(map(_open, ranked))
    worth, others = cards[:opened], cards[opened:]
    chosen = next((found for found in report.fixes if found.chosen), None)
    blocks: list[doc.Block] = [doc.Paragraph(proposal(report, chosen)), *worth]
    blocks += applied(report, chosen, with_diff=False)
    if others:
        blocks.append(doc.Fold(f"{len(others)} more, without a gain that is known, or rejected", tuple(others)))
    yield doc.Section("Fixes, the best first", tuple(blocks))


def _rank(found: FixResult) -> tuple[int, bool, float]:
    """Sort key: the proposal first; among unproven fixes, measured gains before estimated ones."""
    size = found.speed.estimate if found.speed is not None else 0.0
    return _ORDER["chosen" if found.chosen else found.outcome], found.verified_speedup is None, -size


def _open(found: FixResult) -> bool:
    accepted = found.chosen or found.outcome == "accepted"
    return accepted or (found.outcome == "not verified" and found.speed is not None and found.speed.estimate >= WORTH)


def _cards(ranked: Sequence[FixResult], report: Report) -> list[FixCard]:
    gains = [found.speed for found in ranked]
    ends = [bound for gain in gains if gain for bound in (gain.estimate, gain.low, gain.high) if bound > 0]
    low, high = min([1.0, *ends]) / _MARGIN, max([1.1, *ends]) * _MARGIN

    def place(value: float) -> float:
        return math.log(min(max(value, low), high) / low) / math.log(high / low)

    cards = []
    for rank, found in enumerate(ranked, start=1):
        drawn, gain = None, found.speed
        basis = "measured" if found.verified_speedup is not None else "estimated" if gain is not None else ""
        if gain is not None:
            drawn = Gain(
                units.ratio_interval(gain),
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
                outcome=with_calls(outcome(found), report) + _not_proposed(found, report),
                where=tuple(dict.fromkeys(_where(found))),
                patch=doc.Code((found.patch.diff,) if found.patch else (), "diff"),
                proposed=found.chosen,
            )
        )
    return cards


def _not_proposed(found: FixResult, report: Report) -> str:
    """Clause on an accepted fix that is not proposed though it looks faster than what is; empty for others."""
    best = next((one.verified_speedup for one in report.fixes if one.chosen), None)
    own = found.verified_speedup
    if found.chosen or found.outcome != "accepted" or own is None or best is None or own.estimate <= best.estimate:
        return ""
    return "; not proposed, as what is proposed is about as fast, and simpler or faster over a whole training"


def outcome(found: FixResult) -> str:
    """Result of a fix in words, with the reason."""
    return _said(_became(found), found.why)


def _said(became: str, why: str) -> str:
    return why if why.startswith(became) else ": ".join(filter(None, (became, why)))


def _became(found: FixResult) -> str:
    if found.outcome != "not verified":
        return found.outcome
    if found.verified_speedup is not None:
        return "not taken" if found.decision in DECIDED else "undecided"
    return "not tried"


def _tone(gain: Estimate, basis: str) -> Literal["better", "worse", "none"]:
    if basis == "estimated":
        return "better" if gain.estimate >= WORTH else "none"
    return "better" if gain.low > 1.0 else "worse" if gain.high < 1.0 else "none"


def _where(found: FixResult) -> Iterator[str]:
    for place in found.places:
        if place.file:
            yield place.file + ("" if place.line is None else f":{place.line}")
