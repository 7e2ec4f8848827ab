"""A report from the files of a run: plan, environment and trials in, record out; the same files, the same report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from xttsbench.analysis.readings import summarise
from xttsbench.records.base import Estimate
from xttsbench.records.plan import RunPlan
from xttsbench.records.report import Arm, Report, Rung, WarmUp
from xttsbench.records.trial import TrialRecord
from xttsbench.rules.findings import find
from xttsbench.rules.gather import Gathered, gather
from xttsbench.rules.verdict import verdict
from xttsbench.workflows.unmeasured import reasons

CERTIFIED_STEPS: Final = 240
_OVERHEAD_S: Final = 50e-6


def assemble(plan: RunPlan, environment: Mapping[str, Any], trials: Sequence[TrialRecord]) -> Report:
    """Everything that the run's files say, as the report record. Pure."""
    gathered = gather(trials, environment, seed=plan.seed)
    said = verdict(gathered)
    record = Report(
        kind=plan.kind,
        command=plan.command,
        created_utc=plan.created_utc,
        target=_target(plan, trials),
        environment=dict(environment),
        verdict=said,
        findings=find(gathered.evidence),
        oscillation=gathered.evidence.oscillation,
        arms=_arms(gathered),
        accelerator=_accelerator(plan, gathered),
        ladder=_ladder(gathered, trials),
        warm_up=_warm_up(gathered),
        looking=_looking(gathered),
        verdict_after_s=_verdict_after_s(plan, trials),
        readings=_readings(gathered),
        pipeline=gathered.evidence.pipeline.model_dump(mode="json") if gathered.evidence.pipeline else None,
        profile=_profile(trials),
        trials=tuple(
            {
                "id": trial.spec.trial_id,
                "block": trial.spec.block,
                "status": trial.status,
                "cause": trial.cause,
                "duration_s": trial.duration_s,
            }
            for trial in trials
        ),
        warnings=_warnings(gathered, trials),
    )
    return record.model_copy(update={"unmeasured": reasons(record, gathered, plan, trials)})


def _target(plan: RunPlan, trials: Sequence[TrialRecord]) -> dict[str, Any]:
    failed = next((trial for trial in trials if trial.status not in ("ok", "skipped")), None)
    return {
        "name": plan.target,
        "kwargs": plan.kwargs,
        "kind": next((trial.target_kind for trial in trials if trial.target_kind), None),
        "setup_s": next((trial.setup_s for trial in trials if trial.setup_s is not None), None),
        "status": failed.status if failed else "ok",
        "error": failed.error.model_dump(mode="json") if failed and failed.error else None,
    }


def _accelerator(plan: RunPlan, gathered: Gathered) -> dict[str, Any]:
    """``kind`` and ``label`` as promised, plus how the utilization is defined."""
    found: dict[str, Any] = {"kind": plan.accelerator.kind, "label": plan.accelerator.label}
    if plan.accelerator.kind == "emulated":
        used = gathered.accelerator_utilization
        times = plan.accelerator.step_times_ms
        found |= {
            "definition": "compute time over wall time, first step excluded (MLPerf Storage); pass mark 90 %",
            "passes": used.estimate >= 0.90 if used else None,
            "mean_step_ms": sum(times) / len(times),
            "source": plan.accelerator.source,
        }
    return found


def _ladder(gathered: Gathered, trials: Sequence[TrialRecord]) -> tuple[Rung, ...]:
    if not gathered.figures:
        return ()
    pooled = {"as_is": gathered.figures["wall_s"], "input_only": gathered.input_alone, "step_only": gathered.alone}
    times = {name: found.estimate() for name, found in pooled.items() if found is not None}
    times |= {mode.name: mode.time_s for mode in gathered.evidence.modes.values() if mode.time_s is not None}

    def rung(name: str, time_s: Estimate) -> Rung:
        rungs = ("ladder", "input") if name in pooled else (name,)
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
    for compared in (*evidence.modes.values(), *evidence.fixes.values()):
        is_mode = compared.name in evidence.modes
        ok = compared.speedup is not None
        arms.append(
            Arm(
                id=f"{'step' if is_mode else 'fix'}:{compared.name}",
                role="candidate",
                config={"mode": compared.name, "measured": "step alone"} if is_mode else {"fix": compared.name},
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
    trial = evidence.ladder[0]
    first = trial.segment("warm_up") or trial.segment("as_is")
    columns = first.columns if first else {}
    before = [segment for segment in (trial.segment("warm_up"),) if segment is not None]

    def total(name: str) -> int:
        return sum(sum(segment.columns.get(name, ())) for segment in before)

    steps = len(evidence.steps)
    return WarmUp(
        first_step_s=columns["wall_ns"][0] / 1e9 if columns.get("wall_ns") else None,
        steps_cut=evidence.steady.cut,
        steady_state=evidence.steady.steady,
        steps_measured=steps,
        certified=evidence.steady.steady and steps >= CERTIFIED_STEPS,
        reason=evidence.steady.reason
        or (f"{steps} steady steps; {CERTIFIED_STEPS} certify a steady state" if steps < CERTIFIED_STEPS else None),
        trace_s=total("trace_ns") / 1e9 if before else None,
        traces=total("traces") if before else None,
        xla_compile_s=total("xla_ns") / 1e9 if before else None,
        xla_compiles=total("xla_compiles") if before else None,
    )


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


def _verdict_after_s(plan: RunPlan, trials: Sequence[TrialRecord]) -> float | None:
    if not trials:
        return None
    began, last = datetime.fromisoformat(plan.created_utc), datetime.fromisoformat(trials[-1].started_utc)
    return (last - began).total_seconds() + trials[-1].duration_s


def _readings(gathered: Gathered) -> dict[str, Any]:
    evidence = gathered.evidence
    trial = next(iter(evidence.ladder), None)
    segment = trial.segment("as_is") if trial else None
    if trial is None or segment is None:
        return {}
    starts = segment.columns["start_ns"][segment.warmup_steps :]
    end_ns = starts[-1] + segment.columns["wait_ns"][-1] + segment.columns["step_ns"][-1]
    found = summarise(trial.readings, starts[0], end_ns, len(starts))
    if evidence.steps is not None:
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
