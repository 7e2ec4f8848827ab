"""The emulated accelerator waits as long as it was told, in turn, and leaves the processor alone."""

from __future__ import annotations

import statistics
import time

from xttsbench.worker.accelerator import EmulatedAccelerator


def test_it_replays_its_times_round_and_round_and_never_ends_early():
    accelerator = EmulatedAccelerator([2.0, 6.0, 4.0])
    waited = [accelerator.compute() for _ in range(30)]
    for offset, ms in enumerate((2.0, 6.0, 4.0)):
        own = waited[offset::3]
        assert min(own) >= ms * 1e6
        assert statistics.median(own) < ms * 1e6 + 1e6


def test_it_uses_next_to_no_processor():
    accelerator = EmulatedAccelerator([10.0])
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in range(30):
        accelerator.compute()
    assert time.thread_time() - cpu < 0.1 * (time.perf_counter() - wall)
