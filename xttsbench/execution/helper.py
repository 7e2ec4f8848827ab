"""The helper process seen from the parent: started with an environment, asked for forks, ended for good.

With a trial's process id comes a descriptor of the process. The helper waits for what has ended, so only the descriptor
says for good who is meant; and it kills what the trial leaves behind before it says that the trial has ended.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from xttsbench.errors import HelperError
from xttsbench.execution.child import SharedRows, child_environment, start
from xttsbench.processes import TRIALS, readable

_START_S = 180.0  # importing TensorFlow takes 4-7 s on two cores; a cold disk can take much longer
_FORK_S = 30.0
_END_S = 2.0
_ROUNDS, _ROUND_S = 50, 0.01
"""Number and length, in seconds, of rounds in which what a helper leaves behind is killed."""
_PROCESS_GROUP: Final = 1 << 2  # PIDFD_SIGNAL_PROCESS_GROUP, since Linux 6.9
_SCRIPTS: Final = "scripts"


class Helper:
    """A process that has imported TensorFlow and forks trials, one or several at a time; a context manager.

    Args:
        environment: variables set on top of this process's own, for this helper and its trials.
        print_to_stderr: send what targets print to standard error (under ``--json``), else it goes through.
        log: a file for all that it and its trials print, see :func:`~xttsbench.execution.child.start`.
        has_gpu: whether the machine has an NVIDIA driver.
        scripts: run scripts: nothing is imported before a script does so itself, and its environment is this process's.
        imports: modules that are imported before a script does so after all, to save it the time.

    Raises:
        HelperError: it did not start (on entering).
    """

    def __init__(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        print_to_stderr: bool = False,
        log: Path | None = None,
        has_gpu: bool = False,
        scripts: bool = False,
        imports: Sequence[str] = (),
    ) -> None:
        self._imports = tuple(imports)
        self._environment = dict(environment or {})
        self._scripts = scripts
        self._has_gpu = has_gpu
        self._print_to_stderr = print_to_stderr
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = os.path.join(tempfile.gettempdir(), f"xttsbench-{secrets.token_hex(8)}")
        self.control: socket.socket | None = None
        self._buffer = b""
        self._gone = False
        self._ends: dict[int, int] = {}
        self._descriptors: dict[int, int] = {}  # of the trials that are not known to have ended
        self._received: deque[int] = deque()  # of trials whose ids have not been read yet
        self._asked = 0

    @property
    def pid(self) -> int:
        """Process id of the helper."""
        if self._process is None:
            raise HelperError("the helper process is not running.")
        return self._process.pid

    def exit_code(self, wait_s: float = 0.0) -> int | None:
        """Exit code of the helper (negative: of that signal); ``None`` while it runs, after waiting that long."""
        if self._process is None:
            return None
        try:
            return self._process.wait(timeout=wait_s)
        except subprocess.TimeoutExpired:
            return None

    def __enter__(self) -> Helper:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = start(
                "xttsbench.worker.helper",
                theirs.fileno(),
                *((_SCRIPTS, *self._imports) if self._scripts else ()),
                what="The helper process",
                environment=child_environment(
                    {**self._environment, TRIALS: self._folder},
                    has_gpu=self._has_gpu,
                    quiet=not self._scripts or bool(self._imports),
                ),
                print_to_stderr=self._print_to_stderr,
                log=self._log,
                start_new_session=True,
            )
        ours.settimeout(_FORK_S)
        self.control = ours
        return self

    def __exit__(self, *_: object) -> None:
        if self.control is not None:
            self.control.close()  # the helper kills its trials, if any, and ends
        if self._process is not None:
            try:
                self._process.wait(timeout=_END_S)
            except subprocess.TimeoutExpired:
                self._kill_all(self._process)
            if self._process.returncode:  # it was killed, and has ended nothing that its trials left behind
                _kill(self._marked)
        shutil.rmtree(self._folder, ignore_errors=True)
        for descriptor in (*self._descriptors.values(), *self._received):
            os.close(descriptor)
        self._descriptors.clear()

    def _kill_all(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the helper, which hangs or was stopped, after all that descends from it: orphans come to it."""
        with contextlib.suppress(psutil.Error):
            helper = psutil.Process(process.pid)
            helper.suspend()
            _kill(lambda: helper.children(recursive=True))
        process.kill()
        process.wait()

    def _marked(self) -> Iterable[psutil.Process]:
        """Processes that its trials have started, whoever is their parent by now."""
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if one.environ().get(TRIALS) == self._folder:
                    yield one

    def wait_ready(self) -> None:
        """Block until TensorFlow is imported; trials asked for earlier simply wait.

        Raises:
            HelperError: the helper ended instead, or took longer than three minutes.
        """
        event = self._next_event(_START_S)
        if event is None or event.get("event") != "ready":
            raise HelperError(
                f"The helper process did not start (exit code {self.exit_code(1.0)}); its own message is "
                f"{'above' if self._log is None else f'at the end of {self._log}'}. "
                f"Check that 'import tensorflow' works in {sys.executable}."
            )

    def fork(self, connection: socket.socket, rows: SharedRows) -> int:
        """Fork a trial that talks over ``connection`` and writes its rows there; returns its process id.

        Raises:
            HelperError: the helper is gone.
        """
        if self.control is None:
            raise HelperError("the helper process is not running.")
        try:
            socket.send_fds(self.control, [b"fork"], [connection.fileno(), rows.fileno()])
        except OSError as error:
            raise HelperError(f"The helper process is gone ({error}).") from error
        self._asked += 1
        while self._asked:
            event = self._next_event(_FORK_S)
            if event is None or event.get("event") not in ("ended", "forked"):
                raise HelperError(
                    f"The helper process did not fork a trial within {_FORK_S:.0f} s; it was killed or is stuck."
                )
            pid = self._heard(event)
            if event["event"] == "forked" and self._asked:  # for an earlier request, whose caller was interrupted
                self.signal(pid, signal.SIGKILL)
        return pid

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a trial and its process group; to nobody where it has ended, whoever has its id by now."""
        if (descriptor := self._descriptors.get(pid)) is None:
            return
        # Once, for a trial that goes on may have stopped itself again; it has no group before it has called setsid.
        for flags in (_PROCESS_GROUP, 0):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                try:
                    return signal.pidfd_send_signal(descriptor, number, None, flags)
                except ProcessLookupError:
                    continue
                except OSError as error:
                    if error.errno != errno.EINVAL:  # this kernel knows how to signal groups
                        raise
                # The id is the trial's own while that lives. Without a helper it ended just now, and what it started
                # may be there.
                if self._gone or not readable([descriptor], 0.0):
                    return os.killpg(pid, number)

    def has_ended(self, pid: int) -> bool:
        """Whether a trial is known to have ended, by what has been read from the helper and what is there to be read.

        A helper that is gone has taken its trials with it.
        """
        while pid not in self._ends and self._readable(0.0):
            event = self._next_event(0.0)
            if event is None:
                return self._gone
            self._without_parent(event)
        return pid in self._ends

    def wait_status(self, pid: int, timeout_s: float) -> int | None:
        """The wait status of a trial once it has ended; ``None`` where it has not in time, or the helper is gone."""
        end = time.monotonic() + timeout_s
        while pid not in self._ends:
            event = self._next_event(max(end - time.monotonic(), 0.0))
            if event is None:
                return None
            self._without_parent(event)
        return self._ends[pid]

    def _heard(self, event: Mapping[str, Any]) -> int:
        """Keep what a message says; returns whom it is about."""
        pid = int(event["pid"])
        if event["event"] == "ended":
            self._ends[pid] = int(event["status"])
            os.close(self._descriptors.pop(pid))
        else:
            self._asked -= 1
            if not self._received:
                raise HelperError("No file can be opened any more for a trial; close some, or raise 'ulimit -n'.")
            self._descriptors[pid] = self._received.popleft()
        return pid

    def _without_parent(self, event: Mapping[str, Any]) -> None:
        """Keep what a message says; nobody follows what was forked after who asked for it was interrupted."""
        pid = self._heard(event)
        if event["event"] == "forked":
            self.signal(pid, signal.SIGKILL)

    def _readable(self, timeout_s: float) -> bool:
        if b"\n" in self._buffer:
            return True
        return self.control is not None and bool(readable([self.control], timeout_s))

    def _next_event(self, timeout_s: float) -> dict[str, Any] | None:
        """The next message of the helper, or ``None`` when none came in time or the helper is gone."""
        if self.control is None:
            return None
        while b"\n" not in self._buffer:
            if not self._readable(timeout_s):
                return None
            try:
                data, received, _, _ = socket.recv_fds(self.control, 65536, 1, socket.MSG_CMSG_CLOEXEC)
                self._received += received
            except OSError:
                data = b""
            if not data:
                self._gone = True
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message


def _kill(find: Callable[[], Iterable[psutil.Process]]) -> None:
    """Kill what is found until nothing is: whoever is killed may have started more."""
    for _ in range(_ROUNDS):
        left = 0
        for one in find():
            with contextlib.suppress(psutil.Error):
                if one.status() != psutil.STATUS_ZOMBIE:
                    one.kill()  # only the process that it has seen: psutil compares when it started
                    left += 1
        if not left:
            break
        time.sleep(_ROUND_S)
