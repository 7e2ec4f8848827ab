"""A script that is watched, from the parent: started by Python itself, and followed to its own end.

It has this process's terminal, standard input and process group, so that whatever a terminal does reaches it by itself.
Signals that somebody sends to this process alone are passed on. Nothing ends the script but what would end it without
us, and the death of this process: what fails here is noted, and the script is followed to its end.
"""

from __future__ import annotations

import glob
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from xttsbench.errors import HelperError
from xttsbench.execution import HELD_BACK, ending, held_back
from xttsbench.execution.child import Lines, SharedRows
from xttsbench.execution.guard import Guard
from xttsbench.processes import checkout
from xttsbench.records.trial import TrialSpec

ROWS: Final = 8192
"""Steps whose rows are kept, the newest."""
TICK_S: Final = 0.5
_FROM_KERNEL: Final = 0x80  # ``si_code`` of a signal that a terminal sent, which has reached the script as well


class Listener(Protocol):
    """Receiver of the events of a watched run; an error that a method raises is noted, and ends nothing."""

    guard: Guard

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
    """End of the script's process: its exit code, negative where a signal ended it."""

    returncode: int
    asked: int | None  # the last signal that asked this process or the terminal's group to end; ``None`` where none did


def run_whole(spec: TrialSpec, listener: Listener, shared: SharedRows, *, print_to_stderr: bool) -> Left:
    """Run a script to its end, whatever that is.

    Raises:
        HelperError: it could not be started.
        KeyboardInterrupt: a signal asked for the end before.
    """
    with held_back():
        for number in {*ending.SIGNALS, signal.SIGQUIT} & signal.sigpending():
            if signal.getsignal(number) != signal.SIG_IGN:
                ending.note(number)
                raise KeyboardInterrupt  # somebody asked for the end before there was a script to tell it to
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                process = _started(spec, theirs.fileno(), shared.fileno(), print_to_stderr=print_to_stderr)
            listener.guard("Noting the start", listener.started, process.pid)
            following = _Following(process, ours, listener)
            listener.guard("Telling the script's process what to watch", following.lines.tell, spec.to_line())
            listener.guard("Following the script", following.follow)
            following.wait()  # where that failed; else it has ended
            return Left(process.returncode, following.asked)


_STARTUP: Final = Path(__file__).parent.parent / "worker" / "script" / "startup"


def _started(spec: TrialSpec, connection: int, rows: int, *, print_to_stderr: bool) -> subprocess.Popen[bytes]:
    """Start ``python script``, with the module on its path that watches it (see its ``sitecustomize``).

    It inherits what this process would have: the descriptors, too, that a shell opened for it.
    """
    own = os.environ.get("PYTHONPATH")
    given = {
        "connection": connection,
        "rows": rows,
        "signals": [int(number) for number in HELD_BACK],
        "root": checkout(),
        "environment": {} if own is None else {"PYTHONPATH": own},
    }
    path = os.pathsep.join(filter(None, (str(_STARTUP), own)))
    for descriptor in (connection, rows):
        os.set_inheritable(descriptor, True)
    try:
        return subprocess.Popen(
            [sys.executable, spec.target, *spec.arguments],
            stdout=sys.stderr.fileno() if print_to_stderr else None,
            env=os.environ | {"XTTSBENCH_WATCHED": json.dumps(given), "PYTHONPATH": path},
            close_fds=False,
        )
    except OSError as error:
        raise HelperError(f"The script's process could not be started: {error.strerror or error}.") from error
    finally:
        for descriptor in (connection, rows):
            os.set_inheritable(descriptor, False)


class _Following:
    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket, listener: Listener) -> None:
        self._process = process
        self.lines = Lines(connection)
        self._listener = listener
        self.asked: int | None = None

    def follow(self) -> None:
        due = time.monotonic() + TICK_S
        while self._process.poll() is None:
            received = signal.sigtimedwait(HELD_BACK, max(due - time.monotonic(), 0.0))
            if received is not None and received.si_signo != signal.SIGCHLD:
                self._signalled(received)
            self.lines.send()
            self._read()
            if time.monotonic() >= due:
                due = time.monotonic() + TICK_S
                self._listener.guard("Keeping what was seen", self._listener.tick)
        self._read()

    def wait(self) -> None:
        while self._process.poll() is None:
            received = signal.sigtimedwait(HELD_BACK, TICK_S)
            if received is not None and received.si_signo != signal.SIGCHLD:
                self._listener.guard("Passing a signal on", self._signalled, received)

    def _signalled(self, received: signal.struct_siginfo) -> None:
        number, pid = received.si_signo, self._process.pid
        if number == signal.SIGUSR1 and not _is_wanted(pid, number):
            self._listener.guard("Showing what was seen", self._listener.show)
            return
        asks = number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
        if asks and not _masks(f"/proc/{pid}/status", number)["SigIgn"]:
            self.asked = number
        if received.si_code != _FROM_KERNEL:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _read(self) -> None:
        while (messages := self.lines.read()) is not None:
            for message in messages:
                self._listener.guard("Reading what the script's process says", self._listener.take, message)


def _is_wanted(pid: int, number: int) -> bool:
    """Whether a process does anything with a signal but die of it: handles it, in Python or C, or waits for it.

    Whoever waits has it blocked in all threads; so has a process that is about to become the script's, with all others
    that were held back.
    """
    if _masks(f"/proc/{pid}/status", number)["SigCgt"]:
        return True
    threads = glob.glob(f"/proc/{pid}/task/*/status")
    blocked = [_masks(thread, number)["SigBlk"] for thread in threads]
    others = [_masks(f"/proc/{pid}/status", other)["SigBlk"] for other in HELD_BACK]
    return bool(blocked) and all(blocked) and not all(others)


def _masks(status: str, number: int) -> defaultdict[str, bool]:
    """Whether a signal is blocked, ignored, caught, by the names in ``/proc``; not so where the process is gone."""
    found: defaultdict[str, bool] = defaultdict(bool)
    with suppress(OSError, ValueError):
        for line in Path(status).read_text(encoding="ascii", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name in ("SigBlk", "SigIgn", "SigCgt"):
                found[name] = bool(int(value, 16) >> (number - 1) & 1)
    return found
