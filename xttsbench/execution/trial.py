"""One trial from the parent: fork, feed, read its pipe, watch its limits and its readings, and name how it ended."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import psutil

from xttsbench.execution.child import Collected, SharedRows
from xttsbench.execution.helper import Helper, kill_group
from xttsbench.execution.limits import Limits
from xttsbench.probes.quota import memory_limit_bytes
from xttsbench.records.readings import Readings
from xttsbench.records.trial import RoundMark, TrialRecord, TrialSpec

_MEMORY_SHARE: Final = 0.7
"""A process that is killed while it holds this share of the memory was most likely killed for it."""

_LOOK_S: Final = 0.25
"""Steps that end are seen so soon; they send no message."""

Progress = Callable[[str, int], None]
"""Called with the phase and the steps so far."""


class Monitor(Protocol):
    """Readings beside a trial, taken from the parent's own loop (see :mod:`xttsbench.probes.monitor`)."""

    def due(self, now_ns: int) -> float:
        """Seconds until the next sample."""

    def tick(self, now_ns: int) -> None:
        """Take a sample if one is due."""

    def sample(self) -> None:
        """Take a sample now: something begins or ends."""

    def readings(self) -> Readings:
        """Everything read so far."""


def run_trial(
    spec: TrialSpec,
    helper: Helper,
    limits: Limits,
    *,
    monitor: Callable[[int], Monitor] | None = None,
    progress: Progress | None = None,
) -> TrialRecord:
    """Run one trial to its end, whatever that is; everything that arrived is in the record.

    ``monitor`` is called with the process id and gives the readings. On ``KeyboardInterrupt`` the trial is killed and
    the record has the status ``interrupted``: the caller decides what to do next.

    Raises:
        HelperError: the helper is gone before the trial began.
    """
    child = Child(spec, helper, monitor=monitor, progress=progress)
    try:
        child.tell(spec.model_dump_json())
        child.follow(limits)
    except KeyboardInterrupt:
        child.interrupted()
    return child.end()


class Child:
    """A forked process that runs one trial: its pipe, what it has told so far, its readings, and how it ended.

    Args:
        spec: of the trial; it is not sent here.
        helper: forks it.
        monitor: called with the process id; gives the readings, which are taken while the child is followed.
        progress: told of phases and steps.

    Raises:
        HelperError: the helper is gone.
    """

    def __init__(
        self,
        spec: TrialSpec,
        helper: Helper,
        *,
        monitor: Callable[[int], Monitor] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._helper = helper
        self._progress = progress
        self._started_utc = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._began = time.monotonic()
        self._buffer = b""
        self._steps = 0
        self._closed = False
        self._connection, theirs = socket.socketpair()
        try:
            with theirs, SharedRows() as rows:
                self.collected = Collected(spec, rows.memory)
                self.pid = helper.fork(theirs, rows)
        except BaseException:
            self._connection.close()
            raise
        self.monitor = monitor(self.pid) if monitor else None

    @property
    def over(self) -> bool:
        """Whether it has said that it is done, has ended, or has broken a limit."""
        return self._closed or self.collected.done or self.collected.status != "ok"

    def tell(self, line: str) -> None:
        """Send it one line; one that has ended does not hear it, and its wait status says how it ended."""
        try:
            self._connection.sendall(line.encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            self._closed = True

    def interrupted(self) -> None:
        """Note that the user ended the run."""
        self.collected.status, self.collected.cause = "interrupted", f"interrupted in phase {self.collected.phase!r}"

    def follow(self, limits: Limits, until: Callable[[], bool] = lambda: False) -> None:
        """Read messages until that is so, or the trial says that it is done, ends, or breaks a limit.

        The helper's word that it ended counts beside the closing of its pipe, which a process that the target forked
        can hold open.
        """
        began = heard = time.monotonic()
        collected, control = self.collected, self._helper.control
        sources = [self._connection] if control is None else [self._connection, control]
        while not self.over and not until():
            now = time.monotonic()
            if collected.steps != self._steps:
                heard = now
                self._progressed()
            if now - began > limits.time_s:
                collected.status = "time_limit"
                collected.cause = f"still in phase {collected.phase!r} after its time limit of {limits.time_s:.0f} s"
                return
            if now - heard > limits.stall_s:
                collected.status = "stalled"
                collected.cause = (
                    f"no step ended and nothing was heard for {limits.stall_s:.0f} s in phase {collected.phase!r}"
                )
                return
            timeout = min(began + limits.time_s - now, heard + limits.stall_s - now, _LOOK_S)
            if self.monitor is not None:
                self.monitor.tick(time.perf_counter_ns())
                timeout = min(timeout, self.monitor.due(time.perf_counter_ns()))
            ended = self._helper.has_ended(self.pid)
            ready, _, _ = select.select(sources, [], [], 0.0 if ended else max(timeout, 0.0))
            if self._connection in ready:
                heard = time.monotonic()
                self._read()
            elif ended:  # and all that it sent has been read
                self._closed = True

    def _read(self) -> None:
        try:
            data = self._connection.recv(1 << 18)
        except ConnectionResetError:
            data = b""
        self._closed = not data
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self.collected.take(_message(line))
        if data:
            self._progressed()

    def _progressed(self) -> None:
        self._steps = self.collected.steps
        if self._progress is not None:
            self._progress(self.collected.phase, self._steps)

    def so_far(self, rounds: Sequence[RoundMark] = ()) -> TrialRecord:
        """Its record with what has arrived, while it goes on."""
        readings = self.monitor.readings() if self.monitor else Readings()
        record = self.collected.record(
            started_utc=self._started_utc, duration_s=time.monotonic() - self._began, readings=readings
        )
        return record.model_copy(update={"rounds": tuple(rounds)}) if rounds else record

    def end(self, rounds: Sequence[RoundMark] = ()) -> TrialRecord:
        """End what still runs of it and give its record; everything that arrived is there."""
        collected = self.collected
        # Left alone a moment where it is done or the pipe closed by itself, so that its own end is what we see.
        _end(self.pid, self._helper, collected, patient=collected.done or collected.status == "ok")
        self._connection.close()
        record = self.so_far(rounds)
        if record.status == "killed" and (cause := _out_of_memory(record.readings)):
            record = record.model_copy(update={"status": "out_of_memory", "cause": f"{record.cause}: {cause}"})
        return record


def _out_of_memory(readings: Readings) -> str | None:
    """Why a killed trial is taken for one that ran out of memory, or ``None``: the kernel itself does not tell."""
    if readings.host is None or not readings.host.rss_bytes:
        return None
    most = max(readings.host.rss_bytes)
    limit = memory_limit_bytes() or psutil.virtual_memory().total
    if most < _MEMORY_SHARE * limit:
        return None
    return f"it held {most / 2**30:.1f} of {limit / 2**30:.1f} GiB, and the kernel kills so when memory runs out"


def _message(line: bytes) -> dict[str, Any]:
    """A message of the child; a torn one, from a child that died while writing, is empty."""
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _end(pid: int, helper: Helper, collected: Collected, *, patient: bool) -> None:
    """End the trial's process group, learn its wait status from the helper, and name an end that was not expected."""
    status = helper.wait_status(pid, 2.0) if patient else None
    died_by_itself = status is not None
    kill_group(pid)  # what the target started and left behind goes with it
    if status is None:
        status = helper.wait_status(pid, 5.0)
    if collected.done or collected.status != "ok":
        return
    if status is None and (code := helper.exit_code(0.5)) is not None:
        collected.status = "killed"
        collected.cause = (
            f"the helper process ended (exit code {code}) and the trial with it, in phase {collected.phase!r}"
        )
    elif not died_by_itself:
        collected.status, collected.cause = "exited", f"closed its pipe in phase {collected.phase!r} and did not end"
    elif status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in signal.valid_signals() else str(number)
        collected.status = "killed"
        collected.cause = f"killed by {name} in phase {collected.phase!r}"
    else:
        code = None if status is None else os.waitstatus_to_exitcode(status)
        collected.status = "exited"
        collected.cause = f"the process ended with exit code {code} in phase {collected.phase!r}, without a word"
