"""One trial from the parent: fork, feed, read its pipe, watch its limits and its readings, and name how it ended."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import psutil

from xttsbench.execution.collected import Collected
from xttsbench.execution.helper import Helper, kill_group
from xttsbench.execution.limits import Limits
from xttsbench.probes.quota import memory_limit_bytes
from xttsbench.records.readings import Readings
from xttsbench.records.trial import TrialRecord, TrialSpec

_MEMORY_SHARE: Final = 0.7
"""A process that is killed while it holds this share of the memory was most likely killed for it."""

Progress = Callable[[str, int], None]
"""Called with the phase and the steps so far."""


class Monitor(Protocol):
    """Readings beside a trial, taken from the parent's own loop (see :mod:`xttsbench.probes.monitor`)."""

    def due(self, now_ns: int) -> float:
        """Seconds until the next sample."""

    def tick(self, now_ns: int) -> None:
        """Take a sample if one is due."""

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
    collected = Collected(spec)
    started_utc, began = datetime.now(UTC).isoformat(timespec="milliseconds"), time.monotonic()
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            pid = helper.fork(theirs)
        watching = monitor(pid) if monitor else None
        try:
            ours.sendall(spec.model_dump_json().encode() + b"\n")
            _follow(ours, helper, collected, limits, watching, progress)
        except KeyboardInterrupt:
            collected.status, collected.cause = "interrupted", f"interrupted in phase {collected.phase!r}"
        except (BrokenPipeError, ConnectionResetError):
            pass  # it ended: the wait status tells how
        if not collected.done:
            # Left alone a moment where the pipe closed by itself, so that its own end is what we see.
            _end(pid, helper, collected, patient=collected.status == "ok")
        else:
            _end(pid, helper, collected, patient=True)
    readings = watching.readings() if watching else Readings()
    if collected.status == "killed" and (cause := _out_of_memory(readings)):
        collected.status, collected.cause = "out_of_memory", f"{collected.cause}: {cause}"
    return collected.record(started_utc=started_utc, duration_s=time.monotonic() - began, readings=readings)


def _follow(
    connection: socket.socket,
    helper: Helper,
    collected: Collected,
    limits: Limits,
    monitor: Monitor | None,
    progress: Progress | None,
) -> None:
    """Read messages until the trial says that it is done, ends, or breaks a limit.

    The helper's word that it ended counts beside the closing of its pipe, which a process that the target forked can
    hold open.
    """
    began = heard = time.monotonic()
    buffer = b""
    sources = [connection] if helper.control is None else [connection, helper.control]
    while not collected.done:
        now = time.monotonic()
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
        timeout = min(began + limits.time_s - now, heard + limits.stall_s - now)
        if monitor is not None:
            monitor.tick(time.perf_counter_ns())
            timeout = min(timeout, monitor.due(time.perf_counter_ns()))
        spoke = helper.has_event
        ready, _, _ = select.select(sources, [], [], 0.0 if spoke else max(timeout, 0.0))
        if connection not in ready:
            if ready or spoke:  # it ended, and all that it sent has been read
                return
            continue
        data = connection.recv(1 << 18)
        if not data:
            return
        heard = time.monotonic()
        buffer += data
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            collected.take(_message(line))
        if progress is not None:
            progress(collected.phase, collected.steps)


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
    event = helper.next_event(2.0) if patient else None
    died_by_itself = event is not None
    kill_group(pid)  # what the target started and left behind goes with it
    if event is None:
        event = helper.next_event(5.0)
    if collected.done or collected.status != "ok":
        return
    status = event.get("status") if event else None
    if event is None and (code := helper.exit_code(0.5)) is not None:
        collected.status = "killed"
        collected.cause = (
            f"the helper process ended (exit code {code}) and the trial with it, in phase {collected.phase!r}"
        )
    elif not died_by_itself:
        collected.status, collected.cause = "exited", f"closed its pipe in phase {collected.phase!r} and did not end"
    elif isinstance(status, int) and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in signal.valid_signals() else str(number)
        collected.status = "killed"
        collected.cause = f"killed by {name} in phase {collected.phase!r}"
    else:
        code = os.waitstatus_to_exitcode(status) if isinstance(status, int) else None
        collected.status = "exited"
        collected.cause = f"the process ended with exit code {code} in phase {collected.phase!r}, without a word"
