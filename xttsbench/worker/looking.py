"""What it costs to look: the loop with and without the watch and its rows, toggled within this process."""

from __future__ import annotations

import statistics
import time

import tensorflow as tf

from xttsbench.records.trial import Looking
from xttsbench.step.watch import Watch
from xttsbench.worker.bench import Bench, Limit
from xttsbench.worker.recorder import Recorder
from xttsbench.worker.source import CachedBatches

_PAIRS = 20
_STEPS = 50


class _Discarded(Recorder):
    """A recorder that keeps its rows to itself."""

    def __init__(self) -> None:
        self.rows = 0
        self._pending = []
        self._flushed_ns = time.perf_counter_ns()

    def flush(self) -> None:
        """Forget the rows."""
        self._pending.clear()


def measure_looking(bench: Bench) -> Looking:
    """Mean cost of looking per step: a small compiled step and ready batches, watched and bare, in turn.

    The median over pairs of the difference, so that a pre-empted run does not count. The watch that is already
    installed must have been left before (its wrappers would be in both sides).
    """
    step = tf.function(lambda batch: batch + 1)
    batches = [tf.zeros([4, 4])] * 4
    source = CachedBatches(batches)
    step(batches[0])
    differences = []
    for pair in range(_PAIRS):
        times = {}
        for watched in (True, False) if pair % 2 else (False, True):
            if watched:
                with Watch(bench.watch.xla) as watch:
                    quiet = Bench(bench.channel, watch, None, None, dict(bench.shapes))
                    began = time.perf_counter_ns()
                    quiet.recorders["looking"] = _Discarded()
                    quiet.run("looking", source, step, Limit(_STEPS, 60.0, _STEPS, 0.0))
            else:
                began = time.perf_counter_ns()
                for _ in range(_STEPS):
                    step(source.next())
            times[watched] = time.perf_counter_ns() - began
        differences.append((times[True] - times[False]) / _STEPS)
    return Looking(
        overhead_s=max(statistics.median(differences), 0.0) / 1e9,
        pairs=_PAIRS,
        method=f"{_PAIRS} pairs of {_STEPS} small compiled steps, watched and bare in turn, median difference",
    )
