"""``xttsbench watch SCRIPT``: the script runs to its end as it does without us; then a screen says how it went.

A :class:`Session` watches the calling process instead: one run a process, kept on disk by a thread.
"""

from __future__ import annotations

import atexit
import importlib
import mmap
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import psutil

from xttsbench.cluster import task_of
from xttsbench.errors import UsageError
from xttsbench.execution.child import SharedRows, now_utc
from xttsbench.execution.ending import BY_SIGNAL
from xttsbench.execution.journal import TRIALS, append_trial
from xttsbench.execution.run_directory import read_record
from xttsbench.execution.watched import ROWS, run_whole
from xttsbench.files import atomic_write
from xttsbench.records.plan import RunPlan
from xttsbench.records.report import Report
from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import TrialSpec
from xttsbench.records.watch import SUMMARY_FILE, WatchSummary
from xttsbench.targets.spec import parse_target
from xttsbench.workflows import runs
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.watch.observer import About, Observer
from xttsbench.workflows.watch.summary import DEFAULTS, Gate, judge, parse

PATIENCE_S: Final = 10.0
"""A loop that takes no gradients is taken for the main one when it has had so many seconds."""
Shown = Callable[[WatchSummary], None]


@dataclass(frozen=True)
class Request:
    """Options of the user.

    Attributes:
        script: a file of Python.
        arguments: of the script.
        out: the run's own directory, or ``None`` for one under ``reports/``.
        tensorboard: directory for scalars.
        fail_on: gates as they were typed.
        baseline: an earlier ``summary.json``, or its directory.
        print_to_stderr: what the script prints goes to standard error.
        redact: leave values of arguments, paths and names out of every file.
        command: as it was typed, for the report.
    """

    script: str
    arguments: tuple[str, ...] = ()
    out: Path | None = None
    tensorboard: Path | None = None
    fail_on: tuple[str, ...] = ()
    baseline: Path | None = None
    print_to_stderr: bool = False
    redact: bool = False
    command: str = "xttsbench watch"


@dataclass(frozen=True)
class Watched:
    """End of a watched run: ``message`` is one sentence for standard error, where the exit code is not 0."""

    summary: WatchSummary
    directory: Path
    exit_code: int
    message: str | None = None


def watch(request: Request, shown: Shown) -> Watched:
    """Run a script to its end and say what its steps were like; ``shown`` is called where somebody asks meanwhile.

    Raises:
        UsageError, InvalidInputError: the request is wrong; nothing has been run.
        HelperError: the script's process cannot be started.
    """
    target = parse_target(request.script, scripts=True)
    if target.kind != "script":
        raise UsageError(f"{request.script!r} is no script: watch runs a file.py to its end; diagnose takes callables.")
    baseline = read_summary(request.baseline) if request.baseline is not None else None
    gates = tuple(map(parse, request.fail_on or (DEFAULTS if baseline is not None else ())))
    if baseline is None and any(gate.relative for gate in gates):
        raise UsageError("--fail-on with a + compares with an earlier run: name it with --baseline SUMMARY.")
    plan = _plan(request.script, request.arguments, request.command).model_copy(update={"redact": request.redact})
    out, name = own_directory(request.out, f"watch-{target.name}")
    with runs.open_run(plan, out, name) as run:
        return _watched(run, request, gates, baseline, shown)


def own_directory(out: Path | None, name: str) -> tuple[Path | None, str]:
    """Directory and name of this process's run: the ranks of a job are given the same ones, and each has its own."""
    task = task_of(os.environ)
    if task is None:
        return out, name
    own = f"rank-{task.rank}"
    return (out / own if out is not None else None), f"{name}-{own}"


def _watched(
    run: Recorded, request: Request, gates: Sequence[Gate], baseline: WatchSummary | None, shown: Shown
) -> Watched:
    plan, spec = run.kept.plan, _spec(run.plan.target, run.plan.arguments)
    about = About(shlex.join([plan.target, *plan.arguments]), _diagnose_command(plan), run.redaction)
    with SharedRows(ROWS + 1) as shared:
        observer = Observer(run.directory, spec, shared.memory, about, tensorboard=request.tensorboard, shown=shown)
        left = run_whole(spec, observer, shared, print_to_stderr=request.print_to_stderr)
    code = left.returncode
    observer.finish(
        signal=signal.Signals(-code).name if code < 0 else None,
        exit_code=code if code >= 0 else None,
        # Somebody asked it to end.
        interrupted=left.asked is not None or code in (-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP),
    )
    summary = _finished(observer, run)
    if gates:
        summary = summary.model_copy(update={"fail_on": tuple(judge(gate, summary, baseline) for gate in gates)})
    summary = observer.conclude(summary)
    exit_code, message = _judged(summary, request.script)
    if exit_code == runs.INTERRUPTED and (by := left.asked or -code) > 0:
        exit_code = BY_SIGNAL + by
    return Watched(summary, run.directory, exit_code, message)


def _plan(script: str, arguments: Sequence[str], command: str) -> RunPlan:
    return RunPlan(
        kind="watch",
        command=command,
        created_utc=now_utc(),
        target=script,
        arguments=tuple(arguments),
        steps=1,
        budget_s=1.0,
        verified=False,
    )


def _spec(script: str, arguments: tuple[str, ...] = ()) -> TrialSpec:
    return TrialSpec(trial_id="watch", kind="script", target=script, arguments=arguments, window_s=PATIENCE_S)


def _diagnose_command(plan: RunPlan) -> str:
    """The command that proves what is likely."""
    return shlex.join(["xttsbench", "diagnose", plan.target, *(["--", *plan.arguments] if plan.arguments else [])])


def _finished(observer: Observer, run: Recorded) -> WatchSummary:
    """Write how a run ended, then its journal and its report, as far as each can be, and return what it comes to."""
    observer.write(observer.summary())
    report = observer.guard("The report", _reported, observer, run)
    return observer.summary(report)


def _reported(observer: Observer, run: Recorded) -> Report:
    from xttsbench.reporting.page import to_json

    run, guard = replace(run, trials=(observer.record(),)).kept, observer.guard
    guard("The journal", append_trial, run.directory, run.trials[0])
    report: Report = run.redaction.kept(runs.report_of(run))

    def write() -> None:
        with runs.report_is_written(run.directory):
            atomic_write(run.directory / "report.json", to_json(report).encode())

    guard("Writing report.json", write)
    return report


def read_summary(path: Path) -> WatchSummary:
    """The summary of a run, by its file or its directory.

    Raises:
        JournalError: there is none, or it cannot be read.
    """
    file = path / SUMMARY_FILE if path.is_dir() else path
    found = read_record(file, WatchSummary, "the summary of a watched run", name="the directory of a watched run")
    if not found.over and not _runs(found):  # it was killed together with what would have said so
        return found.model_copy(update={"over": True, "ended": "killed"})
    return found


def _runs(summary: WatchSummary) -> bool:
    """Whether the process of a run that is not over is there, and is not another one with its number."""
    try:
        return psutil.Process(summary.pid).create_time() <= datetime.fromisoformat(summary.updated_utc).timestamp()
    except (psutil.Error, ValueError, OverflowError):  # a time or a number that is none, in a file of somebody else
        return False


def _judged(summary: WatchSummary, script: str) -> tuple[int, str | None]:
    """Exit code and sentence: an interruption and the script's own failure come before gates."""
    if summary.ended == "interrupted":
        return runs.INTERRUPTED, "Interrupted; what was seen until then is in the summary."
    if summary.ended == "killed":
        return runs.INVALID, f"{script} was killed by {summary.signal}; what was seen until then is in the summary."
    if summary.exit_code:
        why = f": {summary.error}" if summary.error else ""
        return runs.INVALID, f"{script} ended with exit code {summary.exit_code}{why}"
    failed = next((gate for gate in summary.fail_on if gate.outcome == "failed"), None)
    if failed is not None:
        return runs.GATE, f"--fail-on {failed.expression}: {failed.why}."
    open_one = next((gate for gate in summary.fail_on if gate.outcome != "passed"), None)
    if open_one is not None:
        return runs.INCONCLUSIVE, f"--fail-on {open_one.expression}: {open_one.why}."
    if not summary.stretches:
        reason = summary.unmeasured.get("steps", "no batch was taken in a way that can be seen")
        return runs.NOTHING, f"No training step was seen: {reason.rstrip('.')}. See docs/watch.md for what can be."
    return runs.DONE, None


_TICK_S: Final = 1.0
_READINGS_S: Final = 10.0
_SUMMARY_S: Final = 10.0  # a summary takes milliseconds of the interpreter that trains

_session: Session | None = None


class Session:
    """The run of this process.

    ``what`` watches, in words: ``fit`` or ``a loop``. Summaries are shown to people by ``shown``, where there is one.
    """

    def __init__(
        self, what: str, out: Path | None, tensorboard: Path | None, shown: Shown | None, script: str | None = None
    ) -> None:
        if script is None:
            script = sys.argv[0] if sys.argv and sys.argv[0].endswith(".py") else ""
        plan = _plan(script or what, sys.argv[1:] if script else (), f"xttsbench.{what}")
        self._holds = ExitStack()  # until the run is over, so that its report can be built again beside this process
        out, name = own_directory(out, f"watch-{Path(script).stem or what}")
        self.run = self._holds.enter_context(runs.open_run(plan, out, name, needs_tensorflow=False))
        spec = _spec(plan.target)
        rows = RowMemory(mmap.mmap(-1, RowMemory.size_bytes(ROWS + 1)))
        plan = self.run.kept.plan
        about = About(
            script=shlex.join([plan.target, *plan.arguments]),
            next_command=_diagnose_command(plan) if script else "",
            redaction=self.run.redaction,
            every_s=_READINGS_S,
            summary_s=_SUMMARY_S,
        )
        self._lock = threading.RLock()
        self._earlier_error = getattr(sys, "last_value", None)  # of another cell, where somebody types them
        self._shown = shown or (lambda _: None)
        self.observer = Observer(self.run.directory, spec, rows, about, tensorboard=tensorboard, shown=self._shown)
        worker = importlib.import_module("xttsbench.worker.script.whole_run")  # by name: it imports TensorFlow
        guard = self.observer.guard
        self.attached: Any = worker.Attached(spec, partial(guard, "Reading what was seen", self.observer.take), rows)
        guard("Noting the start", self.observer.started, os.getpid())
        self._pid, self._asked, self._over = os.getpid(), False, threading.Event()
        self._steps_shown = -1
        self._handle_signal()
        threading.Thread(target=self._keep, name="xttsbench-observer", daemon=True).start()
        atexit.register(self._at_exit)

    def finish(self, *, show: bool = True, error: BaseException | None = None) -> WatchSummary:
        """Write what is known by now as the run's end, and show it; training may go on after it all the same.

        ``error`` ended it, or the one that Python printed last.
        """
        guard = self.observer.guard
        with self._lock:
            guard("Reading what was seen", self.attached.tell)
            last = getattr(sys, "last_value", None)
            if error is None and isinstance(last, BaseException) and last is not self._earlier_error:
                error = last
            if error is not None:
                cause = f"{type(error).__name__}: {error}"[:300]
                self.observer.take({"status": "raised", "cause": cause, "error": {"message": cause, "type": ""}})
            self.observer.take({"ended": "raised" if error is not None else "returned", "exit_code": None, "done": 1})
            self.observer.finish()
            with suppress(OSError):
                (self.run.directory / TRIALS).unlink()
            summary = self.observer.conclude(_finished(self.observer, self.run))
            self._holds.close()
            if show:
                guard("Showing what was seen", self._shown, summary)
            self._steps_shown = self.observer.newest
        return summary

    def close(self) -> None:
        """Watch this process no more; another run may begin in it."""
        global _session  # noqa: PLW0603 - the run of this process
        self._over.set()
        atexit.unregister(self._at_exit)
        if signal.getsignal(signal.SIGUSR1) == self._on_signal:
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        self.attached.close()
        _session = None

    def _keep(self) -> None:
        while not self._over.wait(_TICK_S):
            with self._lock:
                asked, self._asked = self._asked, False
                self.observer.guard("Keeping what was seen", self.observer.show if asked else self.observer.tick)

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


def session(what: str, *, out: str | Path | None, tensorboard: str | Path | None, shown: Shown | None) -> Session:
    """The run of this process, begun where there is none yet.

    Raises:
        UsageError: it was begun in another directory.
    """
    global _session  # noqa: PLW0603 - TensorFlow is patched once a process
    if _session is None or _session._pid != os.getpid():
        paths = [None if path is None else Path(path) for path in (out, tensorboard)]
        _session = Session(what, paths[0], paths[1], shown)
    elif out is not None and _session.run.directory.absolute() not in (
        Path(out).absolute(),
        (own_directory(Path(out), "")[0] or Path(out)).absolute(),
    ):
        raise UsageError(
            f"out={str(out)!r}: this process is watched already, into {str(_session.run.directory)!r}; "
            "leave it out, or name the same."
        )
    return _session


def begin(what: str, out: Path | None) -> Session:
    """A run of its own within this process, such as a cell of a notebook: to be finished and closed.

    Raises:
        UsageError: the process is watched already, or the directory is taken.
    """
    global _session  # noqa: PLW0603 - what the cell watches itself is part of its run
    if _session is not None and _session._pid == os.getpid():
        raise UsageError("xttsbench.watched() or keras.Watch() watches this process to its end; restart it first.")
    _session = Session(what, out, None, None, script="")
    return _session
