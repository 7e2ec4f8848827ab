"""The emulated accelerator: after each step it waits as long as a recorded device took, without using a processor."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

from xttsbench.probes.clock import Waiter


class EmulatedAccelerator:
    """Replays step times in milliseconds, in their order, round and round."""

    def __init__(self, step_times_ms: Sequence[float]) -> None:
        self._waiter = Waiter()
        self._waiter.calibrate()
        self._times_ns = itertools.cycle([round(ms * 1e6) for ms in step_times_ms])

    def compute(self) -> int:
        """Wait for the next recorded step time; returns the nanoseconds that really went by."""
        began = time.perf_counter_ns()
        self._waiter.wait_until(began + next(self._times_ns))
        return time.perf_counter_ns() - began
