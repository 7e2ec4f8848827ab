"""Observation of a watched process, in a fixed amount of memory and kept on disk while it goes on.

One for all doors: beside a script it lives in the parent, for a callback or a loop in a thread of the process that
trains. Every half second it takes the rows that have come; ``live.json`` is replaced once a second, ``summary.json``
every few seconds, so that a kill of everything leaves what was seen until then.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil

from xttsbench.analysis.running import Running, rows_since
from xttsbench.analysis.steps import Steps
from xttsbench.execution.child import Collected, now_utc
from xttsbench.execution.guard import Guard
from xttsbench.files import DRAFT_PREFIX, atomic_write
from xttsbench.probes.monitor import HostProbe
from xttsbench.probes.processes import announce
from xttsbench.records.readings import Readings
from xttsbench.records.redaction import Redaction
from xttsbench.records.report import Report
from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import StepProfile, TrialRecord, TrialSpec
from xttsbench.records.watch import LIVE_FILE, SUMMARY_FILE, End, LiveRun, RecentSteps, WatchedRun, WatchSummary
from xttsbench.workflows.watch.lines import SampledLines
from xttsbench.workflows.watch.rank import RankFile
from xttsbench.workflows.watch.summary import Scalars, summarise

_LIVE_S: Final = 1.0
_RECENT_S: Final = 3.0
_READINGS: Final = 400  # samples of the host that are kept; of more every second one is forgotten
_ROOM_BYTES: Final = 1 << 17


@dataclass(frozen=True)
class About:
    """Description of a watched run, for its summary and its files.

    Attributes:
        script: it and its arguments as a shell would take them, or what stands for them.
        next_command: what would prove what is likely; empty where there is none.
        redaction: what keeps secrets out of what is written and shown.
        every_s: between two readings of the host.
        summary_s: between two summaries.
    """

    script: str
    next_command: str
    redaction: Redaction = field(default_factory=Redaction)
    every_s: float = 2.0
    summary_s: float = 3.0


class Observer:
    """Hears a watched process and keeps its run's directory.

    ``shown`` is called with a summary when somebody asks for it; ``tensorboard`` is a directory for scalars.
    """

    def __init__(
        self,
        directory: Path,
        spec: TrialSpec,
        rows: RowMemory,
        about: About,
        *,
        tensorboard: Path | None = None,
        shown: Callable[[WatchSummary], None] = lambda _: None,
    ) -> None:
        self.guard = Guard()
        self.collected = Collected(spec, rows)
        self.running = Running()
        self.directory = directory
        self._rows, self._about, self._shown = rows, about, shown
        self._scalars = Scalars(tensorboard) if tensorboard is not None else None
        self._pid, self._announced = 0, Path()
        self._room = directory / f"{DRAFT_PREFIX}room"
        self._host: HostProbe | None = None
        self._host_every_s, self._host_due = about.every_s, 0.0
        self._began, self._started_utc = time.monotonic(), now_utc()
        self._read = self._upto = self._lost_in_graphs = 0
        self._recent: deque[tuple[float, int, float, float]] = deque()
        self._signal: str | None = None
        self._finished: int | None = None
        self._lines = SampledLines()
        self._rank = RankFile(directory, about.redaction)
        self._counted: dict[str, Any] = {}
        self._ended: End = "running"
        self._exit_code: int | None = None
        self._live_due = self._summary_due = 0.0

    @property
    def newest(self) -> int:
        """Steps that have been seen, whether they are taken or not."""
        return self._rows.steps

    def started(self, pid: int) -> None:
        """The process is there."""
        self._pid = pid
        self._reserve()
        self._announced = announce(pid, self.directory) or Path()
        self._host = HostProbe(pid)
        self._write_live(over=False)
        self.write(self.summary())

    def take(self, message: dict[str, Any]) -> None:
        """Take one message of the process."""
        if "samples" in message:
            self._lines.extend(message["samples"])
        elif "rank" in message:
            self._rank.take(message["rank"])
        elif "counted" in message:
            self._counted = message["counted"]
        else:
            self.collected.take(message)
            if "ended" in message:
                self._ended, self._exit_code = message["ended"], message["exit_code"]

    def tick(self) -> None:
        """Take the rows that have come by now, and write what is due."""
        if self._finished is not None:
            if self._rows.steps == self._finished:
                return
            # It was taken for over, after one call of `fit`, and trains again.
            self._finished, self._ended = None, "running"
            self._announced = announce(self._pid, self.directory) or Path()
        now = time.monotonic()
        self._drain()
        if now >= self._host_due:
            self._host_due = now + self._host_every_s
            self._sample_host()
        if now >= self._live_due:
            self._live_due = now + _LIVE_S
            self._write_live(over=False)
        if now >= self._summary_due:
            self._summary_due = now + self._about.summary_s
            self.conclude(self.summary())
            self._rank.write()

    def show(self) -> None:
        """Somebody wants to see what is known so far."""
        self._drain()
        summary = self.summary()
        self.write(summary)
        self._shown(summary)

    def finish(self, *, signal: str | None = None, exit_code: int | None = None, interrupted: bool = False) -> None:
        """The process has ended: take what is left.

        ``signal`` is the name of the one that ended it; without one it has an exit code. ``interrupted`` where somebody
        asked it to end.
        """
        if signal is not None:
            self._ended = "interrupted" if interrupted else "killed"
        elif exit_code not in (None, self._exit_code):
            self._ended = "returned" if exit_code == 0 else "interrupted" if interrupted else "exited"
        elif interrupted and self._ended != "returned" and exit_code:
            self._ended = "interrupted"
        self._exit_code, self._signal = exit_code, signal
        if exit_code is not None and (script := self.collected.part("script")) is not None:
            script |= {"exit_code": exit_code} | ({"ended": "exited"} if self._ended == "exited" else {})
        self._finished = self._rows.steps
        with suppress(OSError):
            self._room.unlink()
        self.guard("Reading the last steps", lambda: self._drain(everything=True))
        self.guard("Reading the machine", self._sample_host)
        self.guard("Writing this rank's file", self._rank.write)
        self._write_live(over=True)
        with suppress(OSError):
            if self._announced.name:
                self._announced.unlink()

    def _reserve(self) -> None:
        """Keep some of the disk for the summary of the end, which a script may have filled until then."""
        with suppress(OSError):
            self._room.write_bytes(os.urandom(_ROOM_BYTES))

    def record(self) -> TrialRecord:
        """The journal line: the newest rows, and the whole run beside them."""
        readings = Readings(host=self._host.readings() if self._host else None, unmeasured={"gpus": "not read"})
        duration_s = time.monotonic() - self._began
        made = self.collected.record(started_utc=self._started_utc, duration_s=duration_s, readings=readings)
        return made.model_copy(
            update={"watched": self.watched(), "anatomy": self.profile(), "handoff_s": self.running.handoff_s}
        )

    def watched(self) -> WatchedRun:
        """Totals of the run so far."""
        warm_up, running = self._rows.ring("warm_up"), self.running
        error = self.collected.error or {}
        return WatchedRun(
            steps=running.steps,
            warm_up_steps=warm_up.count if warm_up is not None else 0,
            lost_steps=running.lost,
            epochs=running.epochs,
            stretches=running.stretches,
            quantiles_s=running.quantiles_s,
            stalls=running.stalls,
            ended=self._ended,
            exit_code=self._exit_code,
            signal=self._signal,
            error=str(error.get("message", ""))[:300] or None if self._exit_code != 0 else None,
        )

    def profile(self) -> StepProfile | None:
        """Profile of the steps so far; ``None`` without samples and counts."""
        return self._lines.profile(self._counted, self.running)

    def summary(self, report: Report | None = None) -> WatchSummary:
        """Summary of the run; with the report of its end where there is one."""
        found = self.guard("Summing up", self._summary, report)
        if found is not None:
            return found
        end = {"ended": self._ended, "exit_code": self._exit_code, "signal": self._signal}
        bare = WatchedRun.model_validate({"steps": self.newest, "warm_up_steps": 0, "epochs": 0} | end)
        return summarise(bare, profile=None, handoff_s=0.0, report=None, about=self._told(), unmeasured={})

    def _summary(self, report: Report | None) -> WatchSummary:
        script = self.collected.part("script") or {}
        found = summarise(
            self.watched(),
            profile=self.profile(),
            handoff_s=self.running.handoff_s,
            report=report,
            about=self._told() | {"iterations": tuple(script.get("iterations", ()))},
            unmeasured=dict(script.get("unmeasured", {})),
        )
        kept: WatchSummary = self._about.redaction.kept(found)
        return kept

    def _told(self) -> dict[str, Any]:
        return {
            "script": self._about.script,
            "next_command": self._about.next_command,
            "pid": self._pid,
            "started_utc": self._started_utc,
            "updated_utc": now_utc(),
            "duration_s": time.monotonic() - self._began,
            "iterations": (),
            "notes": self.guard.lines,
            "rank": self._rank.task,
        }

    def write(self, summary: WatchSummary) -> None:
        """Replace ``summary.json``; a disk that is full for a while is worth no word, at the end it is."""
        content = summary.model_dump_json(indent=1 if summary.over else None).encode() + b"\n"
        file = self.directory / SUMMARY_FILE
        if summary.over:
            self.guard(f"Writing {SUMMARY_FILE}", lambda: atomic_write(file, content))
        else:
            with suppress(OSError):
                atomic_write(file, content, durable=False)

    def conclude(self, summary: WatchSummary) -> WatchSummary:
        """Write a summary, and the scalars of it; returns it with all that failed so far."""
        self.write(summary)
        if self._scalars is not None:
            self.guard("Writing scalars", self._scalars.write, summary)
        return summary.model_copy(update={"notes": self.guard.lines})

    def _drain(self, *, everything: bool = False) -> None:
        """Take the rows that were there the last time: what XLA compiled in a step is told somewhat later."""
        lost = (self.collected.part("script") or {}).get("lost_steps", 0)
        self.running.add_lost(lost - self._lost_in_graphs)
        self._lost_in_graphs = lost
        ring = self._rows.ring("as_is")
        if ring is None:
            return
        until = ring.count if everything or ring.count - self._read > ring.rows // 2 else self._upto
        self._upto = ring.count
        since = max(self._read, ring.warmup_steps)
        if until <= since:
            return
        steps, lost = rows_since(replace(ring, count=until), since)
        self._read = until
        self.running.add_lost(lost)
        if not len(steps):
            return
        self._lines.place(steps)
        self.running.add(steps, self._lines.why, self._resident())
        self._rank.add(steps)
        self._lines.note_stalls(steps, self.running.histogram.stall_threshold_s or np.inf)
        self._note_recent(steps)

    def _note_recent(self, steps: Steps) -> None:
        now = time.monotonic()
        self._recent.append((now, len(steps), float(steps.wall_s.sum()), float(steps.wait_s.sum())))
        while self._recent and now - self._recent[0][0] > _RECENT_S:
            self._recent.popleft()

    def _write_live(self, *, over: bool) -> None:
        now = time.monotonic()
        newest = [one for one in self._recent if now - one[0] <= _RECENT_S]
        count, wall_s, wait_s = (sum(column) for column in list(zip(*newest, strict=True))[1:]) if newest else (0, 0, 0)
        recent = None
        if count and wall_s > 0:
            share = min(wait_s / wall_s, 1.0)
            recent = RecentSteps(steps=count, step_time_s=wall_s / count, input_wait_fraction=share)
        live = LiveRun(
            pid=self._pid,
            script=self._about.script,
            started_utc=self._started_utc,
            updated_utc=now_utc(),
            over=over,
            steps=self._rows.steps,
            recent=recent,
        )
        with suppress(OSError):
            atomic_write(self.directory / LIVE_FILE, live.model_dump_json().encode(), durable=over)

    def _sample_host(self) -> None:
        if self._host is None:
            return
        self._host.sample()
        if self._host.samples > _READINGS:
            self._host.thin()
            self._host_every_s *= 2

    def _resident(self) -> int | None:
        try:
            return psutil.Process(self._pid).memory_info().rss or None
        except psutil.Error:
            return None
