"""Live processes that take turns, seen from the parent: each is warmed up once, and one at a time goes on.

Whoever has no turn is stopped by signal, by itself and right after its last step, so that its buffers stay as the
steady run left them. Waiting until a pipeline becomes idle would fill them instead, and lets the tuning of tf.data
enlarge them from turn to turn; a stop of seconds was measured to leave its pace alone (``docs/how-it-decides.md``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil

from xttsbench.execution.child import Limits, Monitor
from xttsbench.execution.helper import Helper
from xttsbench.execution.trial import Child, Progress
from xttsbench.probes.procfs import parse_stat
from xttsbench.records.trial import RoundMark, TrialRecord, TrialSpec, Turn

_STOP_S: Final = 5.0
"""A process that has said that its turn is over stands still within microseconds, or seconds where it gets no
processor."""
_END_S: Final = 5.0
"""For closing the iterator."""
_MOVED_SHARE: Final = 0.01
"""Of the time for which a process stood still; where it used more processor time in it, that is said."""


class LiveTrial:
    """A trial whose process lives from turn to turn.

    Args:
        spec: of the trial, with ``turns``.
        helper: forks it.
        monitor: called with the process id; read at both ends of a turn and within it.
        progress: told of phases and steps.
        canary: gives the nanoseconds that a fixed piece of work takes now; run while all processes stand still.

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
        self.spec = spec
        self._child = Child(spec, helper, monitor=monitor, progress=progress)
        self._canary = canary
        self._marks: list[RoundMark] = []
        self._stood_s = self._moved_s = 0.0
        self._stopped: tuple[float, float] | None = None
        self._record: TrialRecord | None = None
        self._child.tell(spec.model_dump_json())

    @property
    def over(self) -> bool:
        """Whether it has ended, or has broken a limit."""
        return self._child.over

    def open(self, limits: Limits) -> bool:
        """Wait until it is built and warmed up and stands still; ``False`` where it ended before."""
        return self._until_it_waits(limits)

    def turn(self, turn: Turn, limit_s: float) -> float | None:
        """Let it measure; the seconds that the counted batches took, or ``None`` where it ended.

        Args:
            turn: what it measures.
            limit_s: seconds of silence after which it is taken to hang; it may take twice that.
        """
        child, before = self._child, self._canary_ns(turn)
        self._sample()
        self._count_what_moved()
        child.tell(turn.model_dump_json())
        self._go_on()
        if not self._until_it_waits(Limits(2 * limit_s, limit_s)):
            return None
        self._sample()
        start_ns, end_ns = child.collected.turns[-1]
        if turn.round >= 0:
            self._marks.append(
                RoundMark(
                    round=turn.round,
                    start_ns=start_ns,
                    end_ns=end_ns,
                    canary_before_ns=before,
                    canary_after_ns=self._canary_ns(turn),
                )
            )
        return (end_ns - start_ns) / 1e9

    def interrupted(self) -> None:
        """Note that the user ended the run in the middle of its turn."""
        self._child.collected.interrupted()

    def so_far(self) -> TrialRecord:
        """Its record with the turns that it has had; it lives on."""
        return self._record or self._child.so_far(rounds=self._marks)

    def end(self) -> TrialRecord:
        """Let it end, or end it, and give its record."""
        if self._record is None:
            if not self.over:
                self._count_what_moved()
                self._child.tell("")
                self._go_on()
                self._child.follow(Limits(_END_S, _END_S))
                if self._child.collected.status in ("time_limit", "stalled"):  # all that it measured is here
                    self._child.collected.status, self._child.collected.cause = "ok", None
                    self._child.collected.done = True
            if self._moved_s > _MOVED_SHARE * self._stood_s:
                self._child.collected.take(
                    {
                        "note": f"while others had their turn, it used {self._moved_s:.2f} s of processor time in "
                        f"{self._stood_s:.1f} s"
                    }
                )
            record = self._child.end(rounds=self._marks)
            # What it took: while it stood still others ran, and their time is in their own records.
            self._record = record.model_copy(update={"duration_s": record.duration_s - self._stood_s})
        return self._record

    @property
    def own_bytes(self) -> int:
        """Memory that it and what it started hold for themselves, what the fork shares left out; 0 where it ended."""
        held = 0
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self._child.pid)
            for one in (process, *process.children(recursive=True)):
                held += one.memory_full_info().uss
        return held

    def _until_it_waits(self, limits: Limits) -> bool:
        """Follow it until it waits for its next turn and stands still; ``False`` where it ended or broke a limit."""
        turns = len(self._child.collected.turns)
        self._child.follow(limits, until=lambda: len(self._child.collected.turns) > turns)
        if self.over:
            return False
        end = time.monotonic() + _STOP_S
        while (found := _state_and_cpu_s(self._child.pid)) is not None and found[0] != "T":
            if time.monotonic() > end:
                self._child.collected.status = "stalled"
                self._child.collected.cause = f"it did not stand still within {_STOP_S:.0f} s after its turn"
                return False
            time.sleep(0.0005)
        if found is None:  # gone: its pipe tells how
            self._child.follow(Limits(_STOP_S, _STOP_S))
            return False
        self._stopped = (time.monotonic(), found[1])
        return True

    def _go_on(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGCONT)

    def _count_what_moved(self) -> None:
        """Add the time for which it stood still, and what of the processor it used in it all the same."""
        found = _state_and_cpu_s(self._child.pid)
        if self._stopped is not None and found is not None:
            self._stood_s += time.monotonic() - self._stopped[0]
            self._moved_s += found[1] - self._stopped[1]
        self._stopped = None

    def _sample(self) -> None:
        if self._child.monitor is not None:
            self._child.monitor.sample()

    def _canary_ns(self, turn: Turn) -> int | None:
        return self._canary() if self._canary is not None and turn.round >= 0 else None


def _state_and_cpu_s(pid: int) -> tuple[str, float] | None:
    """State of a process as the kernel's letter, and its processor time in seconds; ``None`` once it is gone."""
    try:
        stat = parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if stat.ended else (stat.state, stat.cpu_s)
