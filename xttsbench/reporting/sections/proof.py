"""Result of an edit on the screen: the data, what was checked, the first difference, and the speed."""

from __future__ import annotations

from typing import Final

from xttsbench.records.pipeline import Place
from xttsbench.records.proof import Proof
from xttsbench.records.report import Report
from xttsbench.reporting import document as doc
from xttsbench.reporting.words import SAME_DATA

_SPEEDS: Final = {
    "passed": "not slower than the margin of {:.0%} allows",
    "failed": "SLOWER than the margin of {:.0%} allows",
    "undecided": "whether it is slower than the margin of {:.0%} allows is undecided",
    "not measured": "not timed",
}


def blocks(report: Report) -> tuple[doc.Section, ...]:
    """The facts of a proof; none of other reports."""
    proof = report.proof
    if proof is None:
        return ()
    facts = {
        "data": SAME_DATA[proof.semantics.how] if proof.outcome == "same" else proof.outcome.upper(),
        "checked": proof.semantics.checked.removeprefix("checked "),
        "first difference": _difference(proof),
        "would prove it": proof.remedy,
        "speed": _SPEEDS[proof.speed].format(proof.margin),
    }
    told = tuple(doc.Fact(name, text, 3) for name, text in facts.items() if text)
    return (doc.Section("", (doc.Facts(told),), view=doc.View.SUMMARY),)


def _difference(proof: Proof) -> str:
    new, old, found = proof.place, proof.old_place, proof.shown
    if new is None:
        return ""
    component = found.component if found is not None else new.component
    told = _where(new) + (f", component {component}" if component else "")
    if found is None:
        return told
    at = f", value {found.where}" if found.where else ""
    moved = f" ({_where(old)} of OLD)" if old is not None and old.row is not None and old != new else ""
    count = f"; {found.unlike:,} of {found.of:,} values differ" if found.of > 1 else ""
    return f"{told}{at}{moved}: {found.old} in OLD, {found.new} in NEW{count}"


def _where(place: Place) -> str:
    row = "" if place.row is None else f", row {place.row + 1}"
    return f"epoch {place.epoch + 1}, batch {place.element + 1}{row}"
