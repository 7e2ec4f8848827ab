"""What the model of throughput takes from the evidence beside a pipeline's stages: the step and the machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xttsbench.analysis.steps import Steps, measured
from xttsbench.evidence.evidence import Evidence, allowed_cpus
from xttsbench.records.pipeline import Pipeline
from xttsbench.throughput.pace import Consumer, Machine, Pace, pace
from xttsbench.throughput.stages import stages
from xttsbench.throughput.threads import pool_size


def pipeline_pace(pipeline: Pipeline, step: Consumer, evidence: Evidence) -> Pace:
    """How fast a pipeline and a step go together on the machine of the evidence."""
    cpus = allowed_cpus(evidence)
    return pace(stages(pipeline, cpus), step, machine(pipeline, evidence))


def machine(pipeline: Pipeline, evidence: Evidence) -> Machine:
    """Processors with the quota considered, which may leave a fraction of one, and the pipeline's pool."""
    cpus = allowed_cpus(evidence)
    exact = evidence.known("cpu").get("allowed_cpus")
    return Machine(float(exact) if exact else float(cpus), pool_size(pipeline, cpus))


def consumer(evidence: Evidence, alone_s: float | None) -> Consumer:
    """The step as the model takes it; all zero but the hand-over where there is none.

    Args:
        evidence: with the trials of the main rung and what is known of the step.
        alone_s: mean step alone, emulated waits included; where that was not measured, the step beside its input is
            taken, which is longer where the two compete.
    """
    handoff_s = evidence.facts.handed_over_s
    if not evidence.has_step and not evidence.emulated:
        return Consumer(handoff_s=handoff_s)
    alone = [steps for trial in evidence.ladder if (steps := measured(trial, "step_only")) is not None]
    if alone_s is None and not evidence.has_step:
        # Known, where what was measured of it has also waited for the interpreter lock that the input holds.
        waits_ms = evidence.ladder[0].spec.emulated_ms if evidence.ladder else ()
        if waits_ms:
            return Consumer(float(np.mean(waits_ms)) / 1e3, handoff_s=handoff_s)
    if alone_s is None:
        beside = [steps for trial in evidence.ladder if (steps := measured(trial, "as_is")) is not None]
        alone_s = _mean([steps.working_s for steps in beside])
        # Beside the input only the thread that runs the steps is known to be the step's.
        main_s = _mean([steps.main_cpu_s for steps in beside])
        return Consumer(alone_s, min(main_s, alone_s), min(_lock_s(evidence, beside), alone_s), handoff_s)
    if not alone:
        return Consumer(alone_s, handoff_s=handoff_s)
    return Consumer(alone_s, _mean([steps.cpu_s for steps in alone]), min(_lock_s(evidence, alone), alone_s), handoff_s)


def _lock_s(evidence: Evidence, series: Sequence[Steps]) -> float:
    """The step's own Python: outside its tf.functions, on a processor, and not in the kernels of ops run one by one."""
    outside_s = _mean([steps.outside_s for steps in series])
    if evidence.facts.eager:
        outside_s = min(outside_s, evidence.facts.dispatch_floor_s + evidence.facts.host_share * outside_s)
    return min(outside_s, _mean([steps.main_cpu_s for steps in series]))


def _mean(series: Sequence[np.ndarray[tuple[int], np.dtype[np.float64]]]) -> float:
    return float(np.mean([one.mean() for one in series if len(one)])) if any(len(one) for one in series) else 0.0
