"""The stretch of a trial in which the target ran as it is, and what the host's counters did in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.readings import gpu_busy
from xttsbench.records.readings import HostReadings
from xttsbench.records.trial import TrialRecord


@dataclass(frozen=True)
class Span:
    """Measured steps of the target as it is, on the clock of the readings.

    Attributes:
        start_ns, end_ns: from the first measured step's start to the last one's end.
        steps: how many there are.
        epochs: passes over the data set that were begun in it, the one under way at its start included.
    """

    start_ns: int
    end_ns: int
    steps: int
    epochs: int

    @property
    def seconds(self) -> float:
        """How long it is."""
        return (self.end_ns - self.start_ns) / 1e9

    def inside(self, t_ns: Sequence[int]) -> npt.NDArray[np.intp]:
        """Positions of the samples that were taken in it."""
        times = np.asarray(t_ns, dtype=np.int64)
        return np.flatnonzero((times >= self.start_ns) & (times <= self.end_ns))

    def growth(self, host: HostReadings, name: str) -> float | None:
        """What a cumulative column rose by in it, its ends filled in evenly; ``None`` where it was not read twice."""
        values = getattr(host, name)
        where = self.inside(host.t_ns)
        if len(where) < 2 or len(values) != len(host.t_ns):
            return None
        first, last = int(where[0]), int(where[-1])
        sampled_s = (host.t_ns[last] - host.t_ns[first]) / 1e9
        return float(values[last] - values[first]) * self.seconds / sampled_s if sampled_s > 0 else None


def measured_span(trial: TrialRecord) -> Span | None:
    """The measured steps of ``as_is``, its own warm-up left out; ``None`` where there are none."""
    segment = trial.segment("as_is")
    if segment is None or segment.steps <= segment.warmup_steps:
        return None
    start_ns = segment.columns["start_ns"][segment.warmup_steps :]
    epochs = segment.columns.get("epoch", ())[segment.warmup_steps :]
    return Span(
        start_ns[0],
        start_ns[-1] + segment.columns["wall_ns"][-1],
        len(start_ns),
        max(epochs) - min(epochs) + 1 if epochs else 1,
    )


def gpu_samples(trial: TrialRecord) -> npt.NDArray[np.float64]:
    """The driver's own utilisation samples in the measured span; empty without a GPU or such steps."""
    span = measured_span(trial)
    return gpu_busy(trial.readings, span.start_ns, span.end_ns) if span is not None else np.zeros(0)
