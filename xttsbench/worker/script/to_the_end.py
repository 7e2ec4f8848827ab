"""The process of a script that is watched to its end: it runs, is signalled and leaves as ``python script`` would.

The main thread is sampled ten times a second at most: what it does, and in whose code. Imports no TensorFlow.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from types import FrameType
from typing import Any, Final

from xttsbench.processes import die_with_parent
from xttsbench.step.frames import classify
from xttsbench.worker.channel import ScriptReport, flush
from xttsbench.worker.script.process import Process, exit_code_of, print_error, report_over

_SHOW: Final = signal.SIGUSR1


_INTERVAL_S: Final = (0.1, 0.25, 1.0)  # Between two samples: at least, before it is known what one takes, and at most
_SHARE: Final = 0.0001  # Of the time that sampling may take: what a sample takes says how often one is taken
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


class WholeRunProcess(Process):
    """Runs a script as ``__main__`` and returns its exit code, so that Python's own end follows.

    SIGUSR1 asks the parent to show what is known so far, unless the script has a handler of its own.
    """

    def __init__(self, report: ScriptReport) -> None:
        super().__init__(report)
        self._asked, self._handles = False, False
        self._interrupted = False
        self._samples = RareSamples(self._tell, lambda: self.watched is not None and self.watched.requesting)

    def run(self, blocked: tuple[int, ...]) -> int:
        """Run the script, with the signals let in that the parent holds back; returns the exit code to leave with.

        A script that was interrupted ends by SIGINT once all exit handlers have run.
        """
        die_with_parent()
        if signal.getsignal(_SHOW) == signal.SIG_DFL:
            signal.signal(_SHOW, self._show)
        atexit.register(self._last)  # the first to be registered runs last
        hooks = self._begin()
        ended, code, error = self._as_main(blocked)
        if os.getpid() != self._pid:  # a process that the script forked, and that came back here
            return code
        hooks.uninstall()
        self._over = True
        self._samples.end()
        self._told(ended, code, error if isinstance(error, Exception) else None)
        self._done("interrupted" if self._interrupted else ended, code)
        return code

    def _before_script(self) -> None:
        self._samples.start()

    def _imports(self, name: str) -> None:
        """Ignores the import: the script runs once."""

    def _done(self, ended: str, code: int) -> None:
        self.channel.send({"ended": ended, "exit_code": code, "done": True})

    def _as_main(self, blocked: tuple[int, ...]) -> tuple[str, int, BaseException | None]:
        script = self._as_argument()
        main = types.ModuleType("__main__")
        loader = SourceFileLoader("__main__", script)
        main.__dict__.update(__file__=script, __loader__=loader, __builtins__=__builtins__, __cached__=None)
        sys.modules["__main__"] = main
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)  # what came meanwhile is the script's
            exec(compile(loader.get_data(script), script, "exec", dont_inherit=True), main.__dict__)
        except SystemExit as left:
            return "exited", exit_code_of(left), None
        except BaseException as error:
            self._interrupted = isinstance(error, KeyboardInterrupt)
            print_error(error, script)
            return "raised", 1, error
        return "returned", 0, None

    def _new_watched(self) -> Any:
        from xttsbench.worker.script.watched import Watched
        from xttsbench.worker.script.whole_run import WholeRunRecorder

        return Watched(self.report, lambda _: None, WholeRunRecorder(self.report))

    def _tell(self, held: list[Sample]) -> None:
        """From the thread that samples: the samples, and whether somebody asked for what is known so far."""
        if held:
            self.channel.send({"samples": held})
        if self._asked:
            self._asked = False
            self.channel.send({"show": True})
        handles = signal.getsignal(_SHOW) == self._show
        if handles != self._handles:
            self._handles = handles
            self.channel.send({"shows": handles})

    def _show(self, number: int, frame: FrameType | None) -> None:
        self._asked = True

    def _last(self) -> None:
        """Python ends a script that was interrupted by the signal itself, so that shells know."""
        if self._interrupted and os.getpid() == self._pid:
            flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)


def main(connection: socket.socket, rows: int, blocked: tuple[int, ...]) -> int:
    """Run the script that the parent names over the connection, and return its exit code."""
    try:
        process = WholeRunProcess(report_over(connection, rows))
    except OSError:
        return 1
    return process.run(blocked)
