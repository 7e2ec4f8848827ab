"""What a report says first: the bottleneck of a diagnosis, or the answer of a comparison.

A run that compares arms is asked which of them is worth what; the first sentence of its comparison is the headline. The
others stand below it, and whether all arms feed the same data (else no speed-up means anything): first of these, where
they do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from xttsbench.records.report import Report
from xttsbench.reporting import units
from xttsbench.reporting.document import Headline, Paragraph, View
from xttsbench.reporting.groups import compares, groups
from xttsbench.reporting.sections.answer import disturbed
from xttsbench.reporting.words import part

_SUBJECT: Final = ("scenario", "name", "spec", "target")
"""Keys of the target that name it, the best first."""
_REFUSED: Final = "REFUSED: "


def headline(report: Report) -> Headline:
    """The first words of every output."""
    comparing, summary = compares(report), report.verdict.summary
    if comparing:
        said, same = list(report.comparison) or [summary], parity_sentences(report)
        first, then = (same, said[1:]) if refused(report) else (said[1:], same)
        sentence, below = said[0], [*first, *then, *_chosen(report)]
    else:
        sure = f"Probability {units.probability(report.verdict.confidence)}, given what was measured"
        sentence, below = disturbed(report) or summary, [sure]
        if sentence != summary:
            below.insert(0, summary)
    if report.disturbance and sentence != disturbed(report):
        below.append(f"Machine: {report.disturbance.sentence}")
    return Headline(
        kind=report.kind,
        subject=str(next((report.target[key] for key in _SUBJECT if report.target.get(key)), "")),
        word="" if comparing else part(report.verdict.bottleneck),
        name="" if comparing else report.verdict.bottleneck,
        sentence=sentence,
        below=tuple(
            Paragraph(text, "refused" if text.startswith(_REFUSED) else "" if comparing else "soft") for text in below
        ),
        view=View.SUMMARY,
    )


def _chosen(report: Report) -> tuple[str, ...]:
    """What ``best.yaml`` holds."""
    if report.best is None:
        return ()
    config = ", ".join(f"{key}={value}" for key, value in report.best.config.items()) or "the target's defaults"
    tied = f"; no worse as far as was measured: {', '.join(report.best.tied_with)}" if report.best.tied_with else ""
    proof = "proven in fresh processes" if report.best.proven else "not proven"
    return (f"best.yaml: {config} ({proof}, {report.best.accelerator['label']}){tied}.",)


def refused(report: Report) -> bool:
    """Whether arms were compared and some were found to feed other data than the baseline."""
    return report.parity is not None and not report.parity.get("same")


def parity_sentences(report: Report) -> tuple[str, ...]:
    """``All 5 loaders give the same batches: ...`` or ``REFUSED: ...``, then the arms of which nothing is known.

    Empty where no data were compared.
    """
    parity = report.parity
    if parity is None:
        return ()
    baseline = str(parity.get("baseline") or "the baseline")
    trained = parity.get("losses") or {}
    others = [name for arm in parity.get("arms") or () if (name := str(arm)) != baseline]
    if trained and not refused(report) and set(others) <= {str(arm) for arm in trained}:
        return _losses(trained, baseline), *_unknown(parity)
    what = _what(report, [str(parity.get("baseline")), *map(str, parity.get("arms") or ())])
    if refused(report):
        said = _refusal(parity, baseline, others, what)
    else:
        said = f"All {len(others) + 1} {what} give the same batches{_how(parity, what)}."
    alike = {arm: apart for arm, apart in trained.items() if arm not in (parity.get("differences") or {})}
    return said, *([_losses(alike, baseline)] if alike else []), *_unknown(parity)


def _losses(apart: Mapping[str, float], baseline: str) -> str:
    """The arms whose losses were compared, and how far they are from the baseline's."""
    names = [str(arm) for arm in apart]
    verb = "has" if len(names) == 1 else "have"
    return f"{_and(names)} {verb} the losses of {baseline}: at most {max(apart.values()):.1g} apart, relative to them."


def _how(parity: Mapping[str, Any], what: str) -> str:
    words = []
    if isinstance(batches := parity.get("batches"), int):
        words.append(f"{batches:,} {'batch' if batches == 1 else 'batches'} compared")
    if isinstance(tolerance := parity.get("tolerance"), int | float):
        words.append(f"{'mels' if what == 'loaders' else 'numbers'} within {_tolerance(tolerance)}")
    return f": {', '.join(words)}" if words else ""


def _refusal(parity: Mapping[str, Any], baseline: str, others: Sequence[str], what: str) -> str:
    """Which arms differ from the baseline, and where; the arms as a whole where none is named."""
    places = {str(arm): str(place) for arm, place in (parity.get("differences") or {}).items()}
    if not places:
        where = str(parity.get("difference") or "where was not recorded")
        return f"REFUSED: the {what} do not give the same batches: {where.rstrip('.')}."
    verb = "does" if len(places) == 1 else "do"
    where = "; ".join(f"{arm}: {place}" if len(places) > 1 else place for arm, place in places.items())
    same = [name for name in others if name not in places]
    rest = f" {_and(same)} {'does' if len(same) == 1 else 'do'}{_how(parity, what)}." if same else ""
    what_of = "the losses" if set(places) <= set(parity.get("losses") or ()) else "the batches"
    return f"REFUSED: {_and(list(places))} {verb} not give {what_of} of {baseline}: {where.rstrip('.')}.{rest}"


def _unknown(parity: Mapping[str, Any]) -> list[str]:
    """The arms of which nothing is known, or need not be, with the reason."""
    said = []
    for key, start in (
        ("failed", "Not known of"),
        ("losses_unknown", "Losses not compared:"),
        ("skipped", "Not compared:"),
    ):
        by_reason: dict[str, list[str]] = {}
        for arm, reason in (parity.get(key) or {}).items():
            by_reason.setdefault(str(reason).rstrip("."), []).append(str(arm))
        said += [f"{start} {_and(arms)} ({reason})." for reason, arms in by_reason.items()]
    return said


def _and(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def _what(report: Report, ids: Sequence[str]) -> str:
    """What the arms are: the name of the group that holds them, where it is a plural."""
    names = (group.name for group in groups(report) if set(ids) & {arm.id for arm in group.arms})
    return next((name for name in names if name.isalpha() and name.endswith("s")), "configurations")


def _tolerance(value: float) -> str:
    """``1e-4``."""
    mantissa, _, exponent = f"{value:.0e}".partition("e")
    return f"{mantissa}e{int(exponent)}"
