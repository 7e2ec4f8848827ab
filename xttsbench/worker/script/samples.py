"""Samples of the main thread, ten a second at most: what it does, and in whose code. Imports no TensorFlow."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from xttsbench.step.frames import classify

_INTERVAL_S: Final = (0.1, 0.25, 1.0)
"""Between two samples: at least, before it is known what one takes, and at most."""
_SHARE: Final = 0.0001
"""Of the time that sampling may take: what a sample takes says how often one is taken."""
_EARLY_S: Final = 0.05
EARLY: Final = 100
"""Samples that are taken more often, so that a short run has some."""
_EVERY: Final = 4
_TELL_S: Final = 2.0
_HELD: Final = 512

Sample = tuple[Any, ...]
"""``perf_counter_ns``, nanoseconds since the sample before; file, line, function and kind of the user's line."""


class RareSamples:
    """Samples the main thread until it is ended, on a thread of its own.

    Args:
        tell: called every two seconds with the samples since, and after each one that was asked for.
        asking: whether the main thread asks for data just now, which is no part of a step.
        early: samples that are taken more often.
    """

    def __init__(self, tell: Callable[[list[Sample]], None], asking: Callable[[], bool], early: int = EARLY) -> None:
        self._tell = tell
        self._asking = asking
        self._early = early
        self._main = threading.main_thread().ident or 0
        self._running = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="xttsbench-samples", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._running.acquire()
        self._thread.start()

    def end(self) -> None:
        """Take no more, and tell of the last ones."""
        self._running.release()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        last = told = time.perf_counter_ns()
        held: list[Sample] = []
        taken, over, interval_s = 0, False, _INTERVAL_S[1]
        while not over:
            over = self._running.acquire(timeout=_EARLY_S if taken < self._early else interval_s)
            key = None if self._asking() else classify(sys._current_frames().get(self._main))
            now = time.perf_counter_ns()
            if key is not None and len(held) < _HELD:
                held.append((now, now - last, *key))
                taken += 1
                if taken % _EVERY == 0:
                    spent_s = time.thread_time() / taken
                    interval_s = min(max(spent_s / _SHARE, _INTERVAL_S[0]), _INTERVAL_S[2])
            last = now
            if over or now - told > _TELL_S * 1e9:
                told, told_now, held = now, held, []
                self._tell(told_now)
