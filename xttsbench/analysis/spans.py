"""The stretches of time in which a trial measured, and what a counter did in them: the one place that says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.records.readings import HostReadings
from xttsbench.records.trial import Segment, TrialRecord

_SEEN_SHARE: Final = 0.5
"""Of a stretch that samples must cover before its counters are said to have been read."""


@dataclass(frozen=True)
class Span:
    """Measured steps, on the clock of the readings.

    Attributes:
        start_ns, end_ns: from the first measured step's start to the last one's end.
        steps: how many there are.
        epochs: passes over the data set that were begun in it, the one under way at its start included.
    """

    start_ns: int
    end_ns: int
    steps: int = 0
    epochs: int = 1

    @property
    def seconds(self) -> float:
        """How long it is."""
        return (self.end_ns - self.start_ns) / 1e9

    def inside(self, t_ns: Sequence[int]) -> npt.NDArray[np.intp]:
        """Positions of the samples that were taken in it."""
        times = np.asarray(t_ns, dtype=np.int64)
        return np.flatnonzero((times >= self.start_ns) & (times <= self.end_ns))

    def growth(self, host: HostReadings, name: str) -> float | None:
        """What a cumulative column rose by in it, in a straight line between samples and beyond the outer ones.

        ``None`` where the column was not read, or its samples cover less than half of the span.
        """
        values = getattr(host, name)
        if len(values) != len(host.t_ns) or len(values) < 2 or self.end_ns <= self.start_ns:
            return None
        start_ns, end_ns = max(self.start_ns, host.t_ns[0]), min(self.end_ns, host.t_ns[-1])
        seen = (end_ns - start_ns) / (self.end_ns - self.start_ns)
        if seen < _SEEN_SHARE:
            return None
        # Counters since the machine's start are large: differences first, or they drown in rounding.
        times = np.asarray(host.t_ns, dtype=np.int64) - start_ns
        risen = np.asarray(values, dtype=np.float64) - values[0]
        low, high = np.interp([0, end_ns - start_ns], times, risen)
        return float(high - low) / seen


def spans_of(segment: Segment) -> tuple[Span, ...]:
    """The measured rows of a segment, its own warm-up left out: a span for each round, since others ran in between."""
    rounds = np.asarray(segment.columns.get("round", (0,) * segment.steps))[segment.warmup_steps :]
    edges = [0, *(np.flatnonzero(np.diff(rounds)) + 1), len(rounds)] if len(rounds) else []
    return tuple(
        _rows(segment, segment.warmup_steps + int(begin), segment.warmup_steps + int(end))
        for begin, end in pairwise(edges)
    )


def measured_span(trial: TrialRecord, name: str = "as_is") -> Span | None:
    """From the first measured step of a segment to its last, whatever ran in between; ``None`` where there is none."""
    segment = trial.segment(name)
    if segment is None or segment.steps <= segment.warmup_steps:
        return None
    return _rows(segment, segment.warmup_steps, segment.steps)


def _rows(segment: Segment, begin: int, end: int) -> Span:
    columns = segment.columns
    end_ns = columns["start_ns"][end - 1] + columns["wait_ns"][end - 1] + columns["step_ns"][end - 1]
    epochs = columns.get("epoch", (0,) * end)[begin:end]
    return Span(columns["start_ns"][begin], end_ns, end - begin, max(epochs) - min(epochs) + 1)


def turns_of(trial: TrialRecord) -> tuple[Span, ...]:
    """When the trial measured: its turns where it took some, else the rows of the target as it is, else all rows."""
    if trial.rounds:
        return tuple(Span(mark.start_ns, mark.end_ns) for mark in trial.rounds)
    segment = trial.segment("as_is")
    segments = trial.segments if segment is None or not spans_of(segment) else (segment,)
    return tuple(span for segment in segments for span in spans_of(segment))
