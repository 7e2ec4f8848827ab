"""One trial from the parent: fork, feed, read its pipe, watch its limits and its readings, and name how it ended.

Processes may take turns: each is warmed up once, and one at a time goes on. Whoever has no turn is stopped by signal,
by itself and right after its last step, so that its buffers stay as the steady run left them. Waiting until a pipeline
becomes idle would fill them instead, and lets the tuning of tf.data enlarge them from turn to turn; a stop of seconds
was measured to leave its pace alone (``docs/how-it-decides.md``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psutil

from xttsbench.execution.child import Collected, Follower, Monitor, SharedRows, now_utc
from xttsbench.execution.ending import interruptible
from xttsbench.execution.helper import Helper
from xttsbench.execution.limits import Limits
from xttsbench.probes.procfs import memory_limit_bytes, parse_stat
from xttsbench.records.readings import Readings
from xttsbench.records.trial import Look, RoundMark, TrialRecord, TrialSpec, Turn

_MEMORY_SHARE: Final = 0.7
"""A process that is killed while it holds this share of the memory was most likely killed for it."""

Progress = Callable[[str, int], None]
"""Called with the phase and the steps so far."""
Verdict = Callable[[TrialRecord], Look]
"""Judges a trial that goes on by its record so far."""


def run_trial(
    spec: TrialSpec,
    helper: Helper,
    limits: Limits,
    *,
    monitor: Callable[[int], Monitor] | None = None,
    progress: Progress | None = None,
    verdict: Verdict | None = None,
) -> TrialRecord:
    """Run one trial to its end, whatever that is; everything that arrived is in the record.

    On ``KeyboardInterrupt`` the trial is killed and the record has the status ``interrupted``: the caller decides what
    to do next. For the other arguments see :class:`Child`.

    Raises:
        HelperError: the helper is gone before the trial began.
    """
    with interruptible():
        child = Child(spec, helper, monitor=monitor, progress=progress, verdict=verdict)
    try:
        with interruptible():
            child.follow(limits)
    except KeyboardInterrupt:
        child.collected.interrupted()
    return child.end()


class Child(Follower):
    """A forked process that runs one trial: its pipe, what it has told so far, its readings, and how it ended.

    The helper's word that it ended counts beside the closing of its pipe, which a process that the target forked can
    hold open.

    Args:
        spec: of the trial, which is sent to it.
        helper: forks it.
        monitor: called with the process id; gives the readings, which are taken while the child is followed.
        progress: told of phases and steps.
        verdict: asked after each round of a trial that asks; without it no verdict is final.

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
        verdict: Verdict | None = None,
    ) -> None:
        self.spec = spec
        self.rounds: list[RoundMark] = []
        """The turns that it has had, where it takes turns."""
        self._helper = helper
        self._told = progress
        self._verdict = verdict
        self._looks: list[Look] = []
        self._started_utc = now_utc()
        self._began = time.monotonic()
        connection, theirs = socket.socketpair()
        try:
            with theirs, SharedRows() as rows:
                super().__init__(connection, Collected(spec, rows.memory))
                self.pid = helper.fork(theirs, rows)
            self.monitor = monitor(self.pid) if monitor else None
            self.lines.tell(spec.to_line())
        except BaseException:
            connection.close()
            raise

    def has_ended(self) -> bool:
        """Whether the helper says that it has ended."""
        return self._helper.has_ended(self.pid)

    def sources(self) -> list[socket.socket]:
        """Sockets of the trial's own pipe, and of the helper's."""
        return list(filter(None, (self.lines.connection, self._helper.control)))

    def take(self, message: dict[str, Any]) -> None:
        """Take one message; one that asks for the verdict waits, and is answered from what has been measured."""
        super().take(message)
        if "asks" not in message:
            return
        if self._verdict is not None:
            self._looks.append(self._verdict(self.so_far()))
        self.lines.tell(self._looks[-1].bottleneck if self._looks and self._looks[-1].final else "")

    def progress(self) -> None:
        """Tell of phase and steps."""
        if self._told is not None:
            self._told(self.collected.phase, self.collected.steps)

    def so_far(self) -> TrialRecord:
        """Record of the trial from the messages so far, while it goes on."""
        readings = self.monitor.readings() if self.monitor else Readings()
        record = self.collected.record(
            started_utc=self._started_utc, duration_s=time.monotonic() - self._began, readings=readings
        )
        own = {"rounds": tuple(self.rounds), "looks": tuple(self._looks)}
        return record.model_copy(update={name: told for name, told in own.items() if told})

    def end(self) -> TrialRecord:
        """End what still runs of it and give its record; everything that arrived is there."""
        self._end_process()
        self.lines.connection.close()
        record = self.so_far()
        if record.status == "killed" and (cause := _out_of_memory(record.readings)):
            record = record.model_copy(update={"status": "out_of_memory", "cause": f"{record.cause}: {cause}"})
        return record

    def _end_process(self) -> None:
        """End the trial's process group, learn its wait status from the helper, and name an end that was unexpected."""
        collected, helper = self.collected, self._helper
        # Left alone a moment where it is done or the pipe closed by itself, so that its own end is what we see.
        patient = collected.done or collected.status == "ok"
        status = helper.wait_status(self.pid, 2.0) if patient else None
        died_by_itself = status is not None
        helper.signal(self.pid, signal.SIGKILL)  # the helper kills what the target started and left behind
        if status is None:
            status = helper.wait_status(self.pid, 5.0)
        if collected.done or collected.status != "ok":
            return
        if status is None and (code := helper.exit_code(0.5)) is not None:
            collected.status = "killed"
            collected.cause = (
                f"the helper process ended (exit code {code}) and the trial with it, in phase {collected.phase!r}"
            )
        elif not died_by_itself:
            collected.status = "exited"
            collected.cause = f"closed its pipe in phase {collected.phase!r} and did not end"
        elif status is not None:
            collected.ended(os.waitstatus_to_exitcode(status))


def _out_of_memory(readings: Readings) -> str | None:
    """Why a killed trial is taken for one that ran out of memory, or ``None``: the kernel itself does not tell."""
    if readings.host is None or not readings.host.rss_bytes:
        return None
    most = max(readings.host.rss_bytes)
    limit = memory_limit_bytes() or psutil.virtual_memory().total
    if most < _MEMORY_SHARE * limit:
        return None
    return f"it held {most / 2**30:.1f} of {limit / 2**30:.1f} GiB, and the kernel kills so when memory runs out"


_STOP_S: Final = 5.0
"""A process that has said that its turn is over stands still within microseconds, or seconds where it gets no
processor."""
_END_S: Final = 5.0  # for closing the iterator
_MOVED_SHARE: Final = 0.01
"""Share of the time for which a process stood still; where it used more processor time in it, that is reported."""


class LiveTrial(Child):
    """A trial whose process lives from turn to turn.

    ``canary`` gives the nanoseconds that a fixed piece of work takes now; it is run while all processes stand still.
    For the other arguments and errors see :class:`Child`.

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
        canary: Callable[[], int] | None = None,
    ) -> None:
        self._canary = canary
        self._stood_s = self._moved_s = 0.0
        self._stopped: tuple[float, float] | None = None
        self._record: TrialRecord | None = None
        super().__init__(spec, helper, monitor=monitor, progress=progress)

    def open(self, limits: Limits) -> bool:
        """Wait until it is built and warmed up and stands still; ``False`` where it ended before."""
        return self._until_it_waits(limits)

    def turn(self, turn: Turn, limit_s: float) -> float | None:
        """Let it measure; the seconds that the counted batches took, or ``None`` where it ended.

        After ``limit_s`` seconds of silence it is taken to hang; it may take twice that.
        """
        before = self._canary_ns(turn)
        self._sample()
        self._go_on(turn.model_dump_json())
        if not self._until_it_waits(Limits(2 * limit_s, limit_s)):
            return None
        self._sample()
        start_ns, end_ns = self.collected.turns[-1]
        if turn.round >= 0:
            self.rounds.append(
                RoundMark(
                    round=turn.round,
                    start_ns=start_ns,
                    end_ns=end_ns,
                    canary_before_ns=before,
                    canary_after_ns=self._canary_ns(turn),
                )
            )
        return (end_ns - start_ns) / 1e9

    def so_far(self) -> TrialRecord:
        """Record of the trial with its turns so far; it may live on."""
        return self._record or super().so_far()

    def end(self) -> TrialRecord:
        """Let it end, or end it, and give its record."""
        if self._record is None:
            collected = self.collected
            if not self.over:
                self._go_on("")
                self.follow(Limits(_END_S, _END_S))
                if collected.status in ("time_limit", "stalled"):  # all that it measured is here
                    collected.status, collected.cause, collected.done = "ok", None, True
            if self._moved_s > _MOVED_SHARE * self._stood_s:
                moved = f"{self._moved_s:.2f} s of processor time in {self._stood_s:.1f} s"
                collected.take({"note": f"while others had their turn, it used {moved}"})
            record = super().end()
            # What it took: while it stood still others ran, and their time is in their own records.
            self._record = record.model_copy(update={"duration_s": record.duration_s - self._stood_s})
        return self._record

    @property
    def own_bytes(self) -> int:
        """Memory that it and what it started hold for themselves, what the fork shares left out; 0 where it ended."""
        held = 0
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self.pid)
            for one in (process, *process.children(recursive=True)):
                held += one.memory_full_info().uss
        return held

    def _until_it_waits(self, limits: Limits) -> bool:
        """Follow it until it waits for its next turn and stands still; ``False`` where it ended or broke a limit."""
        turns = len(self.collected.turns)
        self.follow(limits, until=lambda: len(self.collected.turns) > turns)
        if self.over:
            return False
        end = time.monotonic() + _STOP_S
        while (found := _state_and_cpu_s(self.pid)) is not None and found[0] != "T":
            if time.monotonic() > end:
                self.collected.status = "stalled"
                self.collected.cause = f"it did not stand still within {_STOP_S:.0f} s after its turn"
                return False
            time.sleep(0.0005)
        if found is None:  # gone: its pipe tells how
            self.follow(Limits(_STOP_S, _STOP_S))
            return False
        self._stopped = (time.monotonic(), found[1])
        return True

    def _go_on(self, line: str) -> None:
        """Send it a line and let it go on; counted is how long it stood still, and what of the processor it used."""
        found = _state_and_cpu_s(self.pid)
        if self._stopped is not None and found is not None:
            self._stood_s += time.monotonic() - self._stopped[0]
            self._moved_s += found[1] - self._stopped[1]
        self._stopped = None
        self.lines.tell(line)
        self._helper.signal(self.pid, signal.SIGCONT)

    def _sample(self) -> None:
        if self.monitor is not None:
            self.monitor.sample()

    def _canary_ns(self, turn: Turn) -> int | None:
        return self._canary() if self._canary is not None and turn.round >= 0 else None


def _state_and_cpu_s(pid: int) -> tuple[str, float] | None:
    """State of a process as the kernel's letter, and its processor time in seconds; ``None`` once it is gone."""
    try:
        stat = parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if stat.ended else (stat.state, stat.cpu_s)
