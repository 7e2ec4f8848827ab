"""Findings of a report with their marks and gains, and the rules that found nothing.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from xttsbench.findings import RULES, rules
from xttsbench.fixes.registry import said as said_of
from xttsbench.fixes.results import mending
from xttsbench.fixes.spec import WORTH
from xttsbench.records.fix import FixResult, FixSet
from xttsbench.records.report import Finding, Report
from xttsbench.reporting import document as doc
from xttsbench.reporting import units, words
from xttsbench.reporting.document import Fold, folded
from xttsbench.reporting.sections import answer, fixes
from xttsbench.reporting.words import label, lock, part

_SPOKEN: Final = {"gil": lock, "side": part} | dict.fromkeys(
    ("helps", "measured_with", "predicted_with"), lambda text: said_of(FixSet.parse(text))
)  # Evidence whose value is a name of the records, to its words
_OF_A_MODE: Final = ("xla-untried", "xla-slower", "precision")  # Rules whose gain is that of a mode that was run


def findings(report: Report, *, comparing: bool) -> Iterator[doc.Section]:
    """The findings in their order; a diagnosis says where there is none."""
    proposed = next((fix.patch.diff for fix in report.fixes if fix.chosen and fix.patch is not None), None)
    blocks = tuple(_finding(number, found, proposed, report) for number, found in enumerate(report.findings, start=1))
    if blocks or not comparing:
        yield doc.Section("Findings", blocks or (doc.Paragraph("None."),))


def _bottleneck(found: Finding, every: Sequence[Finding]) -> str:
    """Mark of a finding that limits the step: which is to be mended first, and which are about the same loss."""
    limits = [one for one in every if one.limiting]
    marks = ["SAME BOTTLENECK" if _again(one, limits[:at]) else "NEXT BOTTLENECK" for at, one in enumerate(limits)]
    marks[:1] = ["FIRST BOTTLENECK" if "NEXT BOTTLENECK" in marks[1:] else "BOTTLENECK"]
    return marks[limits.index(found)] if found.limiting else ""


def _again(found: Finding, before: Sequence[Finding]) -> bool:
    """Whether a finding is about the op of one before it, or what it hopes for is what that one does."""
    op, hoped = found.location.op, found.predicted_speedup
    alike = ((one.location.op == op and op) or (hoped and one.predicted_speedup == hoped) for one in before)
    return any(alike)


def _finding(number: int, found: Finding, proposed: str | None, report: Report) -> doc.Finding:
    """``proposed`` is the diff of what is proposed, which stands once, with the fixes."""
    at, every = found.location, report.fixes
    line = f":{at.line}" if at.file and at.line is not None else ""
    facts = []
    for name, value in found.evidence.items():
        said, text = units.named(name, value)
        said = next((words.HELPS[one.outcome] for one in every if name == "helps" and one.name == value), said)
        facts.append(doc.Fact(label(said), _SPOKEN.get(name, str)(text)))
    return doc.Finding(
        number=number,
        severity=found.severity,
        bottleneck=_bottleneck(found, report.findings),
        title=answer.explained(found.title, every),
        rule=found.rule,
        where=", ".join(filter(None, (f"{at.file or ''}{line}", f"op {at.op}" if at.op else ""))),
        evidence=doc.Facts(tuple(facts), ("evidence", "value")),
        remedy=doc.Lines((found.remedy,)),
        patch=doc.Code((found.patch if found.patch and found.patch != proposed else "",)),
        gain=_gain(found, mending(found.rule, every)),
    )


def _gain(finding: Finding, fix: FixResult | None) -> str:
    """Phrase for the gain of a finding's fix, as far as it was measured; empty for a finding without a number.

    What was measured is one fix of those that may mend it, and is named: the finding may advise another.
    """
    words, achieved = [], finding.verified_speedup
    if (predicted := finding.predicted_speedup) is not None:
        exact = predicted.low == predicted.high  # what a model says has no interval
        said = units.ratio_interval(predicted) + (" by the model" if exact else "")
        of_mode = finding.rule in _OF_A_MODE or finding.evidence.get("graph_mode") == "ok"
        whole = not exact and not of_mode  # of the step without the loss
        if not (whole and achieved):  # a bound is of use where nothing was measured, which may lie beyond it
            words.append(f"at most {said}, if that time were gone" if whole else f"estimated {said}")
    if achieved is not None:
        by = f", by {fix.words}" if fix is not None and fix.verified_speedup == achieved else ""
        words.append(f"measured {units.ratio_interval(achieved)}{by}")
    elif words:
        words.append("not measured")
    if finding.same_data != "not_proved":
        drawn = fix is not None and fix.semantics is not None and fix.semantics.how == "distribution"
        same = "random elements, drawn as before" if drawn else "same elements as before"
        words.append(same if finding.same_data == "proved" else "the fix tried CHANGES THE DATA")
    return "; ".join(words)


def passed(report: Report) -> Iterator[doc.Fold]:
    """The rules without a finding: a fix says more of them, they could not be checked, or they found nothing."""
    if report.kind not in ("diagnose", "optimize") or not report.findings:
        return
    fired = {finding.rule for finding in report.findings}
    more = {rule: fix for rule in rules() if rule not in fired and (fix := _open_fix(rule, report))}
    rows = [(rule, fix.words, fixes.outcome(fix)) for rule, fix in more.items()]
    yield folded(f"Checks of which the fix says more: {len(rows)}", ("rule", "a fix for it", "what came of it"), rows)
    silent = [(rule.id, rule.symptom) for rule in rules().values() if rule.id not in {*fired, *more}]
    unread = report.unmeasured.get("pipeline")
    of_pipeline = {one.id for one in RULES["In the pipeline"]} if unread else set()
    blind = [row for row in silent if row[0] in of_pipeline]
    title = f"{len(blind)} checks that could not be made: {unread}"
    yield folded(title, ("rule", "what it looks for in the graph of the pipeline"), blind)
    quiet = [row for row in silent if row[0] not in of_pipeline]
    unsure = ", as far as they can tell without a verdict" if report.verdict.bottleneck == "inconclusive" else ""
    title = f"{len(quiet)} checks that found nothing{unsure}"
    yield Fold(title, (doc.table(("rule", "what it looks for"), quiet),))


def _open_fix(rule: str, report: Report) -> FixResult | None:
    """The fix of a rule that found nothing of its own, where that was not seen or estimated to give nothing."""
    fix = mending(rule, report.fixes, mainly=True)
    nothing = fix is None or (fix.outcome == "rejected" and fix.semantics is not None and fix.semantics.equivalent)
    return None if nothing or (fix and not fix.semantics and answer.speed_of(fix, WORTH) < WORTH) else fix
