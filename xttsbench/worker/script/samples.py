"""Samples of the main thread, ten a second: what it does, and in which of the user's lines. Imports no TensorFlow."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from xttsbench.step.sampler import classify

_INTERVAL_S: Final = 0.1
_EARLY_S: Final = 0.025
_EARLY: Final = 200
"""Samples that are taken more often, so that a short run has some."""
_TELL_S: Final = 0.5
_HELD: Final = 512

Sample = tuple[Any, ...]
"""``perf_counter_ns``, nanoseconds since the sample before; file, line, function and kind of the user's line."""


class RareSamples:
    """Samples the main thread until it is ended, on a thread of its own.

    Args:
        tell: called every half second with the samples since.
        asking: whether the main thread asks for data just now, which is no part of a step.
    """

    def __init__(self, tell: Callable[[list[Sample]], None], asking: Callable[[], bool]) -> None:
        self._tell = tell
        self._asking = asking
        self._main = threading.main_thread().ident or 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="xttsbench-samples", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Take no more, and tell of the last ones."""
        self._over.set()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        last = told = time.perf_counter_ns()
        held: list[Sample] = []
        taken, over = 0, False
        while not over:
            over = self._over.wait(_EARLY_S if taken < _EARLY else _INTERVAL_S)
            key = None if self._asking() else classify(sys._current_frames().get(self._main))
            now = time.perf_counter_ns()
            if key is not None and len(held) < _HELD:
                held.append((now, now - last, *key))
                taken += 1
            last = now
            if over or now - told > _TELL_S * 1e9:
                told, told_now, held = now, held, []
                self._tell(told_now)
