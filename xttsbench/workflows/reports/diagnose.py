"""A report from the files of a run: plan, environment and trials in, record out; the same files, the same report.

The modes of the step as arms of a group of their own: the step alone, on batches in memory, beside itself as given.

The trials are those of the kinds ``eager``, ``graph``, ``xla`` and ``precision``; each ran the step as given
in the same process, so that the two are paired. Times and rates are those of the step as given in the main trials, at
that ratio: other processes, on other batches, would contradict it. Half a batch is other work and no arm. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from xttsbench.analysis.disturbance import disturbance_of
from xttsbench.analysis.steps import Steps, batches_per_epoch, measured
from xttsbench.comparison.arms import BASELINE, ComparedVariants, compare
from xttsbench.diagnosis import Diagnosis, build_diagnosis
from xttsbench.diagnosis.next_trial import skipped
from xttsbench.diagnosis.verdict import contradiction, gains, verdict
from xttsbench.evidence.step import tried
from xttsbench.findings import find, worth
from xttsbench.fixes.predictions import beside
from xttsbench.fixes.predictions import unmeasured as missing_predictions
from xttsbench.fixes.results import compared as tried_fixes
from xttsbench.fixes.results import mending, with_fixes
from xttsbench.fixes.service.leaving import leaving
from xttsbench.records.base import Estimate
from xttsbench.records.fix import Patch
from xttsbench.records.missing import nulls
from xttsbench.records.plan import RunPlan
from xttsbench.records.report import AA, Experiment, Finding, Report, Variant, WarmUp
from xttsbench.records.trial import KIND_OF, MAIN_KINDS, TrialRecord
from xttsbench.reporting.units import duration
from xttsbench.workflows import reports
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.optimize import fix_section, said_writes
from xttsbench.workflows.reports.modes import mode_arms
from xttsbench.workflows.reports.profile import profile_section
from xttsbench.workflows.reports.step import step_section

_OVERHEAD_S: Final = 50e-6
_SHORT: Final = 20  # A dataset of fewer batches is short


def assemble(run: Recorded, patch: Patch | None = None) -> Report:
    """Everything that the run's files say, as the report record. Pure."""
    plan, environment, trials = run.plan, run.environment, run.trials
    diagnosis = build_diagnosis(trials, environment, seed=plan.seed)
    isolating = [trial for trial in trials if trial.spec.group is None]
    said = verdict(diagnosis).model_copy(
        update={"verdict_final_s": reports.verdict_final_s(isolating, diagnosis.bottleneck)}
    )
    arms = _arms(diagnosis)
    compared = _compared(plan, trials, len(arms))
    evidence = diagnosis.evidence
    modes = mode_arms(trials, diagnosis, np.random.default_rng(plan.seed))
    fixes, optimized = fix_section(run, diagnosis, patch)
    tried = tried_fixes(fixes)
    measured = gains(fixes, compared.arms if compared else (), plan.accelerator.label)
    against = contradiction(diagnosis, measured)
    record = Report(
        **reports.shared(run),
        target=reports.target(plan, trials),
        verdict=said,
        findings=tuple(sorted(with_fixes(find(replace(evidence, fixes=tried)), fixes), key=worth)),
        oscillation=diagnosis.evidence.oscillation,
        arms=(*arms, *(compared.arms if compared else ()), *modes),
        aa=compared.aa if compared else AA(),
        disturbance=disturbance_of(trials),
        accelerator=reports.accelerator(plan.accelerator, diagnosis.accelerator_utilization),
        ladder=_ladder(diagnosis, trials),
        warm_up=_warm_up(diagnosis),
        overhead=reports.overhead(evidence.ladder, evidence.wall_s, limit_s_per_step=_OVERHEAD_S),
        readings=_readings(diagnosis),
        pipeline=diagnosis.evidence.pipeline.model_dump(mode="json") if diagnosis.evidence.pipeline else None,
        leaving=leaving(evidence.pipeline) if evidence.pipeline else None,
        predictions=beside(evidence.predictions, tried),
        step=step_section(diagnosis.evidence),
        profile=profile_section(trials, said, environment),
        warnings=tuple(dict.fromkeys(filter(None, (against, *_warnings(diagnosis, trials))))),
        notes=_notes(diagnosis, trials),
        parity=compared.parity if compared else None,
        comparison=compared.sentences if compared else (),
        fixes=fixes,
        optimized=optimized,
    )
    unmeasured = reasons(record, diagnosis, plan, trials) | missing_predictions(record.predictions)
    return record.model_copy(update={"unmeasured": unmeasured | dict(compared.unmeasured if compared else {})})


def _compared(plan: RunPlan, trials: Sequence[TrialRecord], first_arm: int) -> ComparedVariants | None:
    """The configurations that were compared after the verdict, or ``None`` where none was begun."""
    if plan.comparison is None or not any(trial.spec.group == plan.comparison.name for trial in trials):
        return None
    return compare(plan.comparison, trials, first_arm=first_arm)


def _ladder(diagnosis: Diagnosis, trials: Sequence[TrialRecord]) -> tuple[Experiment, ...]:
    if not diagnosis.figures:
        return ()
    pooled = {"as_is": "wall_s", "input_only": "input_alone_s", "step_only": "alone_s"}
    times = {name: diagnosis.figures[of].estimate() for name, of in pooled.items() if of in diagnosis.figures}
    times |= {mode.name: mode.time_s for mode in diagnosis.evidence.modes.values() if mode.time_s is not None}

    def experiment(name: str, time_s: Estimate) -> Experiment:
        as_given = [trial for trial in trials if trial.spec.kind in MAIN_KINDS]
        ran = as_given if name in pooled else tried(trials, KIND_OF.get(name, "script"), name)
        own = [found for trial in ran if (found := trial.segment(name)) is not None]
        rows = [steps for trial in trials if name == "input_only" and (steps := measured(trial, name)) is not None]
        return Experiment(
            name=name,
            what=_WHAT.get(name, f"the step on cached batches, {name}") + _with_starts(rows),
            step_time_s=time_s,
            steps=sum(segment.steps - segment.warmup_steps for segment in own),
            processes=len(own),
        )

    return tuple(experiment(name, time_s) for name, time_s in times.items())


def _with_starts(rows: Sequence[Steps]) -> str:
    """Clause on batches that begin an epoch, and the mean without them; empty where they hardly change that."""
    begins = np.concatenate([np.zeros(0, bool), *(np.diff(one.epoch, prepend=one.epoch[:1]) > 0 for one in rows)])
    if not begins.any() or begins.all():
        return ""
    wall_s = np.concatenate([steps.wall_s for steps in rows])
    others_s = float(wall_s[~begins].mean())
    if others_s > _HARDLY * float(wall_s.mean()):
        return ""
    count, of = int(begins.sum()), len(begins)
    begin = "begins" if count == 1 else "begin"
    return f"; {count} of its {of:,} batches {begin} an epoch, and the others take {duration(others_s)}"


_HARDLY: Final = 0.9
_WHAT: Final = {
    "as_is": "the target as it is",
    "input_only": "the input without a step",
    "step_only": "the step on cached batches",
}


def _arms(diagnosis: Diagnosis) -> tuple[Variant, ...]:
    evidence = diagnosis.evidence
    if not diagnosis.figures:
        return ()
    given = Variant(
        id="as-given",
        role="baseline",
        config={"mode": evidence.given_mode} if evidence.has_step else {},
        blocks=len(evidence.ladder),
        status="ok",
        step_time_s=diagnosis.figures["wall_s"].estimate(),
        throughput_per_s=diagnosis.throughput_per_s,
    )
    return (given,)


def _warm_up(diagnosis: Diagnosis) -> WarmUp:
    evidence = diagnosis.evidence
    if not evidence.ladder or evidence.steady is None or evidence.steps is None:
        return WarmUp(reason=diagnosis.why_undecided)
    return reports.warm_up(evidence.ladder[0], evidence.steps, evidence.steady)


def _readings(diagnosis: Diagnosis) -> dict[str, Any]:
    evidence = diagnosis.evidence
    found = reports.readings_beside(next(iter(evidence.ladder), None))
    if found and evidence.steps is not None:
        found.get("host", {}).pop("cpu_s_per_step", None)  # which counts what is measured between the steps as well
        found["cpu_s_per_step"] = float(evidence.steps.cpu_s.mean())
        found["share_of_allowed_cpus"] = evidence.facts.cores_busy
    return found


def _warnings(diagnosis: Diagnosis, trials: Sequence[TrialRecord]) -> Iterator[str | None]:
    """Cautions: the target's own trials that did not end well, and files that a script's run changed for good."""
    yield from reports.endings([trial for trial in trials if trial.spec.kind in MAIN_KINDS], notes=False)
    yield from (note for trial in trials for note in trial.notes if note.startswith("--assume-pure "))
    script = diagnosis.evidence.script
    if script is not None and not script.in_memory:
        yield said_writes(script)


def _notes(diagnosis: Diagnosis, trials: Sequence[TrialRecord]) -> tuple[str, ...]:
    """Remarks that change nothing: what unsettles a verdict is in its probability, its interval and its sentence."""
    evidence, found = diagnosis.evidence, reports.endings(trials)
    if evidence.script is not None and evidence.script.in_memory and (said := said_writes(evidence.script)):
        found.append(said)
    if (batches := min(map(batches_per_epoch, evidence.ladder), default=math.inf)) < _SHORT:
        found.append(
            f"the dataset is short ({batches:.0f} batches): it is begun again and again, and that is in the times"
        )
    told = set(_warnings(diagnosis, trials))
    return tuple(dict.fromkeys(one for one in found if one not in told))


def reasons(record: Report, diagnosis: Diagnosis, plan: RunPlan, trials: Sequence[TrialRecord]) -> dict[str, str]:
    """A reason for every null that could have been a number."""
    found = dict(diagnosis.unmeasured)
    why = diagnosis.why_undecided or "not measured"
    verdict_why = {"accelerator_utilization": why if plan.accelerator.kind == "emulated" else _no_utilization(record)}
    found |= nulls("verdict", record.verdict, verdict_why, default=why)
    for index, finding in enumerate(record.findings):
        unverified = _unverified(finding, record, plan)
        speeds = {"predicted_speedup": "the model says nothing of it"}
        names = ("predicted_speedup", "verified_speedup")
        found |= nulls(f"findings.{index}", finding, speeds, only=names, default=unverified)
    for index, arm in enumerate(record.arms):
        if arm.role == "candidate":
            why_not = "it was not compared in rounds of its own"
            found |= nulls(f"arms.{index}", arm, why_not, only=("decision",))
        absent = arm.status if arm.status != "ok" else "not part of this comparison"
        own = {"effect": BASELINE} if arm.role == "baseline" else {}
        found |= nulls(f"arms.{index}", arm, own, but=("decision",), default=absent)
    found |= nulls(
        "aa", record.aa, "nothing was measured twice; the uncertainty is the spread over processes and steps"
    )
    found = nulls("oscillation", record.oscillation, why if not diagnosis.figures else "no period at 1 %") | found
    no_trace = "there is no step to trace or compile" if diagnosis.figures else why
    found |= nulls("warm_up", record.warm_up, no_trace, but=("reason",))
    if record.pipeline is None:
        found["pipeline"] = "the trial that reads the graph was not run or failed"
    for index, op in enumerate((record.pipeline or {}).get("ops", ())):
        if op["cost_s"] is None:
            found[f"pipeline.ops.{index}.cost_s"] = (record.pipeline or {}).get("costs_from") or "not read"
    if record.leaving is not None and record.leaving.share is None:
        found["leaving.share"] = record.leaving.refused or "costs of ops were not measured"
    if record.profile is None:
        found["profile"] = (
            "the trial ended before its steps were profiled" if plan.profile else "ask for one with --profile"
        )
    if diagnosis.evidence.facts.has_step and not (diagnosis.evidence.devices and diagnosis.evidence.devices.gpus):
        found["verdict.attribution_s.transfer"] = "no device boundary to cross: the processor is the device, so it is 0"
    found |= reports.unread(record.disturbance)
    if not record.overhead:
        found["overhead"] = why
    found |= _of_fixes(record)
    for name in skipped(trials, diagnosis) if plan.kind == "diagnose" else ():
        found[f"trials.{name}"] = f"no time for it within the budget of {plan.budget_s:g} s"
    return found


def _no_utilization(record: Report) -> str:
    if record.environment.get("gpus"):
        return "the driver gave no utilization samples during the steps"
    return "no accelerator: the processor is the device; --accelerator emulated:MS shows the input side of one"


def _of_fixes(record: Report) -> dict[str, str]:
    found: dict[str, str] = {}
    for index, fix in enumerate(record.fixes):
        path, why = f"fixes.{index}", {"predicted_speedup": "the model says nothing of it"}
        why["patch"] = "a patch is written for what is proposed in the end"
        names = ("predicted_speedup", "verified_speedup", "step_time_s", "decision", "evidence", "semantics", "patch")
        found |= nulls(path, fix, why, only=names, default=fix.why)
        if fix.semantics is not None and fix.semantics.equivalent is None:
            found[f"{path}.semantics.equivalent"] = fix.semantics.sentence
        if fix.patch is not None:
            ran = fix.patch.why_not or "the patched source was run"
            found |= nulls(f"{path}.patch", fix.patch, ran, only=("equivalent", "verified_speedup", "why_not"))
    if record.optimized is not None:
        found |= nulls("optimized", record.optimized, {}, default="no fix was accepted")
    elif record.kind in ("diagnose", "optimize"):
        found["optimized"] = "no fix was to be measured"
    return found


def _unverified(finding: Finding, record: Report, plan: RunPlan) -> str:
    """Why a finding has no verified fix, or none whose data could be told."""
    if (why := plan.why_unverified) is not None:
        return why
    fix = mending(finding.rule, record.fixes)
    return "no fix of its own was measured" if fix is None else f"{fix.words}: {fix.why}"
