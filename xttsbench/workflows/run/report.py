"""The report of a scenario from the files of its run: plan, environment and trials in, record out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xttsbench.analysis.disturbance import disturbance_of
from xttsbench.comparison.arms import ComparedArms, compare
from xttsbench.errors import JournalError
from xttsbench.records.base import DECIDED
from xttsbench.records.plan import Comparison, RunPlan
from xttsbench.records.report import Report, WarmUp
from xttsbench.records.trial import TrialRecord
from xttsbench.workflows.run.verdict import BaselineVerdict, baseline_verdict
from xttsbench.workflows.sections import accelerator, readings_beside, rows_of, target, unread, verdict_after_s, warm_up

_DIAGNOSED = "a trial of an arm costs what it measures, and nothing more; 'xttsbench diagnose' reads it"


def assemble_run(plan: RunPlan, environment: Mapping[str, Any], trials: Sequence[TrialRecord]) -> Report:
    """Everything that the run's files say, as the report record.

    Raises:
        JournalError: the plan holds no comparison, so it is not that of a scenario.
    """
    comparison = plan.comparison
    if comparison is None:
        raise JournalError("plan.json is of a run that compares arms, and names none; run the scenario again.")
    return assemble_compared(plan, environment, trials, comparison=comparison, compared=compare(comparison, trials))


def assemble_compared(
    plan: RunPlan,
    environment: Mapping[str, Any],
    trials: Sequence[TrialRecord],
    *,
    comparison: Comparison,
    compared: ComparedArms,
) -> Report:
    """The report of arms that have been compared; its verdict is that on their baseline."""
    told = baseline_verdict(compared)
    used = comparison.accelerators[told.group]
    warm = WarmUp(reason=told.verdict.summary)
    if told.trial is not None and told.steps is not None and told.steady is not None:
        warm = warm_up(told.trial, told.steps, told.steady)
    own = [trial for trial in trials if trial.spec.arm == comparison.baseline.id]
    record = Report(
        kind=plan.kind,
        command=plan.command,
        created_utc=plan.created_utc,
        target=target(plan, own) | {"scenario": comparison.name, "description": comparison.description},
        environment=dict(environment),
        verdict=told.verdict,
        oscillation=told.oscillation,
        arms=compared.arms,
        aa=compared.aa,
        disturbance=disturbance_of(trials),
        accelerator=accelerator(used, told.verdict.accelerator_utilization),
        warm_up=warm,
        verdict_after_s=verdict_after_s(plan, trials),
        readings=readings_beside(told.trial),
        trials=rows_of(trials),
        warnings=_warnings(plan, comparison, compared, trials),
        parity=compared.parity,
        comparison=compared.sentences,
    )
    return record.model_copy(update={"unmeasured": _unmeasured(record, compared, told)})


def _unmeasured(record: Report, compared: ComparedArms, told: BaselineVerdict) -> dict[str, str]:
    """A reason for every null that could have been a number."""
    found = {**told.unmeasured, **compared.unmeasured}
    why = "there is no step to trace or compile" if told.trial is not None else record.verdict.summary
    for name, value in record.warm_up:
        if value is None and name != "reason":
            found[f"warm_up.{name}"] = why
    found |= unread(record.disturbance)
    if record.verdict_after_s is None:
        found["verdict_after_s"] = "no trial was run"
    return found | {"pipeline": _DIAGNOSED, "overhead": _DIAGNOSED, "profile": _DIAGNOSED}


def _warnings(
    plan: RunPlan, comparison: Comparison, compared: ComparedArms, trials: Sequence[TrialRecord]
) -> tuple[str, ...]:
    found = list(compared.remarks)
    for trial in trials:
        if trial.status not in ("ok", "skipped"):
            found.append(f"trial {trial.spec.trial_id} ended as {trial.status}: {trial.cause}")
        found += list(trial.notes)
    if (unknown := compared.unknown) and compared.failed is None:
        reasons = dict.fromkeys(unknown.values())
        found += [f"{', '.join(arm for arm in unknown if unknown[arm] == reason)}: {reason}" for reason in reasons]
    measured = [trial for trial in trials if trial.spec.rung == "arm"]
    rounds = max((sum(map(_rounds, own)) for own in _by_arm(measured)), default=0)
    stopped = any(trial.status == "interrupted" for trial in trials) or any(group.ended for group in compared.groups)
    if plan.kind != "sweep" and measured and rounds < comparison.blocks and not stopped and _runs_on(compared):
        found.append(
            f"{rounds} of {comparison.blocks} rounds were measured: another was not expected to end within the budget "
            f"of {plan.budget_s:g} s (--budget)"
        )
    if measured and (window_s := measured[0].spec.window_s) < comparison.window_s:
        found.append(
            f"each trial measured {window_s:.2g} s at most in place of {comparison.window_s:g} s, so that the rounds "
            f"fit into the budget of {plan.budget_s:g} s"
        )
    return tuple(dict.fromkeys(found))


def _rounds(trial: TrialRecord) -> int:
    return len(trial.rounds) if trial.spec.turns else 1


def _by_arm(trials: Sequence[TrialRecord]) -> list[list[TrialRecord]]:
    """The trials of each arm on each accelerator."""
    found: dict[object, list[TrialRecord]] = {}
    for trial in trials:
        found.setdefault((trial.spec.arm, trial.spec.emulated_ms), []).append(trial)
    return list(found.values())


def _runs_on(compared: ComparedArms) -> bool:
    """Whether some candidate could have been measured further."""
    candidates = [arm for arm in compared.arms if arm.role == "candidate"]
    return not candidates or any(arm.decision not in (*DECIDED, "ended") for arm in candidates)
