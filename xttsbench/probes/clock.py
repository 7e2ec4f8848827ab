"""Things that take a known time: the emulated accelerator's wait, and the canary's piece of work.

A real accelerator leaves the processors to the input pipeline while it works, so its stand-in must sleep, and a plain
sleep ends 0.06 ms (the kernel's timer slack) to a millisecond late. Here the slack is taken away where the kernel
allows that, the lateness that is left is measured and slept less, and the last bit is spun.

The canary is run before and after each turn of a process. It gets slower with the processor's clock, a busy sibling
thread of the core, or a crowded cache and memory, none of which the kernel's counters of time show.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

MAX_SPIN_NS: Final = 200_000
MAX_SPIN_SHARE: Final = 0.02
"""Share of the wait. Waking up and Python's own work cost about as much again, and 5 % of a processor is the limit."""
_PR_SET_TIMERSLACK: Final = 29
_PROBE_NS: Final = 1_000_000


class Waiter:
    """Waits on ``clock`` (nanoseconds). Without :meth:`calibrate` it is right but later.

    The spin holds Python's global lock for :data:`MAX_SPIN_SHARE` of the wait and :data:`MAX_SPIN_NS` at most; the
    sleep does not hold it.
    """

    def __init__(
        self, *, clock: Callable[[], int] = time.perf_counter_ns, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self.lateness_ns = 0
        """Excess of a sleep over the requested time, as :meth:`calibrate` measured it: its lower decile."""

    def calibrate(self, sleeps: int = 30) -> None:
        """Take the timer slack from the calling thread, and measure how late a sleep ends (30 ms).

        To be called in the thread that will wait. The lower decile is used, not the median: a sleep that ends too
        late cannot be mended, one that ends too early is spun or slept to the end.
        """
        _end_timer_slack()
        lateness_ns = []
        for _ in range(sleeps):
            start_ns = self._clock()
            self._sleep(_PROBE_NS / 1e9)
            lateness_ns.append(self._clock() - start_ns - _PROBE_NS)
        self.lateness_ns = max(sorted(lateness_ns)[sleeps // 10], 0)

    def wait(self, duration_ns: int) -> int:
        """Wait that long; returns the nanoseconds that it took. Raises ``ValueError`` for a negative duration."""
        if duration_ns < 0:
            raise ValueError(f"a wait must not be negative, received {duration_ns} ns")
        now_ns = start_ns = self._clock()
        deadline_ns = start_ns + duration_ns
        spin_ns = min(MAX_SPIN_NS, int(duration_ns * MAX_SPIN_SHARE))
        while (left_ns := deadline_ns - now_ns) > spin_ns:
            # Half of the spin is for sleeps that end earlier than calibrated, so that few need a second one.
            asked_ns = left_ns - self.lateness_ns - spin_ns // 2
            self._sleep((asked_ns if asked_ns > 0 else left_ns - spin_ns) / 1e9)
            now_ns = self._clock()
        while now_ns < deadline_ns:
            now_ns = self._clock()
        return now_ns - start_ns


def _end_timer_slack() -> None:
    """Have the kernel wake this thread when asked, not up to 0.05 ms later to save wake-ups (prctl(2), Linux)."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)


class EmulatedAccelerator:
    """Replays step times in milliseconds, in their order, round and round."""

    def __init__(self, step_times_ms: Sequence[float]) -> None:
        self._waiter = Waiter()
        self._waiter.calibrate()
        self._times_ns = itertools.cycle([round(ms * 1e6) for ms in step_times_ms])

    def compute(self) -> int:
        """Wait for the next recorded step time; returns the nanoseconds that really went by."""
        return self._waiter.wait(next(self._times_ns))


_PASSES: Final = 5
_STREAM: Final = 1 << 20
"""Numbers of eight bytes that are streamed in each pass: 8 MiB, more than most cores' own cache holds."""
_SORTED: Final = 1 << 15  # numbers that are sorted in each pass: computing that fits into a core's own cache


def canary_ns() -> int:
    """Nanoseconds of the fastest of five passes, each half a millisecond or so of streaming and sorting.

    The fastest, since a pass during which the thread lost its processor tells of the neighbours what the counters tell
    already, and better. The first call of a process is dearer and slower, so that one is worth throwing away.
    """
    stream, mixed = _data()
    taken = []
    for _ in range(_PASSES):
        began_ns = time.perf_counter_ns()
        np.add(stream, 1, out=stream)
        np.sort(mixed)
        taken.append(time.perf_counter_ns() - began_ns)
    return min(taken)


@functools.cache
def _data() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    return np.zeros(_STREAM, dtype=np.int64), np.random.default_rng(0).random(_SORTED)
