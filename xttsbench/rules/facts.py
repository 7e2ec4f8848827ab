"""What is known of a step besides its times: eager or compiled, opaque, how much of it is the host's own work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from xttsbench.analysis.attribution import StepFacts
from xttsbench.analysis.steps import Steps
from xttsbench.records.pipeline import Pipeline
from xttsbench.records.trial import Anatomy, TrialRecord

EAGER_OPS: Final = 10
"""A step with this many eager ops and calls of tf.functions is dispatched from Python."""
OPAQUE_SHARE: Final = 0.20
"""A step without tf.functions and with less than this share of its time in TensorFlow does its work elsewhere."""
OCCASIONAL: Final = 0.50
"""A line that fewer of the steps reach is occasional work: a checkpoint, a log line, a figure."""
_FEW_SAMPLES: Final = 20


def step_facts(
    ladder: Sequence[TrialRecord],
    series: Sequence[Steps],
    anatomy: Anatomy | None,
    pipeline: Pipeline | None,
    environment: Mapping[str, Any],
    *,
    has_step: bool,
) -> StepFacts:
    """Gather the facts from the anatomy of the step and the readings of the trials.

    Args:
        ladder: the trials that gave ``series``, the steady steps of the target as it is.
        anatomy, pipeline: as read, or ``None`` where they were not.
        environment: with ``cpu.allowed_cpus``.
        has_step: whether the target has a step at all.
    """
    handoffs = [trial.handoff_s for trial in ladder if trial.handoff_s is not None]
    transfers = [trial.transfer_s for trial in ladder if trial.transfer_s is not None]
    eager, opaque = is_eager(anatomy), is_opaque(anatomy)
    return StepFacts(
        has_step=has_step,
        eager=eager,
        opaque=opaque,
        host_share=_host_share(anatomy, eager=eager, opaque=opaque),
        dispatch_floor_s=anatomy.eager_ops_per_step * anatomy.op_floor_s if anatomy else 0.0,
        handoff_s=float(np.mean(handoffs)) if handoffs else 0.0,
        transfer_s=float(np.mean(transfers)) if transfers else 0.0,
        cores_busy=_cores_busy(series, environment),
        holds_gil=any(function.gil == "holds" for function in (pipeline.python_functions if pipeline else ())),
    )


def is_eager(anatomy: Anatomy | None) -> bool:
    """Whether the step is dispatched op by op (or by many small tf.functions) from Python."""
    return anatomy is not None and anatomy.eager_ops_per_step + anatomy.function_calls_per_step >= EAGER_OPS


def is_opaque(anatomy: Anatomy | None) -> bool:
    """Whether the step does its work outside TensorFlow: it sleeps, or computes elsewhere."""
    if anatomy is None or anatomy.function_calls_per_step > 0 or is_eager(anatomy):
        return False
    inside = sum(anatomy.kinds.get(kind, 0.0) for kind in ("tensorflow", "function"))
    return inside < OPAQUE_SHARE


def _host_share(anatomy: Anatomy | None, *, eager: bool, opaque: bool) -> float:
    """Share of the base time (see :func:`xttsbench.analysis.attribution.attribute`) that is the host's own work."""
    if anatomy is None:
        return 0.0
    if opaque:
        return sum(line.share for line in anatomy.lines if line.steps_share < OCCASIONAL and anatomy.steps >= 8)
    own = anatomy.kinds.get("python", 0.0) + anatomy.kinds.get("io", 0.0)
    if eager:
        return own
    # Compiled: the base is the time outside its functions, all of which is the host's unless it launches ops there.
    launched = anatomy.kinds.get("tensorflow", 0.0)
    if own + launched <= 0 or anatomy.samples < _FEW_SAMPLES:
        return 1.0
    return own / (own + launched)


def _cores_busy(series: Sequence[Steps], environment: Mapping[str, Any]) -> float | None:
    """Share of the allowed cores that the process used over the steady steps."""
    cpu = environment.get("cpu")
    allowed = cpu.get("allowed_cpus") if isinstance(cpu, Mapping) else None
    wall_s = sum(float(steps.wall_s.sum()) for steps in series)
    if not allowed or wall_s <= 0:
        return None
    return sum(float(steps.cpu_s.sum()) for steps in series) / wall_s / float(allowed)
