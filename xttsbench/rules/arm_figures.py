"""What one arm gives and costs over its processes: step time, rates, waits, spread, utilization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.oscillation import robust_cv
from xttsbench.analysis.pooling import Columns, Statistic, mean_of, pool
from xttsbench.analysis.readings import gpu_samples
from xttsbench.analysis.steps import Steps
from xttsbench.records.base import Estimate
from xttsbench.rules.arm_effects import throughput
from xttsbench.rules.arm_runs import ArmRuns, GroupRuns

EMULATED: Final = "emulated accelerator"
GPU: Final = "GPU (driver)"
PROCESSOR: Final = "processor: share of the wall time inside the step"

_COLUMNS: Final = ("wall_s", "wait_s", "emulated_s", "step_s", "batch_size", "valid_frames")


def _over_wall(name: str) -> Statistic:
    def of(columns: Columns) -> npt.NDArray[np.float64]:
        return np.asarray(columns[name].sum(axis=1) / columns["wall_s"].sum(axis=1))

    return of


_STATISTICS: Final[dict[str, Statistic]] = {
    "step_time_s": mean_of("wall_s"),
    "throughput_per_s": throughput,
    "valid_frames_per_s": _over_wall("valid_frames"),
    "input_wait_fraction": _over_wall("wait_s"),
    "emulated": _over_wall("emulated_s"),
    "in_step": _over_wall("step_s"),
}


@dataclass(frozen=True)
class Figures:
    """Fields of :class:`xttsbench.records.report.Arm`; ``reasons`` says why one is missing, where that is its own."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)


def figures_of(runs: ArmRuns, group: GroupRuns, rng: np.random.Generator) -> Figures:
    """The figures of an arm; without a process that ended well there are none."""
    if not runs.steps:
        return Figures()
    series = list(runs.steps.values())
    pooled = _pooled(series, rng)
    utilization, of, why = _utilization(runs, group, pooled, rng)
    fields: dict[str, Any] = {name: pooled.get(name) for name in _STATISTICS if name not in ("emulated", "in_step")}
    fields |= {
        "utilization": utilization,
        "utilization_of": of,
        "padding_efficiency": _padding_efficiency(series),
        "cv": float(np.mean([robust_cv(steps.wall_s) for steps in series])),
        "std_over_mean": float(np.mean([_std_over_mean(steps) for steps in series])),
    }
    return Figures(fields, {"utilization": why} if why else {})


def _pooled(series: Sequence[Steps], rng: np.random.Generator) -> dict[str, Estimate]:
    columns = [{name: np.asarray(getattr(steps, name), dtype=np.float64) for name in _COLUMNS} for steps in series]
    framed = any(column["valid_frames"].any() for column in columns)
    wanted = {name: of for name, of in _STATISTICS.items() if framed or name != "valid_frames_per_s"}
    return {name: pooled.estimate() for name, pooled in pool(columns, wanted, rng).items()}


def _utilization(
    runs: ArmRuns, group: GroupRuns, pooled: Mapping[str, Estimate], rng: np.random.Generator
) -> tuple[Estimate | None, str, str | None]:
    """How busy the accelerator was, of what that is, and why it is not known where it is not.

    Emulated: its time over the wall time, first step excluded (MLPerf Storage). A GPU: the driver's own samples.
    Without either the processor is the device, and the share of the time inside the step stands for it.
    """
    if group.accelerator.step_times_ms:
        return pooled["emulated"], EMULATED, None
    if any(trial.devices is not None and trial.devices.gpus for trial in runs.trials.values()):
        busy = [{"wall_s": samples} for trial in runs.trials.values() if len(samples := gpu_samples(trial))]
        if not busy:
            return None, GPU, "the driver gave no utilization samples during the steps"
        return pool(busy, {"mean": mean_of("wall_s")}, rng)["mean"].estimate(), GPU, None
    if not runs.has_step:
        return None, "", "there is no step, so nothing that could be busy"
    return pooled["in_step"], PROCESSOR, None


def _padding_efficiency(series: Sequence[Steps]) -> float | None:
    """Valid frames over padded ones, of all steps; ``None`` where the workload does not say."""
    padded = sum(int(steps.frames.sum()) for steps in series)
    valid = sum(int(steps.valid_frames.sum()) for steps in series)
    return valid / padded if padded and valid else None


def _std_over_mean(steps: Steps) -> float:
    return float(steps.wall_s.std(ddof=1) / steps.wall_s.mean()) if len(steps) > 1 else 0.0
