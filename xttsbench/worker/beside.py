"""The step as given beside a changed one, on cached batches, in one process: given, changed, changed, given."""

from __future__ import annotations

import time
from typing import Any, Final

from xttsbench.records.trial import TrialSpec
from xttsbench.worker.bench import Bench, Limit, Step
from xttsbench.worker.source import CachedBatches

_WARM_UP_S: Final = 60.0


def run_beside(
    spec: TrialSpec, bench: Bench, given: tuple[Step, list[Any]], changed: tuple[Step, list[Any]], name: str
) -> None:
    """Measure both as the segments ``step_only`` and ``name``; each is stepped once on every batch before.

    Args:
        spec: for the steps and the window, of which each segment gets half.
        bench: the loop.
        given: the step as it is, with its batches.
        changed: the other one.
        name: the segment of the changed one.

    Raises:
        StepRaisedError: either raised; the rows before it have been sent.
    """
    half = Limit(max(spec.steps // 2, 1), spec.window_s / 2, 1, fair_s=0.5)
    accelerator, bench.accelerator = bench.accelerator, None  # it waits the same for both
    for which, (step, batches) in (("given", given), (name, changed)):
        bench.channel.phase(f"warm_up {which}")
        bench.run("warm_up", CachedBatches(batches), step, Limit(len(batches), _WARM_UP_S, 1, fair_s=0.0))
    bench.watch.poll_xla()
    took_s = 0.0
    for segment, (step, batches) in (("step_only", given), (name, changed), (name, changed), ("step_only", given)):
        if took_s > 2 * spec.window_s and segment == "step_only":  # one look at a step of many seconds has to do
            continue
        bench.channel.phase(segment)
        began = time.perf_counter()
        bench.run(segment, CachedBatches(batches), step, half)
        took_s += time.perf_counter() - began
    bench.accelerator = accelerator
