"""The report of an edit, from its run's files: the data of both versions, and their speeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from xttsbench.comparison.arms import compare
from xttsbench.comparison.effects import weigh
from xttsbench.comparison.gates import place
from xttsbench.comparison.runs import collect
from xttsbench.fixes.same_data import as_timed, on_your_word, originals_of
from xttsbench.records.plan import Comparison, RunPlan
from xttsbench.records.proof import Proof, Speed
from xttsbench.records.report import Report
from xttsbench.records.trial import TrialRecord
from xttsbench.samedata.edit import Edit, judge_edit
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.reports.scenario import assemble_compared

NEW: Final = "new"
"""Configuration that the new version is; the old one is the original."""


def edit_of(plan: RunPlan, trials: Sequence[TrialRecord]) -> Edit | None:
    """Judgement of the data; ``None`` where a version was not read as often as that takes."""
    originals = [one for one in originals_of(trials)[0] if one.whole]
    new = next((one.elements for one in trials if one.spec.arm == NEW and one.elements and one.elements.whole), None)
    if new is None or len(originals) < 3 or plan.comparison is None:
        return None
    edit = judge_edit(originals, new, any_order=plan.any_order)
    if edit.outcome != "same":
        return edit
    data = on_your_word(edit.semantics, plan.assume_pure)
    data = as_timed(trials, NEW, data, originals, (plan.comparison.name,))
    return Edit("same" if data.equivalent else "differs" if data.equivalent is False else "not proved", data)


def assembled_proof(run: Recorded) -> Report:
    """Everything that the run's files say, as the report record."""
    plan, planned = run.plan, run.comparison
    edit, compared = edit_of(plan, run.trials), compare(planned, run.trials)
    report = assemble_compared(run, planned, compared)
    changed: dict[str, Any] = {"target": report.target | {"scenario": f"{plan.target} -> {plan.new}"}}
    why = report.unmeasured | {"parity": "the data were compared whole: see proof"}
    said: tuple[str, ...] = compared.sentences
    if not any(arm.step_time_s for arm in compared.arms):
        said, changed["arms"] = (), ()
        why = {path: reason for path, reason in why.items() if not path.startswith("arms.")}
    if edit is not None:
        changed["proof"] = proof = Proof(
            old=plan.target,
            new=plan.new or "",
            outcome=edit.outcome,
            semantics=edit.semantics,
            place=edit.new,
            old_place=edit.old,
            shown=next((trial.shown for trial in run.trials if trial.shown is not None), None),
            remedy=edit.remedy,
            speed=_speed(planned, run.trials),
            margin=planned.margin,
        )
        said = (f"{proof.outcome.capitalize()}: {proof.semantics.sentence}", *said)
        changed |= {"comparison": said, "verdict": report.verdict.model_copy(update={"summary": " ".join(said)})}
    return report.model_copy(update=changed | {"unmeasured": why})


def _speed(planned: Comparison, trials: Sequence[TrialRecord]) -> Speed:
    weighed = weigh(collect(planned, trials)[0], planned.margin)
    if any(runs.ended is not None for runs in weighed.group.candidates) and weighed.group.ended is None:
        return "failed"
    effect = weighed.effects.get(NEW)
    if effect is None or effect.sample is None:
        return "not measured"
    return place(effect.interval(0.95), 1 - planned.margin, at_least=True) if effect.sure else "undecided"
