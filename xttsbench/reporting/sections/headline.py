"""What a report says first: the bottleneck of a diagnosis, or the answer of a comparison.

A run that compares arms is asked which of them is worth what; the first sentence of its comparison is the headline. The
others stand below it, and whether all arms feed the same data: first of these, where they do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from xttsbench.records.report import Report
from xttsbench.reporting import parity, units
from xttsbench.reporting.text import plain

_COMPARING: Final = frozenset({"run", "sweep"})


@dataclass(frozen=True, slots=True)
class Headline:
    """The first sentence, and what stands right below."""

    sentence: str
    below: tuple[str, ...]


def compares(report: Report) -> bool:
    """Whether the report answers which arm is worth what, and not what limits one target."""
    asked = bool(report.comparison) or report.parity is not None or any(arm.group for arm in report.arms)
    return report.kind in _COMPARING and asked


def headline(report: Report) -> Headline:
    """The first words of every output."""
    summary = plain(report.verdict.summary)
    if not compares(report):
        sure = f"Probability {units.percent(report.verdict.confidence)}, given what was measured"
        return Headline(summary, (sure,))
    said, same = [plain(sentence) for sentence in report.comparison] or [summary], parity.sentences(report)
    first, then = (same, said[1:]) if parity.refused(report) else (said[1:], same)
    return Headline(said[0], (*first, *then, *_chosen(report)))


def _chosen(report: Report) -> tuple[str, ...]:
    """What ``best.yaml`` holds."""
    if report.best is None:
        return ()
    config = ", ".join(f"{key}={value}" for key, value in report.best.config.items()) or "the target's defaults"
    tied = f"; as good as far as can be told: {', '.join(report.best.tied_with)}" if report.best.tied_with else ""
    proof = "proven on fresh blocks" if report.best.proven else "not proven"
    return (plain(f"best.yaml: {config} ({proof}, {report.best.accelerator['label']}){tied}."),)
