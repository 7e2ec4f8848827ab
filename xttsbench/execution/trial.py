"""One trial from the parent: fork, feed, read its pipe, watch its limits and its readings, and name how it ended."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import psutil

from xttsbench.execution.child import Collected, Follower, Limits, Monitor, SharedRows
from xttsbench.execution.helper import Helper, kill_group
from xttsbench.probes.quota import memory_limit_bytes
from xttsbench.records.readings import Readings
from xttsbench.records.trial import RoundMark, TrialRecord, TrialSpec

_MEMORY_SHARE: Final = 0.7
"""A process that is killed while it holds this share of the memory was most likely killed for it."""

Progress = Callable[[str, int], None]
"""Called with the phase and the steps so far."""


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
        child.collected.interrupted()
    return child.end()


class Child(Follower):
    """A forked process that runs one trial: its pipe, what it has told so far, its readings, and how it ended.

    The helper's word that it ended counts beside the closing of its pipe, which a process that the target forked can
    hold open.

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
        self._told = progress
        self._started_utc = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._began = time.monotonic()
        connection, theirs = socket.socketpair()
        try:
            with theirs, SharedRows() as rows:
                super().__init__(connection, Collected(spec, rows.memory))
                self.pid = helper.fork(theirs, rows)
        except BaseException:
            connection.close()
            raise
        self.monitor = monitor(self.pid) if monitor else None

    def has_ended(self) -> bool:
        """Whether the helper says that it has ended."""
        return self._helper.has_ended(self.pid)

    def sources(self) -> list[socket.socket]:
        """Its own pipe, and the helper's."""
        return [self.connection] if self._helper.control is None else [self.connection, self._helper.control]

    def progress(self) -> None:
        """Tell of phase and steps."""
        if self._told is not None:
            self._told(self.collected.phase, self.collected.steps)

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
        self.connection.close()
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
    elif status is not None:
        collected.ended(os.waitstatus_to_exitcode(status))
