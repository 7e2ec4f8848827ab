"""The process of a script: its arguments, its path, its end. Imports no TensorFlow; the script does, or does not.

A script is run again, unchanged or with its source patched, to see what a fix does. The fix is made on the dataset that
feeds the training loop, at the moment the script begins to use it, so that nothing else in the script is another. What
it writes goes to memory.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import functools
import os
import signal
import socket
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from types import TracebackType
from typing import Any, Final

from xttsbench.owners import KERAS, loaded_files, owner
from xttsbench.processes import TRIALS
from xttsbench.records.trial import TrialSpec
from xttsbench.targets.checkout import enter
from xttsbench.targets.source.left_out import Guard, guarding
from xttsbench.targets.source.rewritten import code_of
from xttsbench.targets.source.training_loops import Hearing, Loops, hearing
from xttsbench.worker.channel import (
    AUTOGRAPH,
    LockedChannel,
    ScriptReport,
    StoppedByUs,
    exit_now,
    flush,
    out_of_the_way,
    shared_rows,
    sources_apart,
)
from xttsbench.worker.failure import failure
from xttsbench.worker.script.again.effects import AfterImport, Effects, patch_h5py, patch_shared_memory, patch_writers
from xttsbench.worker.script.again.overlays import Overlays, cover, tried

_THREADS_S: Final = 5.0  # Threads of the script that are not daemons are waited for so long, once it has returned
_ATEXIT_S: Final = 10.0
_AFTERWARDS_S: Final = 90.0


class Process:
    """Runs the script and ends with it; :attr:`watched` is set once TensorFlow has been loaded."""

    def __init__(self, report: ScriptReport) -> None:
        self.report = report
        self.channel = report.channel
        self.watched: Any = None
        self._patches: Any = None
        self._pid = os.getpid()
        self._over = False
        self._keras: list[str] = []  # the packages of Keras that are loaded
        self._effects: Effects | None = None
        self._overlays: Overlays | None = None
        self._environment = dict(os.environ)
        self._guard = Guard()
        self._loops = Loops()

    def start(self) -> None:
        """Run the script to its end, measure what is left to measure, and leave. Does not return."""
        self._cover()
        hooks = self._begin()
        with hearing(self._loops), guarding(self._guard) if self.report.spec.emulated_ms else contextlib.nullcontext():
            ended, code, error = self._run_script()
        hooks.uninstall()
        flush()
        if os.getpid() != self._pid:  # a process that the script forked, and that came back here
            self._noted("exit handlers", atexit._run_exitfuncs)
            flush()
            exit_now(code)
        self._over = True
        with self._limited(_AFTERWARDS_S, code):
            self._told(ended, code, error)
            if self.watched is not None and error is None and self.refused is None and not self.report.spec.whole:
                self._noted("what is measured afterwards", self._measure_afterwards)
        self.channel.send({"done": True})
        with self._limited(_ATEXIT_S, code):
            if ended != "stopped":
                self._noted("exit handlers", _wait_for_threads)
            self._noted("exit handlers", atexit._run_exitfuncs)
        flush()
        exit_now(code)

    def _begin(self) -> AfterImport:
        self.channel.part("target_kind", "script")
        self.channel.phase("script")
        loaded = {"tensorflow": self._tensorflow_loaded, "h5py": self._h5py_loaded}
        loaded |= {package: functools.partial(self._keras_loaded, package) for package in KERAS}
        loaded["_posixshmem"] = self._shared_memory_loaded
        if (folder := os.environ.get(TRIALS)) is not None:
            loaded[AUTOGRAPH] = functools.partial(sources_apart, folder)
        hooks = AfterImport(loaded, begins=self._imports)
        hooks.install()
        self._before_script()
        os._exit = self._left  # type: ignore[assignment]  # it leaves in the end, as the original does
        return hooks

    def _cover(self) -> None:
        """Keep what the script writes in memory, and learn whether another run could be kept from writing."""
        found = tried()
        if isinstance(found, str):
            self.report.tell(not_redirected=found)
        else:
            self._overlays = found if self.report.spec.private is None else self._covered(self.report.spec.private)

    def _covered(self, keep: str, **how: Any) -> Overlays:
        try:
            return cover(keep, **how)
        except OSError as error:
            self.channel.send({"status": "raised", "cause": f"what the script writes cannot be redirected: {error}"})
            self.channel.send({"done": True})
            exit_now(0)
            raise

    def _before_script(self) -> None:
        """Hear what it does to others."""
        self._effects = Effects(self._overlays)

    def _imports(self, name: str) -> None:
        if name in ("tensorflow", *KERAS) and dict(os.environ) == self._environment:
            self.report.tell(imports=(*self.report.run.imports, name))

    def end_at_once(self, why: str) -> None:
        """From another thread: the script can't be stopped, so everything is sent and the process group ends."""
        self._over = True
        self.channel.note(why)
        if self.watched is not None:
            self.watched.end()
        self._tell_effects()
        self.report.tell(ended="stopped")
        self.channel.send({"done": True})
        kill_group(0)

    def _run_script(self) -> tuple[str, int, BaseException | None]:
        script = self.report.spec.target
        sys.argv = [script, *self.report.spec.arguments]
        sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
        ended, code = "returned", 0
        try:
            _run_as_main(os.path.join(os.getcwd(), script))  # unnormalised, as Python has it
        except SystemExit as left:
            ended, code = "exited", exit_code_of(left)
        except BaseException as error:
            if not _caused_by_stop(error):
                print_error(error, script)
                return "raised", 1, error
        stopped = self.watched is not None and self.watched.recorder.stopping_since is not None
        return "stopped" if stopped else ended, code, None

    def _told(self, ended: str, code: int, error: BaseException | None) -> None:
        if self.watched is not None:
            self._noted("the end of the script", self.watched.end)
        else:
            self.channel.note("the script did not import TensorFlow: none of its steps was seen")
        self._tell_files()
        self._tell_effects()
        self.report.tell(ended=ended, exit_code=None if ended == "stopped" else code)
        if error is not None:
            self.channel.send(failure(error, self.report.spec.target) | self._of_memory(error))
        elif self.refused is not None:
            self.channel.send({"status": "raised", "cause": self.refused})

    @property
    def refused(self) -> str | None:
        """Why no emulated accelerator can replace the script's step; ``None`` where one can, or need not."""
        replaced = self.watched.recorder.replaced if self.watched is not None else None
        return None if replaced is None else replaced.refused

    def _of_memory(self, error: BaseException | None) -> dict[str, str]:
        """The cause in other words, where the script raised since what it writes is kept in memory."""
        why = self._overlays.why_raised(error) if self._overlays is not None and error is not None else None
        return {} if why is None else {"cause": why}

    def _tell_files(self) -> None:
        """Tell of the files of the user's that ran: where one is saved, what runs next is another version."""
        self.channel.part("files", list(dict.fromkeys([os.path.abspath(self.report.spec.target), *loaded_files()])))

    def _tell_effects(self) -> None:
        if self._effects is not None:
            self.report.tell(**self._effects.record())
            self._effects.end()

    def _left(self, code: int) -> None:
        """``os._exit``, as the script calls it; a process that it forked leaves at once."""
        if os.getpid() == self._pid and not self._over:
            self._over = True
            with contextlib.suppress(Exception):
                self._told("exited", code, None)
                self._done("exited", code)
        exit_now(code)

    def _done(self, ended: str, code: int) -> None:
        """Sends that the process is done, and no more."""
        self.channel.send({"done": True})

    def _tensorflow_loaded(self) -> None:
        def watch() -> None:
            from xttsbench.worker.script.patches import Patches, patch_tensorflow

            watched, self._patches = self._new_watched(), Patches()
            patch_tensorflow(watched, self._patches)
            if self._effects is not None:
                patch_writers(self._effects, self._patches)
            watched.begin()
            self.watched, self._guard.deciding = watched, watched.recorder.replaced or self._guard.deciding
            self._loops.hearing = self._new_hearing(watched)
            for package in self._keras:
                self._watch_keras(package)

        self._noted("watching the script", watch)

    def _new_watched(self) -> Any:
        from xttsbench.worker.script.watched import Watched

        return Watched(self.report, self.end_at_once)

    def _new_hearing(self, watched: Any) -> Hearing:
        from xttsbench.worker.script.own_batches import OwnBatchesHeard

        return OwnBatchesHeard(watched, self._loops)

    def _keras_loaded(self, package: str) -> None:
        self._keras.append(package)
        if self.watched is None:  # TensorFlow comes later, or not at all
            return
        self._noted("watching Keras", functools.partial(self._watch_keras, package))

    def _h5py_loaded(self) -> None:
        if self._effects is not None:
            self._noted("watching h5py", functools.partial(patch_h5py, self._effects))

    def _shared_memory_loaded(self) -> None:
        if self._effects is not None:
            patch_shared_memory(self._effects)

    def _watch_keras(self, package: str) -> None:
        from xttsbench.worker.script.patches import patch_keras

        patch_keras(self.watched, self._patches, package)

    def _measure_afterwards(self) -> None:
        from xttsbench.worker.script.afterwards import measure_script

        measure_script(self.report, self.watched, self._patches)

    def _noted(self, what: str, action: Callable[[], None]) -> None:
        """Runs an action of our own; its failure is reported, and the script goes on."""
        try:
            action()
        except StoppedByUs:
            pass
        except (Exception, SystemExit) as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            name = os.path.basename(place.filename)
            self.channel.note(f"{what} failed: {type(error).__name__}: {str(error)[:300]} ({name}:{place.lineno})")

    @contextlib.contextmanager
    def _limited(self, limit_s: float, code: int) -> Any:
        """Within, the process has so long; then it ends with that code, whatever hangs."""
        done = threading.Event()

        def wait() -> None:
            if not done.wait(limit_s):
                self.channel.send({"done": True})
                flush()
                kill_group(code)

        threading.Thread(target=wait, name="xttsbench-limit", daemon=True).start()
        try:
            yield
        finally:
            done.set()


def _run_as_main(path: str) -> None:
    """Run a file as ``__main__``, with the attributes that ``python FILE`` gives it; its path is absolute, as there."""
    main, loader = types.ModuleType("__main__"), SourceFileLoader("__main__", path)
    given = {
        "__file__": path,
        "__loader__": loader,
        "__builtins__": builtins,
        "__cached__": None,
        "__annotations__": {},
    }
    vars(main).update(given)
    sys.modules["__main__"] = main
    exec(code_of(loader.get_data(path), path), vars(main))


def report_over(connection: socket.socket, rows: int, *, outlives_parent: bool = False) -> ScriptReport:
    """Report over a connection to the parent, which sends the specification first.

    Raises:
        OSError: the parent is gone.
    """
    channel = LockedChannel(out_of_the_way(connection), shared_rows(rows), outlives_parent=outlives_parent)
    return ScriptReport(channel.receive(TrialSpec), channel)


def main(connection: socket.socket, rows: int) -> int:
    """Run the script that the parent names over the connection, and leave with its code: this does not return."""
    try:
        report = report_over(connection, rows)
    except OSError:
        return 1
    if report.spec.checkout is not None:
        enter(report.spec.checkout)
    if report.spec.script is not None:
        from xttsbench.worker.script.again.process import AgainProcess

        AgainProcess(report, report.spec.script).start()
    Process(report).start()
    raise AssertionError("unreachable")


def exit_code_of(left: SystemExit) -> int:
    """As Python's own: no code is 0, a number itself, and anything else is printed and means 1."""
    if left.code is None:
        return 0
    if isinstance(left.code, int):
        return left.code & 0xFF
    with contextlib.suppress(Exception):
        print(left.code, file=sys.stderr)
    return 1


def _caused_by_stop(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, StoppedByUs):
            return True
        error = error.__cause__ or error.__context__
    return False


def _own_part(error: BaseException, script: str) -> TracebackType | None:
    """The traceback from the script's own frame on, without those of ours in between."""
    first = error.__traceback__
    while first is not None and os.path.abspath(first.tb_frame.f_code.co_filename) != os.path.abspath(script):
        first = first.tb_next
    part = first
    while part is not None and part.tb_next is not None:
        if owner(part.tb_next.tb_frame.f_code.co_filename) == "ours":
            part.tb_next = part.tb_next.tb_next
        else:
            part = part.tb_next
    return first


def print_error(error: BaseException, script: str) -> None:
    """Print what a script raised as Python would, from the script's own frame on."""
    with contextlib.suppress(Exception):
        own = error.with_traceback(_own_part(error, script) or error.__traceback__)
        sys.excepthook(type(own), own, own.__traceback__)


def _wait_for_threads() -> None:
    """Python waits for threads that are not daemons, for ever; a thread that never ends gets a few seconds here."""
    until = time.monotonic() + _THREADS_S
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join(max(until - time.monotonic(), 0))


def kill_group(code: int) -> None:
    """End this process with all that it started, where the process group is its own; else end it alone."""
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    exit_now(code)
