"""The process of a script that is watched to its end, which Python itself runs as ``python script``.

From the import of TensorFlow on, the main thread is sampled ten times a second at most: what it does, and in whose
code. Imports no TensorFlow.
"""

from __future__ import annotations

import _thread
import atexit
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any, Final

from xttsbench.processes import closed, die_with_parent
from xttsbench.stacks import stacks
from xttsbench.step.frames import Key, classify
from xttsbench.worker.channel import ScriptReport
from xttsbench.worker.script.process import Process, report_over

_INTERVAL_S: Final = (0.1, 0.25, 1.0)  # Between two samples: at least, before it is known what one takes, and at most
_SHARE: Final = 0.0001  # Of the time that sampling may take: what a sample takes says how often one is taken
_EARLY_S: Final = 0.05
EARLY: Final = 100
"""Samples that are taken more often, so that a short run has some."""
_EVERY: Final = 4
_TELL_S: Final = 2.0
_HELD: Final = 512

Heard = Callable[[int, "Key | None", Mapping[int, FrameType]], None]
Sample = tuple[Any, ...]
"""``perf_counter_ns``, nanoseconds since the sample before; file, line, function and kind of the user's line."""


class RareSamples:
    """Samples the main thread until it is ended, on a thread of its own, of which Python's ``threading`` knows nothing.

    A script may wait for all threads, or count them.

    Args:
        tell: called every two seconds with the samples since.
        asking: whether the main thread asks for data just now, which is no part of a step.
        early: samples that are taken more often.
        heard: called with the nanoseconds, the user's line and the frames of all threads of each sample.
    """

    def __init__(
        self,
        tell: Callable[[list[Sample]], None],
        asking: Callable[[], bool],
        early: int = EARLY,
        heard: Heard = lambda *_: None,
    ) -> None:
        self._tell = tell
        self._heard = heard
        self._asking = asking
        self._early = early
        self._main = threading.main_thread().ident or 0
        self._running, self._ended = threading.Lock(), threading.Lock()

    def start(self) -> None:
        """Begin."""
        self._running.acquire()
        self._ended.acquire()
        _thread.start_new_thread(self._run, ())

    def end(self) -> None:
        """Take no more, and tell of the last ones."""
        if self._running.locked():
            self._running.release()
            self._ended.acquire(timeout=1.0)

    def _run(self) -> None:
        with suppress(Exception):
            self._sample()
        self._ended.release()

    def _sample(self) -> None:
        last = told = time.perf_counter_ns()
        held: list[Sample] = []
        taken, over, interval_s = 0, False, _INTERVAL_S[1]
        while not over:
            over = self._running.acquire(timeout=_EARLY_S if taken < self._early else interval_s)
            with stacks() as frames:
                key = None if self._asking() else classify(frames.get(self._main))
                now = time.perf_counter_ns()
                self._heard(now - last, key, frames)
            del frames
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


class WholeRunProcess(Process):
    """Watches the script that Python is about to run in this process, up to Python's own end."""

    def __init__(self, report: ScriptReport) -> None:
        super().__init__(report)
        self._hooks: Any = None
        self._rank: Any = None
        self._samples = RareSamples(
            self._tell,
            lambda: self.watched is not None and self.watched.requesting,
            heard=lambda *sample: self._rank.sampled(*sample) if self._rank is not None else None,
        )

    def begin(self) -> None:
        """Watch from now on."""
        atexit.register(self._end)  # the first to be registered runs last
        self._hooks = self._begin()

    def _before_script(self) -> None:
        """Leave the process with one thread: no step is taken before TensorFlow is there."""

    def _imports(self, name: str) -> None:
        """Ignores the import: the script runs once."""

    def _tensorflow_loaded(self) -> None:
        super()._tensorflow_loaded()
        if self.watched is not None:
            self._noted("watching this rank", self._watch_rank)
        self._samples.start()
        atexit.register(self._end)  # before what TensorFlow does then, which was registered earlier

    def _watch_rank(self) -> None:
        from xttsbench.worker.script.ranks import Rank

        self._rank = Rank(self.watched, self._patches)

    def _end(self) -> None:
        """Tell how the script ended; of ``sys.exit`` the parent knows by the exit code."""
        if os.getpid() != self._pid:
            self.channel.detach()
        if self._over or os.getpid() != self._pid:
            return
        self._over = True
        self._hooks.uninstall()
        self._samples.end()
        error = _uncaught()
        ended, code = ("raised", 1) if error is not None else ("returned", 0)
        self._told(ended, code, error if isinstance(error, Exception) else None)
        self._done("interrupted" if isinstance(error, KeyboardInterrupt) else ended, code)
        self.channel.detach()

    def _done(self, ended: str, code: int) -> None:
        self.channel.send({"ended": ended, "exit_code": code, "done": True})

    def _new_watched(self) -> Any:
        from xttsbench.worker.script.watched import Watched
        from xttsbench.worker.script.whole_run import WholeRunRecorder

        return Watched(self.report, lambda _: None, WholeRunRecorder(self.report))

    def _tell(self, held: list[Sample]) -> None:
        if held:
            self.channel.send({"samples": held})


def _uncaught() -> BaseException | None:
    """The error that Python printed last, where it came out of the script; an interactive console leaves others."""
    error = getattr(sys, "last_value", None)
    if not isinstance(error, BaseException):
        return None
    first = error.__traceback__  # none where the script is not Python
    return error if first is None or first.tb_frame.f_globals is vars(sys.modules["__main__"]) else None


def watch(descriptor: int, rows: int) -> None:
    """Watch this process, which tells of itself over the socket of that number; ``rows`` is that of the memory."""
    die_with_parent()
    connection = socket.socket(fileno=descriptor)
    if closed(connection):  # the parent died before the kernel was asked
        os._exit(1)
    WholeRunProcess(report_over(connection, rows, outlives_parent=True)).begin()
