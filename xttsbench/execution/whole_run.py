"""A script that is watched to its end, from the parent: started beside it, signalled through it, followed, and named.

The script has this process's terminal, standard input and process group, so that whatever a terminal does reaches it
by itself. Signals that somebody sends to this process alone are passed on. Nothing ends the script but what would end
it without us, and the death of this process.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from xttsbench.errors import HelperError
from xttsbench.execution.child import Collected, SharedRows, child_environment
from xttsbench.records.trial import TrialSpec

ROWS: Final = 8192
"""Steps whose rows are kept, the newest."""
TICK_S: Final = 0.5
_HELD_BACK: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
)
_FROM_KERNEL: Final = 0x80
"""``si_code`` of a signal that a terminal sent, which has reached the script as well."""


class Listener(Protocol):
    """Whom the run tells."""

    collected: Collected

    def take(self, message: dict[str, Any]) -> None:
        """Take one message of the script's process."""

    def tick(self) -> None:
        """So much time has gone by; rows may have come."""

    def show(self) -> None:
        """Somebody wants to see what is known so far."""

    def started(self, pid: int) -> None:
        """The script's process is there."""


@dataclass(frozen=True)
class Left:
    """How the script's process ended: its exit code, negative where a signal ended it."""

    returncode: int
    asked: int | None
    """The last signal that asked this process or the terminal's group to end; ``None`` where none did."""


def run_whole(spec: TrialSpec, listener: Listener, shared: SharedRows, *, print_to_stderr: bool) -> Left:
    """Run a script to its end, whatever that is.

    Args:
        spec: names the script and its arguments.
        listener: hears of it.
        shared: gets its rows.
        print_to_stderr: what it prints goes to standard error.

    Raises:
        HelperError: it could not be started.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
    ours, theirs = socket.socketpair()
    try:
        with ours:
            with theirs:
                process = _started(theirs, shared, print_to_stderr=print_to_stderr)
            listener.started(process.pid)
            with suppress(BrokenPipeError, ConnectionResetError):
                ours.sendall(spec.model_dump_json().encode() + b"\n")
            ours.setblocking(False)
            return _Following(process, ours, listener).to_the_end()
    finally:
        # What is held back now was for the script, which has ended.
        while signal.sigtimedwait(_HELD_BACK, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _started(theirs: socket.socket, shared: SharedRows, *, print_to_stderr: bool) -> subprocess.Popen[bytes]:
    held_back = ",".join(str(int(number)) for number in _HELD_BACK)
    descriptors = (theirs.fileno(), shared.fileno())
    environment: Mapping[str, str] = child_environment(has_gpu=True, quiet=False)
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "xttsbench.worker.script", *map(str, descriptors), held_back],
            pass_fds=descriptors,
            stdout=sys.stderr.fileno() if print_to_stderr else None,
            env=environment,
        )
    except OSError as error:
        raise HelperError(f"The script's process could not be started: {error.strerror or error}.") from error


class _Following:
    """Waits for signals and messages, and for the end."""

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket, listener: Listener) -> None:
        self._process = process
        self._connection = connection
        self._listener = listener
        self._buffer = b""
        self._shows = False
        self._asked: int | None = None

    def to_the_end(self) -> Left:
        """Return when the script's process has ended, and all that it told is heard."""
        due = time.monotonic() + TICK_S
        while self._process.poll() is None:
            received = signal.sigtimedwait(_HELD_BACK, max(due - time.monotonic(), 0.0))
            if received is not None and received.si_signo != signal.SIGCHLD:
                self._signalled(received)
            self._read()
            if time.monotonic() >= due:
                due = time.monotonic() + TICK_S
                self._listener.tick()
        self._read()
        return Left(self._process.returncode, self._asked)

    def _signalled(self, received: signal.struct_siginfo) -> None:
        number = received.si_signo
        if number == signal.SIGUSR1 and self._shows:
            self._listener.show()
            return
        if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            self._asked = number
        if received.si_code != _FROM_KERNEL:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def _read(self) -> None:
        while True:
            try:
                data = self._connection.recv(1 << 18)
            except (BlockingIOError, ConnectionResetError):
                return
            if not data:
                return
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:  # torn, from a process that died while writing
            return
        if "shows" in message:
            self._shows = bool(message["shows"])
        elif "show" in message:
            self._listener.show()
        else:
            self._listener.take(message)
