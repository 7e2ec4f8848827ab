"""A report from the files of a run: plan, environment and trials in, record out; the same files, the same report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from xttsbench.analysis.disturbance import disturbance_of
from xttsbench.records.base import Estimate
from xttsbench.records.conditions import RUNG_OF
from xttsbench.records.fix import Patch
from xttsbench.records.plan import RunPlan
from xttsbench.records.report import AA, Arm, Report, Rung, WarmUp
from xttsbench.records.trial import TrialRecord
from xttsbench.rules.arms import ComparedArms, compare
from xttsbench.rules.finding_fixes import with_fixes
from xttsbench.rules.findings import find
from xttsbench.rules.gather import Gathered, gather
from xttsbench.rules.mode_arms import mode_arms
from xttsbench.rules.predictions import unmeasured as missing_predictions
from xttsbench.rules.step_section import step_section
from xttsbench.rules.verdict import verdict
from xttsbench.workflows.fixes import fix_section
from xttsbench.workflows.sections import accelerator, readings_beside, rows_of, target, verdict_after_s, warm_up
from xttsbench.workflows.unmeasured import reasons

_OVERHEAD_S: Final = 50e-6


def assemble(
    plan: RunPlan,
    environment: Mapping[str, Any],
    trials: Sequence[TrialRecord],
    patch: Patch | None = None,
    *,
    directory: Path | None = None,
) -> Report:
    """Everything that the run's files say, as the report record. Pure."""
    gathered = gather(trials, environment, seed=plan.seed)
    said = verdict(gathered)
    arms = _arms(gathered)
    compared = _compared(plan, trials, len(arms))
    evidence = gathered.evidence
    modes = mode_arms(trials, evidence.modes, evidence.given_mode, np.random.default_rng(plan.seed))
    ladder = [trial for trial in trials if trial.spec.group is None]
    fixes, optimized = fix_section(plan, gathered, trials, environment, patch, directory)
    record = Report(
        kind=plan.kind,
        command=plan.command,
        created_utc=plan.created_utc,
        target=target(plan, trials),
        environment=dict(environment),
        verdict=said,
        findings=with_fixes(find(gathered.evidence), fixes),
        oscillation=gathered.evidence.oscillation,
        arms=(*arms, *(compared.arms if compared else ()), *modes),
        aa=compared.aa if compared else AA(),
        disturbance=disturbance_of(trials),
        accelerator=accelerator(plan.accelerator, gathered.accelerator_utilization),
        ladder=_ladder(gathered, trials),
        warm_up=_warm_up(gathered),
        looking=_looking(gathered),
        verdict_after_s=verdict_after_s(plan, ladder),
        readings=_readings(gathered),
        pipeline=gathered.evidence.pipeline.model_dump(mode="json") if gathered.evidence.pipeline else None,
        predictions=tuple(evidence.predictions),
        step=step_section(gathered.evidence),
        profile=_profile(trials),
        trials=rows_of(trials),
        warnings=_warnings(gathered, trials),
        parity=compared.parity if compared else None,
        comparison=compared.sentences if compared else (),
        fixes=fixes,
        optimized=optimized,
    )
    unmeasured = reasons(record, gathered, plan, trials) | missing_predictions(record.predictions)
    return record.model_copy(update={"unmeasured": unmeasured | dict(compared.unmeasured if compared else {})})


def _compared(plan: RunPlan, trials: Sequence[TrialRecord], first_arm: int) -> ComparedArms | None:
    """The arms that were compared after the verdict, or ``None`` where none was asked for or none was begun."""
    if plan.comparison is None or not any(trial.spec.group == plan.comparison.name for trial in trials):
        return None
    return compare(plan.comparison, trials, seed=plan.seed, first_arm=first_arm)


def _ladder(gathered: Gathered, trials: Sequence[TrialRecord]) -> tuple[Rung, ...]:
    if not gathered.figures:
        return ()
    pooled = {"as_is": gathered.figures["wall_s"], "input_only": gathered.input_alone, "step_only": gathered.alone}
    times = {name: found.estimate() for name, found in pooled.items() if found is not None}
    times |= {mode.name: mode.time_s for mode in gathered.evidence.modes.values() if mode.time_s is not None}

    def rung(name: str, time_s: Estimate) -> Rung:
        rungs = ("ladder", "input", "script") if name in pooled else (RUNG_OF.get(name, name), "script")
        own = [found for trial in trials if trial.spec.rung in rungs and (found := trial.segment(name)) is not None]
        return Rung(
            name=name,
            what=_WHAT.get(name, f"the step on cached batches, {name}"),
            step_time_s=time_s,
            steps=sum(segment.steps - segment.warmup_steps for segment in own),
            processes=len(own),
        )

    return tuple(rung(name, time_s) for name, time_s in times.items())


_WHAT: Final = {
    "as_is": "the target as it is",
    "input_only": "the input without a step",
    "step_only": "the step on cached batches",
}


def _arms(gathered: Gathered) -> tuple[Arm, ...]:
    evidence = gathered.evidence
    if not gathered.figures:
        return ()
    arms = [
        Arm(
            id="as-given",
            role="baseline",
            config={"mode": evidence.given_mode} if evidence.has_step else {},
            blocks=len(evidence.ladder),
            status="ok",
            step_time_s=gathered.figures["wall_s"].estimate(),
            throughput_per_s=gathered.throughput_per_s,
        )
    ]
    for compared in evidence.fixes.values():
        ok = compared.speedup is not None
        arms.append(
            Arm(
                id=f"fix:{compared.name}",
                role="candidate",
                config={"fix": compared.name},
                blocks=compared.processes,
                status=compared.status if compared.cause is None else f"{compared.status}: {compared.cause}",
                step_time_s=compared.time_s,
                effect=compared.speedup,
                decision=None if ok else "ended",
            )
        )
    return tuple(arms)


def _warm_up(gathered: Gathered) -> WarmUp:
    evidence = gathered.evidence
    if not evidence.ladder or evidence.steady is None or evidence.steps is None:
        return WarmUp(reason=gathered.why_inconclusive)
    return warm_up(evidence.ladder[0], evidence.steps, evidence.steady)


def _looking(gathered: Gathered) -> dict[str, Any]:
    found = next((trial.looking for trial in gathered.evidence.ladder if trial.looking is not None), None)
    if found is None:
        return {}
    wall_s = gathered.evidence.wall_s
    return {
        "overhead_s_per_step": found.overhead_s,
        "share_of_step": found.overhead_s / wall_s if wall_s else None,
        "limit_s_per_step": _OVERHEAD_S,
        "method": found.method,
    }


def _readings(gathered: Gathered) -> dict[str, Any]:
    evidence = gathered.evidence
    found = readings_beside(next(iter(evidence.ladder), None))
    if found and evidence.steps is not None:
        found["cpu_s_per_step"] = float(evidence.steps.cpu_s.mean())
        found["share_of_allowed_cpus"] = evidence.facts.cores_busy
    return found


def _profile(trials: Sequence[TrialRecord]) -> dict[str, Any] | None:
    found = next((trial.profile for trial in trials if trial.profile is not None), None)
    return found.model_dump(mode="json") if found else None


def _warnings(gathered: Gathered, trials: Sequence[TrialRecord]) -> tuple[str, ...]:
    evidence, found = gathered.evidence, []
    for trial in trials:
        if trial.status not in ("ok", "skipped"):
            found.append(f"trial {trial.spec.trial_id} ended as {trial.status}: {trial.cause}")
        found += list(trial.notes)
    if evidence.steady is not None and not evidence.steady.steady and evidence.steady.reason:
        found.append(f"no steady state: {evidence.steady.reason}")
    if evidence.steps is not None and evidence.steps.epoch.size and evidence.steps.epoch.max() > 0:
        batches = len(evidence.steps) / (evidence.steps.epoch.max() - evidence.steps.epoch.min() + 1)
        if batches < 20:
            found.append(
                f"the dataset is short (about {batches:.0f} batches): "
                "it is begun again and again, and that is in the times"
            )
    return tuple(dict.fromkeys(found))
