"""What measuring costs a step: the very loop of a trial, a script or the trainer, with what is recorded and without."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import tensorflow as tf

from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import MeasurementOverhead
from xttsbench.step.watch import MANY_CALLS, Watch
from xttsbench.worker.batches import CachedBatches
from xttsbench.worker.bench import Bench, Limit

_PAIRS: Final = 20
STEPS: Final = 50
_LEAST_STEPS: Final = 10
"""Where each makes many calls."""
_MOST_CALLS: Final = 50

Steps = Callable[[int], object]
"""Runs so many small steps."""


def overhead_of(
    measured: Steps,
    bare: Steps,
    what: str,
    *,
    steps: int = STEPS,
    clock: Callable[[], int] = time.thread_time_ns,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
    settle: int = 0,
) -> MeasurementOverhead:
    """Run steps with everything that is recorded of them and without, in turn within this process.

    The median over pairs of the difference in processor time, so that a neighbour's work is no cost of ours.

    Args:
        measured: runs so many steps and records them as in a real measurement.
        bare: runs as many.
        what: the steps, in words.
        steps: of a run.
        clock: processor time in nanoseconds, of this thread or of all that the steps use.
        around: what a measurement begins with once and not in each step; it is entered around each measured run.
        settle: steps of either kind before the clock starts, in which Python specialises code that was wrapped.
    """
    differences = []
    for pair in range(_PAIRS):
        times = {}
        for run in (measured, bare) if pair % 2 else (bare, measured):
            with around() if run is measured else nullcontext():
                if settle:
                    run(settle)
                began = clock()
                run(steps)
                times[run] = clock() - began
        differences.append((times[measured] - times[bare]) / steps)
    return MeasurementOverhead(
        overhead_s=max(statistics.median(differences), 0.0) / 1e9,
        pairs=_PAIRS,
        method=f"{_PAIRS} pairs of {steps} steps ({what}), recorded and bare in turn, median processor time",
    )


def measure_overhead(bench: Bench, calls: float = 1) -> MeasurementOverhead:
    """The cost of the bench's loop, for a step that makes so many calls of a small tf.function on a ready batch.

    The watch that is already installed must have been left before: its wrappers would be on both sides.
    """
    calls = max(1, min(round(calls), _MOST_CALLS))
    function = tf.function(lambda batch: batch + 1)
    source = CachedBatches([tf.zeros([4, 4])] * 4)

    def step(batch: Any) -> Any:
        for _ in range(calls):
            batch = function(batch)
        return batch

    rows = RowMemory(bytearray(RowMemory.size_bytes(STEPS))).segment("overhead")
    own = Bench(bench.channel, bench.watch, None, None, compilations=bench.compilations)

    def measured(steps: int) -> None:
        own.loop("overhead", rows, source, step, Limit.exactly(steps))

    @contextmanager
    def watching() -> Iterator[None]:
        with Watch() as own.watch:
            yield

    def bare(steps: int) -> None:
        for _ in range(steps):
            step(source.next())

    what, steps = f"{calls} small compiled {'call' if calls == 1 else 'calls'} each", max(STEPS // calls, _LEAST_STEPS)
    if calls < MANY_CALLS:
        with watching():
            measured(2)
        return overhead_of(measured, bare, what, steps=steps, around=watching, settle=_LEAST_STEPS)
    # The calls of such a step are not watched after its first: what a trial does once is not done in each run here.
    with watching():
        measured(_LEAST_STEPS)
        return overhead_of(measured, bare, what, steps=steps)
