"""Modes of the step as configurations of a report: as given, op by op, as one graph, through XLA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from xttsbench.analysis.pooling import Columns, Statistic, mean_of, pool
from xttsbench.analysis.steps import Steps, measured
from xttsbench.analysis.variation import robust_cv
from xttsbench.diagnosis import Diagnosis
from xttsbench.evidence import Compared
from xttsbench.evidence.step import tried
from xttsbench.records.base import Estimate
from xttsbench.records.report import Variant
from xttsbench.records.trial import HALF_BATCH, KIND_OF, MAIN_KINDS, NOT_APPLICABLE, TrialRecord

GROUP: Final = "modes of the step"
LABEL: Final = "real device; the step alone, on batches in memory"


def mode_arms(trials: Sequence[TrialRecord], diagnosis: Diagnosis, rng: np.random.Generator) -> tuple[Variant, ...]:
    """Return the step as given, then each mode that was tried; nothing where none was.

    The time of the step as given is that of the step alone, as all else in a report has it.
    """
    given, every = diagnosis.evidence.given_mode, diagnosis.evidence.modes
    modes = {name: mode for name, mode in every.items() if name != HALF_BATCH and mode.status != NOT_APPLICABLE}
    if not modes:
        return ()
    kinds = {KIND_OF[name] for name in modes}
    alone = [trial for trial in trials if trial.segment("step_only") is not None]
    main = [trial for trial in alone if trial.spec.kind in MAIN_KINDS]
    beside = main or [trial for trial in alone if trial.spec.kind in kinds]
    config = {"mode": given, "measured": "step alone"}
    baseline = _arm(f"step:{given or 'as-given'}", "baseline", config, beside, "step_only", rng)
    if (time := diagnosis.figures.get("alone_s")) is not None and baseline.step_time_s is not None:
        by = Estimate.exactly(baseline.step_time_s.estimate / time.value)
        rates = {name: _times(getattr(baseline, name), by) for name in ("throughput_per_s", "valid_frames_per_s")}
        baseline = baseline.model_copy(update={"step_time_s": time.estimate(), **rates})
    arms = [baseline]
    for name, compared in modes.items():
        own = tried(trials, KIND_OF[name], name)
        arm = _arm(f"step:{name}", "candidate", {"mode": name, "measured": "step alone"}, own, name, rng)
        arms.append(
            arm.model_copy(
                update={
                    "blocks": compared.processes,
                    "status": status_of(compared),
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
) -> Variant:
    """Return the configuration with its figures; compilation that recurs is left out, as among modes."""
    series = [steps for trial in trials if (steps := measured(trial, segment)) is not None]
    arm = Variant(id=name, role=role, config=config, group=GROUP, accelerator=LABEL, blocks=len(series), status="ok")
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


def status_of(compared: Compared) -> str:
    """``ok``, or how the trials of a mode ended, with the cause."""
    return compared.status if compared.cause is None else f"{compared.status}: {compared.cause}"
