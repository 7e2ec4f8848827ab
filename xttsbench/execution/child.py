"""A process that works for this one: how it is started and followed, its rows, and its record while that comes in.

How long it may take and be silent follows the machine's pace, so that what is slow is not taken for hung.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic import ValidationError

from xttsbench.errors import HelperError
from xttsbench.execution.limits import Limits
from xttsbench.processes import readable, signal_name, with_package
from xttsbench.records.readings import Readings
from xttsbench.records.rows import ROWS, RowMemory
from xttsbench.records.trial import Segment, TrialError, TrialRecord, TrialSpec, TrialStatus

_LOOK_S: Final = 0.25  # steps that end are seen so soon; they send no message


def now_utc() -> str:
    """The time now, as plans and records have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Monitor(Protocol):
    """Readings beside a child, taken from the parent's own loop (see :mod:`xttsbench.probes.monitor`)."""

    def due(self, now_ns: int) -> float:
        """Seconds until the next sample."""

    def tick(self, now_ns: int) -> None:
        """Take a sample if one is due."""

    def sample(self) -> None:
        """Take a sample now: something begins or ends."""

    def readings(self) -> Readings:
        """Everything read so far."""


def start(
    module: str,
    *arguments: int | str,
    what: str,
    environment: Mapping[str, str],
    print_to_stderr: bool = False,
    log: Path | None = None,
    start_new_session: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a module of this package in a process of its own.

    Args:
        module: that is run.
        arguments: of it; numbers are descriptors, which it inherits.
        what: the process, in words, for whoever reads why it did not start.
        environment: all of its variables.
        print_to_stderr: what it prints goes to standard error.
        log: a file at whose end all goes that it prints, on either stream.
        start_new_session: Ctrl-C is this process's to handle.

    Raises:
        HelperError: it could not be started.
    """
    with contextlib.ExitStack() as stack:
        try:
            kept = None if log is None else stack.enter_context(log.open("ab"))
            return subprocess.Popen(
                # -P: a random.py in the working directory must not stand in for the standard library's.
                [sys.executable, "-P", "-m", module, *map(str, arguments)],
                pass_fds=[one for one in arguments if isinstance(one, int)],
                stdout=kept or (sys.stderr.fileno() if print_to_stderr else None),
                stderr=kept,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                start_new_session=start_new_session,
            )
        except OSError as error:
            raise HelperError(f"{what} could not be started: {error.strerror or error}.") from error


def child_environment(more: Mapping[str, str] | None = None, *, has_gpu: bool, quiet: bool = True) -> dict[str, str]:
    """Environment variables for a child: quiet, and with the path of this package.

    It is without TensorFlow's notices where ``quiet``, unless the user asks for them; ``more`` are put on top of all.
    """
    environ = dict(os.environ)
    if quiet:
        # TensorFlow's notices would bury the report; whoever wants them sets the variable. Without an NVIDIA driver
        # its complaint about that is logged as an error, in every trial, and says nothing that the report does not.
        environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if has_gpu else "3")
    return with_package(environ) | dict(more or {})


class SharedRows:
    """A file in memory to be handed over by its descriptor, which is open within the context manager.

    Its size is sealed, so that nothing the other side does can take memory away from under this one.

    Args:
        rows: of each segment that are kept.

    Attributes:
        memory: its rows, as long as this process wants to read them.
    """

    def __init__(self, rows: int = ROWS) -> None:
        size = RowMemory.size_bytes(rows)
        self._descriptor = os.memfd_create("xttsbench-rows", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._descriptor, size)
        with contextlib.suppress(OSError):  # some container layers know no seals
            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self.memory = RowMemory(mmap.mmap(self._descriptor, size))

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def __enter__(self) -> SharedRows:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


class Collected:
    """Builds a :class:`TrialRecord` from the child's messages and rows.

    Args:
        spec: what the child was told.
        rows: where the child writes its rows; by default memory of this process, for a trial in this one.
    """

    def __init__(self, spec: TrialSpec, rows: RowMemory | None = None) -> None:
        self.rows = rows or RowMemory(mmap.mmap(-1, RowMemory.size_bytes()))
        self._spec = spec
        self._parts: dict[str, Any] = {}
        self._notes: list[str] = []
        self.phase = "fork"
        self.status: TrialStatus = "ok"
        self.cause: str | None = None
        self.error: dict[str, Any] | None = None
        self.done = False
        self.turns: list[list[int]] = []
        """Start and end of each turn that is over; the first entry is empty and says that the process is ready."""

    def part(self, name: str) -> Any:
        """A part of the record as it came; ``None`` as long as it has not."""
        return self._parts.get(name)

    @property
    def steps(self) -> int:
        """Steps that have ended, over all segments."""
        return self.rows.steps

    def take(self, message: dict[str, Any]) -> None:
        """Take one message of the child (see :class:`xttsbench.worker.channel.Channel`)."""
        if "phase" in message:
            self.phase = message["phase"]
        elif "part" in message:
            self._parts[message["part"]] = message["value"]
        elif "note" in message:
            self._notes.append(message["note"])
        elif "traces" in message:
            self._parts["traces"] = message["traces"]
        elif "status" in message:
            self.status, self.cause, self.error = message["status"], message.get("cause"), message.get("error")
        elif "waits" in message:
            self.turns.append(message["waits"])
        elif "done" in message:
            self.done = True

    def interrupted(self) -> None:
        """Note that the user ended the run."""
        self.status, self.cause = "interrupted", f"interrupted in phase {self.phase!r}"

    def ended(self, code: int) -> None:
        """Name an end that the child did not announce itself, by its exit code (negative: by that signal)."""
        if code < 0:
            self.status, self.cause = "killed", f"killed by {signal_name(-code)} in phase {self.phase!r}"
        else:
            self.status = "exited"
            self.cause = f"the process ended with exit code {code} in phase {self.phase!r}, without a word"

    def record(self, *, started_utc: str, duration_s: float, readings: Readings) -> TrialRecord:
        """The journal line, with everything that has arrived."""
        found = self.rows.read()
        segments = [Segment(name=one.name, columns=one.columns, warmup_steps=one.warmup_steps) for one in found]
        lost = [
            f"of the segment {one.name} the last {len(one.columns.get('wall_ns', ()))} rows are kept"
            for one in found
            if one.lost
        ]
        fields: dict[str, Any] = {
            "spec": self._spec,
            "status": self.status,
            "cause": self.cause,
            "error": TrialError(**self.error) if self.error else None,
            "started_utc": started_utc,
            "duration_s": duration_s,
            "segments": tuple(segments),
            "readings": readings,
            "notes": tuple(dict.fromkeys([*self._notes, *lost])),
        }
        try:
            return TrialRecord.model_validate(fields | self._parts)
        except ValidationError as error:
            # A part that does not fit must cost neither the samples nor the other parts.
            unfit = {str(problem["loc"][0]) for problem in error.errors()}
            fit = {name: value for name, value in self._parts.items() if name not in unfit}
            dropped = f"dropped, since they do not fit the record: {', '.join(sorted(unfit))}"
            return TrialRecord.model_validate(fields | fit | {"notes": (*fields["notes"], dropped)})


class Lines:
    """Lines to and from a child, which hold nothing up: it reads the rest of one when it comes to it.

    Attributes:
        unsent: what it has not taken yet.
        closed: whether its end is known to be closed.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.unsent = b""
        self.closed = False
        self._buffer = b""

    def tell(self, line: str) -> None:
        """Send one line; a child that has ended does not hear it, and its exit code says how it ended."""
        self.unsent += line.encode() + b"\n"
        self.send()

    def send(self) -> None:
        """Send what it has not taken yet, as much as the socket takes now."""
        try:
            while self.unsent:
                self.unsent = self.unsent[self.connection.send(self.unsent, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            pass
        except OSError:
            self.unsent = b""  # what it has said is there to be read, and then the end

    def read(self) -> list[dict[str, Any]] | None:
        """Messages that have come whole; ``None`` where nothing is there to be read.

        A torn one, from a child that died while writing, is empty.
        """
        try:
            data = self.connection.recv(1 << 18, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            data = b""
        self.closed = not data
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return None if self.closed else [_message_of(line) for line in lines]


def _message_of(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


class Follower:
    """Reads what a child tells, sees its steps end, and takes readings beside it meanwhile."""

    def __init__(self, connection: socket.socket, collected: Collected) -> None:
        self.lines = Lines(connection)
        self.collected = collected
        self.monitor: Monitor | None = None
        self._steps = 0

    @property
    def over(self) -> bool:
        """Whether the child has said that it is done, has ended, or has broken a limit."""
        return self.lines.closed or self.collected.done or self.collected.status != "ok"

    def follow(self, limits: Limits | None = None, until: Callable[[], bool] = lambda: False) -> None:
        """Read messages until that is so, or the child says that it is done, ends, or breaks a limit."""
        began = heard = time.monotonic()
        while not self.over and not until():
            now, timeout = time.monotonic(), None
            if self.collected.steps != self._steps:
                heard = now
                self._progressed()
            if limits is not None:
                if self._broke(limits, now - began, now - heard):
                    return
                timeout = min(began + limits.time_s - now, heard + limits.stall_s - now, _LOOK_S)
            if self.monitor is not None:
                self.monitor.tick(time.perf_counter_ns())
                due_s = self.monitor.due(time.perf_counter_ns())
                timeout = due_s if timeout is None else min(timeout, due_s)
            ended = self.has_ended()
            if ended:
                timeout = 0.0
            connection = self.lines.connection
            ready = readable(self.sources(), timeout, writable=connection if self.lines.unsent else None)
            self.lines.send()
            if connection.fileno() in ready:
                heard = time.monotonic()
                for message in self.lines.read() or ():
                    self.take(message)
                if not self.lines.closed:
                    self._progressed()
            elif ended:  # and all that it sent has been read
                self.lines.closed = True

    def has_ended(self) -> bool:
        """Whether the child is known to have ended, other than by its pipe."""
        return False

    def sources(self) -> list[socket.socket]:
        """Sockets to wait for."""
        return [self.lines.connection]

    def take(self, message: dict[str, Any]) -> None:
        """Take one message."""
        self.collected.take(message)

    def progress(self) -> None:
        """Something came, or steps have ended."""

    def _broke(self, limits: Limits, elapsed_s: float, silent_s: float) -> bool:
        collected = self.collected
        if elapsed_s > limits.time_s:
            collected.status = "time_limit"
            collected.cause = f"still in phase {collected.phase!r} after its time limit of {limits.time_s:.0f} s"
        elif silent_s > limits.stall_s:
            collected.status = "stalled"
            collected.cause = (
                f"no step ended and nothing was heard for {limits.stall_s:.0f} s in phase {collected.phase!r}"
            )
        return collected.status in ("time_limit", "stalled")

    def _progressed(self) -> None:
        self._steps = self.collected.steps
        self.progress()
