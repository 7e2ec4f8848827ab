"""Rules as words and a function, and helpers that rules of a pipeline share: pace of ops, gain of fixes.

A rule may call a fault limiting only where the step waits for data and the fix of that fault helps: as it was verified
or, where it was not, in the model of the pipeline. A fix that was verified to give nothing overrules the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from xttsbench.evidence import Evidence, allowed_cpus
from xttsbench.evidence.pipeline import explains_wait
from xttsbench.fixes.spec import WORTH, WORTH_UNSURE
from xttsbench.records.base import Estimate, Location
from xttsbench.records.fix import FixSet
from xttsbench.records.pipeline import PipelineOp, place
from xttsbench.records.report import Finding, Severity
from xttsbench.throughput.threads import demand, effective_parallelism

Numbers = Mapping[str, float | int | str | bool | None]
Findings = Iterator[Finding]
_Find = Callable[[Evidence], Findings]


@dataclass(frozen=True)
class Gain:
    """Gain of a fix for a step that waits for data.

    Attributes:
        name: the fix, or several joined by `` + ``.
        speedup: measured with its interval, or predicted, which has none.
        predicted: what the model says of it; ``None`` where it says nothing.
        processes: that measured it; 0 where it is predicted.
        changes: how the fix would change the data, where it would.
    """

    name: str
    speedup: Estimate
    predicted: Estimate | None = None
    processes: int = 0
    changes: str | None = None


@dataclass(frozen=True)
class Rule:
    """One thing that may be wrong with a target; called with the evidence, it yields what it finds.

    Attributes:
        id: its name in reports, part of the contract.
        symptom: what it sees.
        threshold: what has to hold at least for it to fire, and for what it finds to be limiting.
        remedy: what to do; a finding may say it in the terms of the user's own call.
        false_alarms: when what it finds is harmless or mistaken.
        find: the function that looks.
    """

    id: str
    symptom: str
    threshold: str
    remedy: str
    false_alarms: str
    find: _Find

    def __call__(self, evidence: Evidence) -> Findings:
        """Runs the rule on the evidence."""
        return self.find(evidence)

    def finding(
        self,
        title: str,
        numbers: Numbers,
        remedy: str | None = None,
        *,
        severity: Severity = "info",
        at: PipelineOp | Location | None = None,
        limiting: bool = False,
        predicted_speedup: Estimate | None = None,
        helps: Gain | None = None,
    ) -> Finding:
        """A finding of this rule.

        Args:
            title: one line for a person.
            numbers: the evidence, of which what was not measured (``None``) is left out.
            remedy: in place of the rule's own.
            severity: how bad it is; of what ``helps`` makes limiting, the gain says it.
            at: the op, or the place in the user's source.
            limiting: whether it is (part of) what limits the step now.
            predicted_speedup: of the step without the fault; ``None`` where that is not known.
            helps: the gain of a fix, which makes it limiting and is its speed-up.
        """
        remedy, verified_speedup = self.remedy if remedy is None else remedy, None
        if helps is not None:
            limiting, predicted_speedup = True, helps.predicted
            verified_speedup = helps.speedup if helps.processes else None
            severity = "critical" if helps.speedup.estimate >= 2 else "warning"
            measured: Numbers = {"measured_with": helps.name, "processes": helps.processes}
            numbers = {**numbers, **(measured if helps.processes else {"predicted_with": helps.name})}
            changes = (helps.changes or "").strip().rstrip(".")
            remedy += f" Mind that {changes[0].lower()}{changes[1:]}." if changes else ""
        return Finding(
            rule=self.id,
            severity=severity,
            limiting=limiting,
            title=title,
            location=at if isinstance(at, Location) else place(at),
            evidence={name: value for name, value in numbers.items() if value is not None},
            remedy=remedy,
            predicted_speedup=predicted_speedup,
            verified_speedup=verified_speedup,
        )


def rule(name: str, *, threshold: str, remedy: str, false_alarms: str) -> Callable[[_Find], Rule]:
    """Make a rule of a function, whose docstring is the symptom."""

    def made(find: _Find) -> Rule:
        symptom = " ".join(inspect.cleandoc(find.__doc__ or "").split())
        return Rule(name, symptom, threshold, remedy, false_alarms, find)

    return made


MAIN_SHARE: Final = 0.30
"""An op with this share of the pipeline's pace is a main cost."""


def gain(evidence: Evidence, *kinds: str, part: bool = False) -> Gain | None:
    """The best fix, or combination of fixes, of the given kinds; ``None`` where none helps a step that waits.

    A kind is what a fix's name has before ``:``, or the whole name. With ``part`` it is else an accepted combination
    with a part of these kinds.
    """
    if not evidence.limits("input"):
        return None
    said = {found.name: found for found in evidence.predictions if found.fixes and _of_kinds(found.name, kinds)}
    predicted = {name: Estimate.exactly(one.speedup) for name, one in said.items() if one.speedup is not None}
    measured = [
        Gain(name, fix.speedup, predicted.get(name), fix.processes)
        for name, fix in evidence.fixes.items()
        # What the interval of one process leaves out is how processes differ.
        if fix.speedup is not None
        and (fix.accepted or fix.speedup.low > (WORTH if fix.processes > 1 else WORTH_UNSURE))
        and _of_kinds(name, kinds)
    ]
    if measured:
        return max(measured, key=lambda found: found.speedup.low)
    hoped = [
        Gain(name, speedup, speedup, changes=said[name].why_not)
        for name, speedup in predicted.items()
        if speedup.estimate >= WORTH_UNSURE and name not in evidence.fixes
    ]
    best = max(hoped, key=lambda found: found.speedup.estimate, default=None)
    return accepted(evidence, *kinds) if part and best is None else best


def accepted(evidence: Evidence, *kinds: str) -> Gain | None:
    """The best accepted fix, or combination, with a part of the given kinds; ``None`` for none.

    It speaks for what its parts mend: a rule that is silent beside it would contradict it.
    """
    found = [
        Gain(name, fix.speedup, processes=max(fix.processes, 1))
        for name, fix in evidence.fixes.items()
        if fix.accepted and fix.speedup is not None and any(_of_kinds(str(one), kinds) for one in FixSet.parse(name))
    ]
    return max(found, key=lambda one: one.speedup.estimate, default=None) if evidence.limits("input") else None


def _of_kinds(name: str, kinds: Sequence[str]) -> bool:
    return all(str(fix) in kinds or fix.kind in kinds for fix in FixSet.parse(name))


def cost_share(evidence: Evidence, op: PipelineOp | None) -> float | None:
    """Share of an op in the cost of the whole pipeline, or ``None`` where costs are not known."""
    if op is None or op.cost_s is None:
        return None
    total = sum(other.cost_s or 0.0 for other in evidence.graph.ops if not other.cached)
    return (0.0 if op.cached else op.cost_s) / total if total > 0 else None


def pace_s(evidence: Evidence, op: PipelineOp) -> float | None:
    """Seconds per batch that an op needs at least, whatever runs beside it; ``None`` where its cost is not known.

    Its calls run at once, but those that compute need a processor each, and under the interpreter lock they take turns.
    """
    if op.cost_s is None:
        return None
    cpus = allowed_cpus(evidence)
    need = demand(op, evidence.graph, cpus)
    return max(need.cost_s / effective_parallelism(op, evidence.graph, cpus), need.lock_s, need.cpu_s / max(cpus, 1))


def pace_share(evidence: Evidence, *ops: PipelineOp) -> float | None:
    """Share of some ops in the pace of all, parallel calls considered; ``None`` where no cost of theirs is known.

    Stages overlap, so the share of an op in the time that a batch really takes is at least this.
    """
    total = sum(pace_s(evidence, op) or 0.0 for op in evidence.graph.ops)
    own = [pace for op in ops if (pace := pace_s(evidence, op)) is not None]
    return sum(own) / total if own and total > 0 else None


def is_main(evidence: Evidence, *ops: PipelineOp) -> bool:
    """Whether ops have a main share of the pace; false where that is not known, or no op explains the wait."""
    share = pace_share(evidence, *ops)
    return share is not None and share >= MAIN_SHARE and explains_wait(evidence)


def most_costly(evidence: Evidence, ops: Sequence[PipelineOp]) -> PipelineOp | None:
    """The op that needs most time for a batch; the first of those whose cost is not known where none is."""
    return max(ops, key=lambda op: pace_s(evidence, op) or 0.0, default=None)


def blamed(evidence: Evidence, helps: Gain, *ops: PipelineOp) -> bool:
    """Whether ops are what a fix helps: measured, or a main share of the pace where that is only predicted."""
    return helps.processes > 0 or is_main(evidence, *ops)
