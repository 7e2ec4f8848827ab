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


def shared(run: Recorded) -> dict[str, Any]:
    """Fields of every report that the run's files give as they are."""
    plan = run.plan
    return {
        "kind": plan.kind,
        "command": plan.command,
        "created_utc": plan.created_utc,
        "environment": dict(run.environment),
        "trials": _rows_of(run.trials),
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


def why_not_certified(steps: int) -> str | None:
    """Why so many steps certify no steady state; ``None`` where they are enough."""
    return f"{steps} steady steps, and {CERTIFIED_STEPS} are needed for that" if steps < CERTIFIED_STEPS else None


def warm_up(trial: TrialRecord, steps: Steps, steady: SteadyState) -> WarmUp:
    """Steps of a trial before its steady state."""
    before = trial.segment("warm_up")
    first = before or trial.segment("as_is")
    columns = first.columns if first else {}

    def total(name: str) -> int | None:
        return sum(before.columns.get(name, ())) if before is not None else None

    def seconds(name: str) -> float | None:
        found = total(name)
        return None if found is None else found / 1e9

    count = len(steps)
    return WarmUp(
        first_step_s=columns["wall_ns"][0] / 1e9 if columns.get("wall_ns") else None,
        steps_cut=steady.cut,
        steady_state=steady.steady,
        steps_measured=count,
        certified=steady.steady and count >= CERTIFIED_STEPS,
        reason=steady.reason or why_not_certified(count),
        trace_s=seconds("trace_ns"),
        traces=total("traces"),
        xla_compile_s=seconds("xla_ns"),
        xla_compiles=total("xla_compiles"),
    )


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


def _rows_of(trials: Sequence[TrialRecord]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "id": trial.spec.trial_id,
            "block": trial.spec.block,
            "status": trial.status,
            "cause": trial.cause,
            "duration_s": trial.duration_s,
        }
        for trial in trials
    )
