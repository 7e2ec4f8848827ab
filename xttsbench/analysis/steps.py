"""The steps of a segment as arrays in seconds, its warm-up cut off, and where their steady state begins.

The cut is MSER-5 (White 1997, "An effective truncation heuristic for bias reduction in simulation output"), on medians
of five of the log step time, so that a stall in the warm-up does not decide where it ends. The check that follows asks
whether what is left still becomes slower or faster, beyond what the lengths of its batches and chance explain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.variation import changed, drift, explain
from xttsbench.records.rows import COLUMNS, absent
from xttsbench.records.trial import Segment, TrialRecord

FloatArray = npt.NDArray[np.float64]
_DRAWN: Final = ("as_is", "between", "input_only")  # Segments whose batches are drawn from the dataset


class Steps:
    """The columns of :class:`xttsbench.records.rows.StepRow`, one entry per step; ``x_ns`` is ``x_s``, in seconds.

    ``compile_s`` is the part of a step that goes to tracing and compilation. TensorFlow's own clocks leave out graph
    optimisation and kernel set-up, so a step that traced or compiled is charged with all of its excess over the median
    step that did not, or with those clocks where every step compiles.
    """

    def __init__(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        self.columns = dict(columns)

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        columns: dict[str, npt.NDArray[Any]] = self.__dict__.get("columns", {})
        if name not in columns:
            raise AttributeError(f"steps have no column {name!r}; they have {', '.join(columns)}")
        return columns[name]

    def __len__(self) -> int:
        return len(self.wall_s)

    @property
    def rate_per_s(self) -> float:
        """Samples per second of wall time; steps per second where the elements have no batch dimension."""
        return float(self.batch_size.sum() or len(self)) / float(self.wall_s.sum())

    @cached_property
    def compiling(self) -> npt.NDArray[np.bool_]:
        """Steps in which something was traced or compiled."""
        return np.asarray((self.traces > 0) | (self.xla_compiles > 0))

    @cached_property
    def compile_s(self) -> FloatArray:
        """Seconds of each step that went to tracing and compilation."""
        clean, clocked = self.step_s[~self.compiling], self.trace_s + self.xla_s
        excess = self.step_s - np.median(clean) if len(clean) >= 3 else clocked
        return np.asarray(np.clip(np.where(self.compiling, np.maximum(excess, clocked), 0.0), 0.0, self.step_s))

    @cached_property
    def working_s(self) -> FloatArray:
        """``step_s`` without tracing and compilation."""
        return np.asarray(self.step_s - self.compile_s)

    @cached_property
    def outside_s(self) -> FloatArray:
        """Seconds inside the step but outside of tf.functions, of waiting for the device, and of compilation."""
        calls = np.minimum(self.calls_s, self.step_s)
        compile_outside_s = np.maximum(self.compile_s - calls, 0.0)
        return np.asarray(np.maximum(self.step_s - calls - self.emulated_s - self.device_s - compile_outside_s, 0.0))

    def __getitem__(self, rows: slice | npt.NDArray[np.bool_]) -> Steps:
        return Steps({name: values[rows] for name, values in self.columns.items()})


def steps_of(segment: Segment) -> Steps:
    """All rows of a segment but its known warm-up; times in seconds, ``start_s`` from the first row."""
    columns: dict[str, npt.NDArray[Any]] = {}
    for name in COLUMNS:
        # A journal from before the column was kept has none.
        values = segment.columns.get(name, (absent(name),) * segment.steps)
        column = np.asarray(values, dtype=np.int64)[segment.warmup_steps :]
        columns[name] = column - column[:1] if name == "start_ns" else column
    return Steps(in_seconds(columns))


def in_seconds(columns: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Columns of rows with those in nanoseconds as seconds: ``x_ns`` is ``x_s``."""
    found: dict[str, npt.NDArray[Any]] = {}
    for name, values in columns.items():
        found |= {f"{name.removesuffix('_ns')}_s": values / 1e9} if name.endswith("_ns") else {name: values}
    return found


def measured(trial: TrialRecord, name: str) -> Steps | None:
    """The steps of a trial's segment after its known warm-up, or ``None`` where there is none.

    Of the step alone those of rounds in which its input was seen to stand still: a decision that is blind to their
    times. Where it never was they are all kept (:func:`never_alone`).
    """
    segment = trial.segment(name)
    if segment is None or segment.steps <= segment.warmup_steps:
        return None
    steps = steps_of(segment)
    beside = [mark.round for mark in trial.rounds if mark.input_idle is False and name == "step_only"]
    alone = steps[~np.isin(steps.round, beside)]
    return alone if len(alone) else steps


def batches_per_epoch(trial: TrialRecord) -> float:
    """Batches of the dataset until it ends, as far as they were seen; infinite where it did not end.

    From the numbers of the batches in their pass, over all that was drawn from the dataset; where those are not known,
    from the rows of an epoch. Both are the least that there can be.
    """
    drawn = [one.columns for one in trial.segments if one.name in _DRAWN and one.steps]
    epochs = [columns.get("epoch") or (0,) for columns in drawn]
    if not any(map(any, epochs)):
        return math.inf
    numbers = [columns.get("batch") or (-1,) for columns in drawn]
    return float(max(*(np.bincount(one).max() for one in epochs), *(np.max(one) + 1 for one in numbers)))


def never_alone(trial: TrialRecord) -> bool:
    """Whether the input was at work beside the step alone in every round."""
    seen = [mark.input_idle for mark in trial.rounds if mark.input_idle is not None]
    return bool(seen) and not any(seen)


def in_one_stretch(steps: Steps) -> npt.NDArray[np.bool_]:
    """Mask of the steps of the first of the longest rounds; all, where no round can show a steady state."""
    rounds, counts = np.unique(steps.round, return_counts=True)
    if max(counts, default=0) < MIN_STEPS:
        return np.full(len(steps), fill_value=True)
    return np.asarray(steps.round == rounds[counts.argmax()])


def steady(steps: Steps) -> tuple[Steps, SteadyState]:
    """The steps of the steady state, and how it was found: in the first of the longest rounds, which is one stretch.

    Compilation that recurs is part of what is measured, so the cut is made on the step time without it. Where no round
    has enough steps all of them together are looked at.
    """
    stretch = in_one_stretch(steps)
    own_s = np.maximum(steps.wall_s - steps.compile_s, _TICK_S)
    found = steady_state(own_s[stretch], steps.batch_elements[stretch])
    if not stretch[: found.cut].all():  # what lies before the stretch was measured long after the warm-up
        found = replace(found, cut=0)
    return steps[found.cut :], found


MIN_STEPS: Final = 20
"""Fewer steps than this cannot show a steady state."""
_CUT_STEPS: Final = 100
"""Steps from which a cut is made: of fewer MSER-5 cuts a quarter, by chance, off series that are steady."""
_DRIFT_LIMIT: Final = 0.03
_BATCH: Final = 5  # steps of which MSER takes one value
_TICK_S: Final = 1e-9  # Of `perf_counter_ns`: the floor under a step time before its logarithm is taken


@dataclass(frozen=True, slots=True)
class SteadyState:
    """Warm-up to drop, and whether the rest is steady."""

    cut: int
    """Steps to drop from the front."""
    steady: bool
    reason: str | None
    """Why it is not steady, one sentence; ``None`` where it is."""


def mser(values: npt.ArrayLike) -> int:
    """Truncation point of a series, in entries: a multiple of five, at most half of the series.

    The point that minimises the squared standard error of the mean of what remains (White 1997; batches of five after
    White, Cobb & Spratt 2000), with the median of each batch in place of its mean. Ties go to the earliest point, so a
    constant series is not cut.
    """
    series = np.asarray(values, dtype=np.float64)
    count = series.size // _BATCH
    if count < 2:
        return 0
    medians = np.median(series[: count * _BATCH].reshape(count, _BATCH), axis=1)
    # Centred, so that a constant series gives exact zeros and large offsets cost no digits.
    medians = medians - np.median(medians)
    left = np.arange(count, 0, -1)
    sums = np.cumsum(medians[::-1])[::-1]
    squares = np.cumsum(medians[::-1] ** 2)[::-1]
    squared_error = (squares - sums**2 / left) / left**2
    return int(np.argmin(squared_error[: count // 2 + 1])) * _BATCH


def steady_state(step_s: npt.ArrayLike, batch_elements: npt.ArrayLike) -> SteadyState:
    """Cut the warm-up off and say whether the rest is steady, of one contiguous stretch of steps.

    It is not where the steps that are left become slower or faster, by 3 % in as many steps as there were, by a trend
    that the lengths of the batches do not explain, nor chance at 1 % (:func:`xttsbench.analysis.variation.drift`).
    Where there are too few steps for a cut by value to be better than a throw of dice none is made.
    """
    steps, elements = np.asarray(step_s, dtype=np.float64), np.asarray(batch_elements, dtype=np.float64)
    if steps.size < MIN_STEPS:
        return SteadyState(0, False, f"only {steps.size} steps, {MIN_STEPS} are needed to see a steady state")
    cut = 0
    if steps.size >= _CUT_STEPS:
        cut = mser(np.log(np.maximum(explain(steps, elements).adjusted_s, _TICK_S)))
    found = drift(steps[cut:], elements[cut:])
    # A cut takes its share out of a drift, which is as steep as before.
    if found is None or abs(found[1]) * steps.size < _DRIFT_LIMIT * (steps.size - cut):
        return SteadyState(cut, True, None)
    said = f"the step time {changed(found[1], steps.size - cut)} in a row, the length of batches considered"
    return SteadyState(cut, False, f"{said} (p = {found[0].p_value:.1g})")
