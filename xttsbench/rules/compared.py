"""Modes of the step and fixes of the pipeline beside the target as given, from the trials that ran them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.pooling import Columns, Pooled, interval_of, mean_of, pool
from xttsbench.analysis.steps import Steps, steady, steps_of
from xttsbench.records.base import Estimate
from xttsbench.records.trial import TrialRecord
from xttsbench.rules.evidence import Compared

FloatArray = npt.NDArray[np.float64]
MODES: Final = ("eager", "graph", "xla")
FETCHES_REMOVED: Final = "host reads removed"
"""How a note of the trial begins whose step had its fetches answered while it was traced."""


def working(trial: TrialRecord, segment_name: str, *, compiling: bool = False) -> Columns | None:
    """Step times of a segment on cached batches, without compilation unless asked for; ``None`` if there are none."""
    segment = trial.segment(segment_name)
    if segment is None or segment.steps <= segment.warmup_steps:
        return None
    steps = steps_of(segment)
    return {"wall_s": steps.step_s if compiling else steps.working_s}


def step_alone(trials: Sequence[TrialRecord], rng: np.random.Generator) -> Pooled | None:
    """Mean time of the step as given on cached batches, over the trials of the main rung."""
    found = [columns for trial in trials if (columns := working(trial, "step_only")) is not None]
    return pool(found, {"mean": mean_of("wall_s")}, rng)["mean"] if found else None


def input_alone(trials: Sequence[TrialRecord], rng: np.random.Generator) -> tuple[Pooled, Pooled] | None:
    """Without a step: the mean time for a batch, and its mean processor time."""
    found = []
    for trial in trials:
        segment = trial.segment("input_only") if trial.spec.rung == "input" else None
        if segment is not None and segment.steps > segment.warmup_steps:
            steps = steady(steps_of(segment))[0]
            found.append({"wall_s": steps.wall_s, "cpu_s": steps.cpu_s})
    if not found:
        return None
    pooled = pool(found, {"wall": mean_of("wall_s"), "cpu": mean_of("cpu_s")}, rng)
    return pooled["wall"], pooled["cpu"]


def compiled_gain(trials: Sequence[TrialRecord], rng: np.random.Generator) -> Pooled | None:
    """Seconds per step that one compiled graph saves of the step as given, paired within each process.

    The better of graph and XLA: what compiling the step would gain.
    """
    gains = []
    for mode in ("graph", "xla"):
        given, changed = _pairs(trials, mode, rng, compiling=True)
        if given is not None and changed is not None:
            gains.append(Pooled(given.value - changed.value, given.resamples - changed.resamples))
    return max(gains, key=lambda gain: gain.value, default=None)


def modes(trials: Sequence[TrialRecord], given_alone: Pooled | None, rng: np.random.Generator) -> dict[str, Compared]:
    """Each mode that was tried, with its speed-up over the step as given."""
    found = {}
    for mode in MODES:
        own = [trial for trial in trials if trial.spec.rung == mode]
        if not own:
            continue
        given, changed = _pairs(own, mode, rng)
        given = given or given_alone
        last = own[-1]
        warm_up = last.segment("warm_up")
        found[mode] = Compared(
            name=mode,
            status=last.status,
            cause=last.cause,
            time_s=changed.estimate() if changed else None,
            speedup=_ratio(given, changed),
            processes=len(own),
            compile_s=steps_of(warm_up).step_s.sum().item() if warm_up else None,
            fetches_removed=any(note.startswith(FETCHES_REMOVED) for trial in own for note in trial.notes),
        )
    return found


def fixes(trials: Sequence[TrialRecord], as_is: Pooled, rng: np.random.Generator) -> dict[str, Compared]:
    """Each fix that was tried, with its speed-up over the target as it is."""
    by_name: dict[str, list[TrialRecord]] = {}
    for trial in trials:
        if trial.spec.rung == "fix" and trial.spec.fix:
            by_name.setdefault(trial.spec.fix, []).append(trial)
    found = {}
    for name, own in by_name.items():
        walls = [{"wall_s": steps.wall_s} for trial in own if (steps := _steady_as_is(trial)) is not None]
        changed = pool(walls, {"mean": mean_of("wall_s")}, rng)["mean"] if walls else None
        found[name] = Compared(
            name=name,
            status=own[-1].status,
            cause=own[-1].cause,
            time_s=changed.estimate() if changed else None,
            speedup=_ratio(as_is, changed),
            processes=len(walls),
        )
    return found


def _pairs(
    trials: Sequence[TrialRecord], mode: str, rng: np.random.Generator, *, compiling: bool = False
) -> tuple[Pooled | None, Pooled | None]:
    """The step as given (with its compilation, if asked for) and in the mode, from the processes that ran the mode."""
    own = [trial for trial in trials if trial.spec.rung == mode]
    given = [columns for trial in own if (columns := working(trial, "step_only", compiling=compiling)) is not None]
    changed = [columns for trial in own if (columns := working(trial, mode)) is not None]
    statistics = {"mean": mean_of("wall_s")}
    return (
        pool(given, statistics, rng)["mean"] if given else None,
        pool(changed, statistics, rng)["mean"] if changed else None,
    )


def _steady_as_is(trial: TrialRecord) -> Steps | None:
    segment = trial.segment("as_is")
    if segment is None or segment.steps <= segment.warmup_steps:
        return None
    return steady(steps_of(segment))[0]


def _ratio(given: Pooled | None, changed: Pooled | None) -> Estimate | None:
    if given is None or changed is None or changed.value <= 0:
        return None
    return interval_of(given.value / changed.value, given.resamples / np.maximum(changed.resamples, 1e-12))
