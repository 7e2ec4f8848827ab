"""The report of each kind of run from its files; here what does not depend on what was asked. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from xttsbench.analysis.readings import measured_span, summarise
from xttsbench.analysis.steps import SteadyState, Steps
from xttsbench.records.base import Estimate
from xttsbench.records.plan import Accelerator, RunPlan
from xttsbench.records.report import Disturbance, WarmUp
from xttsbench.records.trial import MAIN_KINDS, TrialRecord
from xttsbench.workflows.measure.recorded import Recorded

CERTIFIED_STEPS: Final = 240
PASS_MARK: Final = 0.90
_OF_A_TRIAL: Final = ("status", "cause", "duration_s")


def shared(run: Recorded) -> dict[str, Any]:
    """Fields of every report that the run's files give as they are."""
    plan = run.plan
    return {
        "kind": plan.kind,
        "command": plan.command,
        "created_utc": plan.created_utc,
        "environment": dict(run.environment),
        "trials": tuple(
            {"id": one.spec.trial_id, "block": one.spec.block} | {name: getattr(one, name) for name in _OF_A_TRIAL}
            for one in run.trials
        ),
    }


def target(plan: RunPlan, trials: Sequence[TrialRecord]) -> dict[str, Any]:
    """Measured target, and its failure where it failed."""
    # What an experiment with the target raises is the experiment's.
    own = [trial for trial in trials if trial.spec.fix is None and not trial.spec.patched]
    failed = next((trial for trial in own if trial.status not in ("ok", "skipped")), None)
    script = next((trial.script for trial in trials if trial.script is not None), None)
    of_script = {"arguments": list(plan.arguments), **script.model_dump(mode="json")} if script is not None else {}
    return {
        "name": plan.target,
        "kwargs": plan.kwargs,
        "kind": next((trial.target_kind for trial in trials if trial.target_kind), None),
        "setup_s": next((trial.setup_s for trial in trials if trial.setup_s is not None), None),
        "status": failed.status if failed else "ok",
        "error": failed.error.model_dump(mode="json") if failed and failed.error else None,
        **of_script,
    }


def accelerator(used: Accelerator, utilization: Estimate | None) -> dict[str, Any]:
    """``kind`` and ``label`` as promised, plus how the utilization is defined."""
    found: dict[str, Any] = {"kind": used.kind, "label": used.label}
    if used.kind == "emulated":
        times = used.step_times_ms
        found |= {
            "definition": "compute time over wall time, first step excluded (MLPerf Storage); pass mark 90 %",
            "passes": utilization.estimate >= PASS_MARK if utilization else None,
            "mean_step_ms": sum(times) / len(times),
            "source": used.source,
        }
    return found


def warm_up(trial: TrialRecord, steps: Steps, steady: SteadyState) -> WarmUp:
    """Steps of a trial before its steady state."""
    before = trial.segment("warm_up")
    first = before or trial.segment("as_is")
    walls = first.columns.get("wall_ns") if first else None
    sums = {name: sum(values) for name, values in before.columns.items()} if before is not None else None
    return cut(steps, steady).model_copy(
        update={
            "first_step_s": walls[0] / 1e9 if walls else None,
            "trace_s": sums["trace_ns"] / 1e9 if sums else None,
            "traces": sums["traces"] if sums else None,
            "xla_compile_s": sums["xla_ns"] / 1e9 if sums else None,
            "xla_compiles": sums["xla_compiles"] if sums else None,
        }
    )


def cut(steps: Steps, steady: SteadyState) -> WarmUp:
    """Steps that were cut off before the steady state, and whether that is certified."""
    count = len(steps)
    few = f"{count} steady steps, and {CERTIFIED_STEPS} are needed for that" if count < CERTIFIED_STEPS else None
    return WarmUp(
        steps_cut=steady.cut,
        steady_state=steady.steady,
        steps_measured=count,
        certified=steady.steady and few is None,
        reason=steady.reason or few,
    )


def overhead(trials: Sequence[TrialRecord], step_s: float | None, **more: float) -> dict[str, Any]:
    """Measurement overhead of the first trial that knows it, beside the mean step; empty where none does."""
    found = next((trial.overhead for trial in trials if trial.overhead is not None), None)
    if found is None:
        return {}
    share = found.overhead_s / step_s if step_s else None
    return {"overhead_s_per_step": found.overhead_s, "share_of_step": share, **more, "method": found.method}


def readings_beside(trial: TrialRecord | None) -> dict[str, Any]:
    """Summary of the host and GPU readings while the target ran as it is; empty where it did not."""
    span = measured_span(trial) if trial else None
    return {} if trial is None or span is None else summarise(trial.readings, span)


def unread(disturbance: Disturbance | None) -> dict[str, str]:
    """A reason for what is not known of the neighbours."""
    if disturbance is None:
        return {"disturbance": "the processor's counters were not read beside anything that was measured"}
    if disturbance.throttled_share is None:
        return {"disturbance.throttled_share": "no processor quota is set, or the kernel does not count its stops"}
    return {}


_DECIDING: Final = (*MAIN_KINDS, "graph", "pipeline", "arm")
"""Kinds of trials that a verdict may have waited for."""


def verdict_final_s(trials: Sequence[TrialRecord], bottleneck: str | None = None) -> float | None:
    """Seconds from the start of the first trial to the final verdict; ``None`` without trials.

    That is the look which named the ``bottleneck`` for good, or the end of the last trial that a verdict waits for.
    """
    if not trials:
        return None
    deciding = [trial for trial in trials if trial.spec.kind in _DECIDING] or trials
    looked = [trial for trial in deciding if trial.looks]
    final = [one for one in looked[-1].looks if one.final and one.bottleneck == bottleneck] if looked else []
    last, after_s = (looked[-1], final[0].after_s) if final else (deciding[-1], deciding[-1].duration_s)
    began, then = datetime.fromisoformat(trials[0].started_utc), datetime.fromisoformat(last.started_utc)
    return (then - began).total_seconds() + after_s


def endings(trials: Sequence[TrialRecord], *, notes: bool = True) -> list[str]:
    """Failures of trials and, where wanted, notes of any trial; one sentence each."""
    found = []
    for trial in trials:
        if trial.status not in ("ok", "skipped"):
            found.append(f"trial {trial.spec.trial_id} ended as {trial.status}: {trial.cause}")
        said, arm = trial.notes if notes else (), trial.spec.fix or (trial.spec.arm if trial.spec.patched else None)
        found += (f"with {arm}: {note}" if arm else note for note in said)
    return [*{re.sub(r"[\d.]+ s\b", "", one): one for one in reversed(found)}.values()][::-1]  # each once
