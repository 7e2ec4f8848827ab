"""What became of the fixes, in words: what was verified, the patch of what is proposed, and how to apply it.

A fix that nobody could verify is no result; it has one line with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from xttsbench.records.fix import FixResult, Optimized, Patch, Semantics
from xttsbench.records.report import Report
from xttsbench.reporting import units
from xttsbench.reporting.absent import NOT_MEASURED
from xttsbench.reporting.rows import Line, Table
from xttsbench.reporting.text import plain, plain_lines

TITLE: Final = "Fixes"
NOT_PREDICTED: Final = "not predicted"
PLAN: Final = "optimized.yaml"
_HEADER: Final = ("fix", "predicted", "achieved", "data", "outcome and why")
_DATA: Final = {
    "identical": "the same, bit for bit",
    "rounding": "the same, but for rounding",
    "other order": "the same samples, another order",
    "distribution": "random, drawn alike",
    "different": "CHANGED",
    "unknown": "could not be told",
}


@dataclass(frozen=True, slots=True)
class FixesText:
    """The section on fixes."""

    proposal: str
    """What the run proposes in the end."""
    table: Table | None
    """The fixes that were tried."""
    patched: str
    """What running the patched copy showed; empty where there is no patch."""
    patch: tuple[str, ...]
    """The diff."""
    by_hand: tuple[Line, ...]
    """Fixes that no edit was found for, with what to write."""
    call: tuple[str, ...]
    """Python that applies the fixes without editing the source."""
    not_verified: tuple[Line, ...]


def fixes_text(report: Report) -> FixesText | None:
    """The section, or ``None`` where no fix was proposed or looked for."""
    if not report.fixes and report.optimized is None:
        return None
    tried = [found for found in report.fixes if found.outcome != "not verified"]
    chosen = next((found for found in report.fixes if found.chosen), None)
    patch = chosen.patch if chosen else None
    return FixesText(
        proposal=_proposal(report, chosen),
        table=Table(TITLE, _HEADER, tuple(map(_row, tried))) if tried else None,
        patched=_patched(patch),
        patch=plain_lines(patch.diff) if patch and patch.diff.strip() else (),
        by_hand=tuple(Line(plain(fix), plain(why)) for fix, why in patch.unpatched.items()) if patch else (),
        call=_call(report.optimized),
        not_verified=tuple(
            Line(plain(found.name), plain(found.why)) for found in report.fixes if found.outcome == "not verified"
        ),
    )


def _proposal(report: Report, chosen: FixResult | None) -> str:
    if chosen is None:
        tried = sum(found.outcome == "rejected" for found in report.fixes)
        if not report.fixes:
            return "There was no fix to try: the pipeline stays as it is."
        if not tried:
            return "No fix was verified: the pipeline stays as it is."
        return f"None of the {tried} that were tried was accepted: the pipeline stays as it is."
    what = f" ({plain(chosen.what)})" if chosen.what else ""
    speed = "" if chosen.verified_speedup is None else f", {units.ratio_interval(chosen.verified_speedup)} as fast"
    blocks = f" in {chosen.blocks:,} blocks" if chosen.blocks else ""
    said = _sentence(chosen.semantics)
    return f"Proposed: {plain(chosen.name)}{what}{speed}{blocks}.{f' Data: {said}' if said else ''}"


def _row(found: FixResult) -> tuple[str, ...]:
    predicted, achieved = found.predicted_speedup, found.verified_speedup
    outcome = "proposed" if found.chosen else found.outcome
    return (
        plain(found.name),
        NOT_PREDICTED if predicted is None else units.ratio(predicted),
        NOT_MEASURED if achieved is None else units.ratio_interval(achieved),
        "not compared" if found.semantics is None else _DATA[found.semantics.how],
        plain(f"{outcome}: {found.why}" if found.why else outcome),
    )


def _sentence(semantics: Semantics | None) -> str:
    return "" if semantics is None else plain(semantics.sentence)


def _patched(patch: Patch | None) -> str:
    """Whether the source with the edits was run, and what came of it."""
    if patch is None or not (patch.diff.strip() or patch.why_not):
        return ""
    words = []
    if patch.equivalent is not None:
        words.append("yields the same data" if patch.equivalent else "CHANGES THE DATA")
    if patch.verified_speedup is not None:
        words.append(f"is {units.ratio_interval(patch.verified_speedup)} as fast")
    if words:
        said = f"The source with this patch was run; it {' and '.join(words)}"
        return f"{said}: {plain(patch.why_not)}" if patch.why_not else f"{said}."
    reason = f": {plain(patch.why_not)}" if patch.why_not else ""
    return f"The source with this patch was not run{reason}" + ("" if reason.endswith(".") else ".")


def _call(optimized: Optimized | None) -> tuple[str, ...]:
    """``xttsbench.optimize`` with the saved plan; without fixes there is nothing to apply."""
    if optimized is None or not optimized.fixes:
        return ()
    place = f"{optimized.run.rstrip('/')}/{PLAN}" if optimized.run else PLAN
    target = plain(repr(optimized.target))
    return plain_lines(f"import xttsbench\ndataset, report = xttsbench.optimize({target}, plan={plain(repr(place))})")
