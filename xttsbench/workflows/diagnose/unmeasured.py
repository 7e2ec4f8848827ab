"""A reason for every null of the report that could have been a number."""

from __future__ import annotations

from collections.abc import Sequence

from xttsbench.comparison.arms import ARM_NUMBERS
from xttsbench.diagnosis.diagnosis import Diagnosis, interim
from xttsbench.diagnosis.next_trial import skipped
from xttsbench.fixes.mending import mending
from xttsbench.records.plan import RunPlan
from xttsbench.records.report import Finding, Report
from xttsbench.records.trial import TrialRecord
from xttsbench.workflows.sections import unread


def reasons(record: Report, diagnosis: Diagnosis, plan: RunPlan, trials: Sequence[TrialRecord]) -> dict[str, str]:
    """A reason for every null that could have been a number."""
    found = dict(diagnosis.unmeasured)
    why = diagnosis.why_undecided or "not measured"
    for name in ("step_time_s", "step_time_median_s", "step_time_p95_s", "input_wait_fraction", "attribution_s"):
        if getattr(record.verdict, name) is None:
            found[f"verdict.{name}"] = why
    if record.verdict.accelerator_utilization is None:
        gpus = record.environment.get("gpus")
        found["verdict.accelerator_utilization"] = (
            why
            if plan.accelerator.kind == "emulated"
            else "the driver gave no utilization samples during the steps"
            if gpus
            else "no accelerator: the processor is the device; --accelerator emulated:MS shows the input side of one"
        )
    for index, finding in enumerate(record.findings):
        if finding.predicted_speedup is None:
            found[f"findings.{index}.predicted_speedup"] = "the fix was not tried in this run"
        if finding.verified_speedup is None:
            found[f"findings.{index}.verified_speedup"] = _unverified(finding, record, plan)
        if finding.equivalent is None:
            found[f"findings.{index}.equivalent"] = _unverified(finding, record, plan)
    for index, arm in enumerate(record.arms):
        if arm.decision is None and arm.role == "candidate":
            found[f"arms.{index}.decision"] = "it was not compared in rounds of its own"
        for name in ARM_NUMBERS:
            if getattr(arm, name) is None and not (arm.role == "baseline" and name == "effect"):
                found[f"arms.{index}.{name}"] = arm.status if arm.status != "ok" else "not part of this comparison"
    for name, value in record.aa:
        if value is None:
            found[f"aa.{name}"] = "the verdict has no A/A arm; its uncertainty is the spread over processes and steps"
    for name, value in record.oscillation:
        if value is None:
            found.setdefault(f"oscillation.{name}", why if not diagnosis.figures else "no period at 1 %")
    for name, value in record.warm_up:
        if value is None and name != "reason":
            found[f"warm_up.{name}"] = "there is no step to trace or compile" if diagnosis.figures else why
    if record.pipeline is None:
        found["pipeline"] = "the trial that reads the graph was not run or failed"
    for index, op in enumerate((record.pipeline or {}).get("ops", ())):
        if op["cost_s"] is None:
            found[f"pipeline.ops.{index}.cost_s"] = (record.pipeline or {}).get("costs_from") or "not read"
    if record.profile is None:
        found["profile"] = "ask for one with --profile"
    if diagnosis.evidence.facts.has_step and not (diagnosis.evidence.devices and diagnosis.evidence.devices.gpus):
        found["verdict.attribution_s.transfer"] = "no device boundary to cross: the processor is the device, so it is 0"
    found |= unread(record.disturbance)
    if record.verdict_after_s is None:
        found["verdict_after_s"] = "no trial was run"
    if not record.overhead:
        found["overhead"] = why
    found |= _of_fixes(record)
    for name in skipped(trials, interim(diagnosis)) if plan.kind == "diagnose" else ():
        found[f"trials.{name}"] = f"no time for it within the budget of {plan.budget_s:g} s"
    return found


def _of_fixes(record: Report) -> dict[str, str]:
    """A reason for every null of a fix's result: the outcome says why it was not verified."""
    found = {}
    for index, fix in enumerate(record.fixes):
        if fix.predicted_speedup is None:
            found[f"fixes.{index}.predicted_speedup"] = "the model says nothing of it"
        for name in ("verified_speedup", "step_time_s", "decision", "evidence", "semantics"):
            if getattr(fix, name) is None:
                found[f"fixes.{index}.{name}"] = fix.why
        if fix.semantics is not None and fix.semantics.equivalent is None:
            found[f"fixes.{index}.semantics.equivalent"] = fix.semantics.sentence
        if fix.patch is None:
            found[f"fixes.{index}.patch"] = "a patch is written for what is proposed in the end"
        else:
            for name in ("equivalent", "verified_speedup", "why_not"):
                if getattr(fix.patch, name) is None:
                    found[f"fixes.{index}.patch.{name}"] = fix.patch.why_not or "the patched source was run"
    if record.optimized is not None:
        for name, value in record.optimized:
            if value is None:
                found[f"optimized.{name}"] = "no cache on disk" if name == "cache_directory" else "no fix was accepted"
    elif record.kind in ("diagnose", "optimize"):
        found["optimized"] = "no fix was to be verified"
    return found


def _unverified(finding: Finding, record: Report, plan: RunPlan) -> str:
    """Why a finding has no verified fix, or none whose data could be told."""
    if not plan.verified:
        return "no verification was asked for"
    fix = mending(finding, record.fixes)
    return "there is no fix for it that could be verified" if fix is None else f"{fix.name}: {fix.why}"
