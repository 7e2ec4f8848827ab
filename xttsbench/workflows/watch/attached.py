"""This process, watched: one run a process, kept on disk by a thread, shown where its training ends."""

from __future__ import annotations

import atexit
import importlib
import mmap
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

from xttsbench.errors import UsageError
from xttsbench.execution import journal
from xttsbench.execution.whole_run import ROWS
from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import TrialSpec
from xttsbench.records.watch import WatchSummary
from xttsbench.workflows.recorded import make_run
from xttsbench.workflows.watch.observer import About, Observer
from xttsbench.workflows.watch.watch import PATIENCE_S, diagnose_command, finished, plan_of

_TICK_S: Final = 1.0
_READINGS_S: Final = 10.0
_SUMMARY_S: Final = 10.0
"""A summary takes milliseconds of the interpreter that trains."""

_session: Session | None = None


class Session:
    """The run of this process.

    Args:
        what: watches, in words: ``fit`` or ``a loop``.
        out: the run's own directory, or ``None`` for one under ``reports/``.
        tensorboard: directory for scalars.
        shown: shows a summary to people; ``None`` to stay silent.
    """

    def __init__(
        self, what: str, out: Path | None, tensorboard: Path | None, shown: Callable[[WatchSummary], None] | None
    ) -> None:
        script = sys.argv[0] if sys.argv and sys.argv[0].endswith(".py") else ""
        plan = plan_of(script or what, sys.argv[1:] if script else (), f"xttsbench.{what}")
        self.run = make_run(plan, out, f"watch-{Path(script).stem or what}")
        spec = TrialSpec(trial_id="watch", rung="script", target=plan.target, window_s=PATIENCE_S)
        rows = RowMemory(mmap.mmap(-1, RowMemory.size_bytes(ROWS + 1)))
        about = About(
            script=shlex.join([plan.target, *plan.arguments]),
            next_command=diagnose_command(script, plan.arguments) if script else "",
            every_s=_READINGS_S,
            summary_s=_SUMMARY_S,
        )
        self._shown = shown
        self._lock = threading.RLock()
        self.observer = Observer(self.run.directory, spec, rows, about, tensorboard=tensorboard, shown=self._show)
        worker = importlib.import_module("xttsbench.worker.script.attached")  # by name: it imports TensorFlow
        self.attached: Any = worker.Attached(spec, self.observer.take, rows)
        self.observer.started(os.getpid())
        self._pid, self._asked, self._over = os.getpid(), False, threading.Event()
        self._steps_shown = -1
        self._handle_signal()
        threading.Thread(target=self._keep, name="xttsbench-observer", daemon=True).start()
        atexit.register(self._at_exit)

    def finish(self, *, show: bool = True) -> WatchSummary:
        """Write what is known by now as the run's end, and show it; training may go on after it all the same."""
        with self._lock:
            self.attached.tell()
            error = getattr(sys, "last_value", None)
            if isinstance(error, BaseException):
                cause = f"{type(error).__name__}: {error}"[:300]
                self.observer.take({"status": "raised", "cause": cause, "error": {"message": cause, "type": ""}})
            self.observer.take({"ended": "raised" if error is not None else "returned", "exit_code": None, "done": 1})
            self.observer.finish()
            with suppress(FileNotFoundError):
                (self.run.directory / journal.NAME).unlink()
            summary = finished(self.observer, self.run)
            self.observer.conclude(summary)
            if show and self._shown is not None:
                self._shown(summary)
            self._steps_shown = self.observer.newest
        return summary

    def _show(self, summary: WatchSummary) -> None:
        if self._shown is not None:
            self._shown(summary)

    def _keep(self) -> None:
        while not self._over.wait(_TICK_S):
            with self._lock:
                if self._asked:
                    self._asked = False
                    self.observer.show()
                else:
                    self.observer.tick()

    def _handle_signal(self) -> None:
        """SIGUSR1 shows what is known, unless the process has a handler of its own or this is not its main thread."""
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
            signal.signal(signal.SIGUSR1, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._asked = True

    def _at_exit(self) -> None:
        if os.getpid() != self._pid:  # a process that was forked from it
            return
        self._over.set()
        with self._lock:
            self.finish(show=self.observer.newest != self._steps_shown)


def session(
    what: str,
    *,
    out: str | Path | None,
    tensorboard: str | Path | None,
    shown: Callable[[WatchSummary], None] | None,
) -> Session:
    """The run of this process, begun where there is none yet.

    Raises:
        UsageError: it was begun in another directory.
    """
    global _session  # noqa: PLW0603 - TensorFlow is patched once a process
    if _session is None or _session._pid != os.getpid():
        paths = [None if path is None else Path(path) for path in (out, tensorboard)]
        _session = Session(what, paths[0], paths[1], shown)
    elif out is not None and Path(out).absolute() != _session.run.directory.absolute():
        raise UsageError(
            f"out={str(out)!r}: this process is watched already, into {str(_session.run.directory)!r}; "
            "leave it out, or name the same."
        )
    return _session
