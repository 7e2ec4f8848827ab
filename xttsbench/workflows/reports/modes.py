"""The modes of the step as arms of a group of their own: the step alone, on batches in memory, beside itself as given.

The trials are those of the ladder's rungs ``eager``, ``graph``, ``xla`` and ``precision``; each ran the step as given
in the same process, so that the two are paired. Times and rates are those of the step as given in the main trials, at
that ratio: other processes, on other batches, would contradict it. Half a batch is other work and no arm. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from xttsbench.analysis.pooling import Columns, Statistic, mean_of, pool
from xttsbench.analysis.steps import Steps, measured
from xttsbench.analysis.variation import robust_cv
from xttsbench.evidence.evidence import Compared
from xttsbench.evidence.step import tried
from xttsbench.records.base import Estimate
from xttsbench.records.report import Arm
from xttsbench.records.trial import HALF_BATCH, KIND_OF, MAIN_KINDS, NOT_APPLICABLE, TrialRecord

GROUP: Final = "modes of the step"
LABEL: Final = "real device; the step alone, on batches in memory"


def mode_arms(
    trials: Sequence[TrialRecord], modes: Mapping[str, Compared], given: str | None, rng: np.random.Generator
) -> tuple[Arm, ...]:
    """Return the step as given, then each mode that was tried; nothing where none was.

    Args:
        trials: of the run.
        modes: what :func:`xttsbench.evidence.step.modes` makes of them.
        given: the mode that the step has as given, where it is known.
        rng: for the intervals.
    """
    modes = {name: mode for name, mode in modes.items() if name != HALF_BATCH and mode.status != NOT_APPLICABLE}
    if not modes:
        return ()
    rungs = {KIND_OF[name] for name in modes}
    alone = [trial for trial in trials if trial.segment("step_only") is not None]
    main = [trial for trial in alone if trial.spec.rung in MAIN_KINDS]
    beside = main or [trial for trial in alone if trial.spec.rung in rungs]
    config = {"mode": given, "measured": "step alone"}
    baseline = _arm(f"step:{given or 'as-given'}", "baseline", config, beside, "step_only", rng)
    arms = [baseline]
    for name, compared in modes.items():
        own = tried(trials, KIND_OF[name], name)
        arm = _arm(f"step:{name}", "candidate", {"mode": name, "measured": "step alone"}, own, name, rng)
        status = compared.status if compared.cause is None else f"{compared.status}: {compared.cause}"
        arms.append(
            arm.model_copy(
                update={
                    "blocks": compared.processes,
                    "status": status,
                    "step_time_s": compared.time_s,
                    "throughput_per_s": _times(baseline.throughput_per_s, compared.speedup),
                    "valid_frames_per_s": _times(baseline.valid_frames_per_s, compared.speedup),
                    "effect": compared.speedup,
                    "decision": None if compared.speedup is not None else "ended",
                }
            )
        )
    return tuple(arms)


def _times(rate: Estimate | None, speedup: Estimate | None) -> Estimate | None:
    if rate is None or speedup is None:
        return None
    return Estimate(
        estimate=rate.estimate * speedup.estimate, low=rate.estimate * speedup.low, high=rate.estimate * speedup.high
    )


def _arm(
    name: str,
    role: Any,
    config: dict[str, Any],
    trials: Sequence[TrialRecord],
    segment: str,
    rng: np.random.Generator,
) -> Arm:
    """Return the arm with its figures; compilation that recurs is left out, as in the comparison of the modes."""
    series = [steps for trial in trials if (steps := measured(trial, segment)) is not None]
    arm = Arm(id=name, role=role, config=config, group=GROUP, accelerator=LABEL, blocks=len(series), status="ok")
    if not series:
        return arm
    columns = [_columns(steps) for steps in series]
    framed = any(column["valid_frames"].any() for column in columns)
    wanted: dict[str, Statistic] = {"step_time_s": mean_of("wall_s"), "throughput_per_s": throughput}
    if framed:
        wanted["valid_frames_per_s"] = lambda own: np.asarray(
            own["valid_frames"].sum(axis=1) / own["wall_s"].sum(axis=1)
        )
    padded = sum(int(steps.frames.sum()) for steps in series)
    valid = sum(int(steps.valid_frames.sum()) for steps in series)
    return arm.model_copy(
        update={
            **{key: found.estimate() for key, found in pool(columns, wanted, rng).items()},
            "padding_efficiency": valid / padded if framed and padded else None,
            "cv": float(np.mean([robust_cv(column["wall_s"]) for column in columns])),
            "steps": sum(len(steps) for steps in series),
        }
    )


def _columns(steps: Steps) -> dict[str, Any]:
    return {
        "wall_s": steps.working_s,
        "batch_size": steps.batch_size.astype(np.float64),
        "valid_frames": steps.valid_frames.astype(np.float64),
    }


def throughput(columns: Columns) -> np.ndarray[Any, Any]:
    """Samples (or steps, without a batch dimension) per second, for columns of shape (resamples, steps)."""
    samples = columns["batch_size"].sum(axis=1)
    counted = np.where(samples > 0, samples, columns["batch_size"].shape[1])
    return np.asarray(counted / columns["wall_s"].sum(axis=1))
