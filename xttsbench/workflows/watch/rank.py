"""``rank.json`` of a watched process that trains with others, kept while it goes on."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from xttsbench.analysis.steps import Steps
from xttsbench.files import atomic_write
from xttsbench.records.ranks import RANK_FILE, CodeLine, RankEpoch, RankParts, RankRun, RankTask
from xttsbench.records.redaction import Redaction

_PASSES: Final = 3  # Of the data that are kept: the first, and the newest
_SPREAD: Final = 0x9E3779B97F4A7C15


class RankFile:
    """Writer of the file of one rank; a process that trains alone has no file."""

    def __init__(self, directory: Path, redaction: Redaction) -> None:
        self.task: RankTask | None = None
        self._file, self._redaction = directory / RANK_FILE, redaction
        self._lock = threading.Lock()  # within a process that trains, one thread tells and another one writes
        self._told: dict[str, Any] = {}
        self._collectives: list[tuple[int, int, int]] = []
        self._passes: dict[tuple[str, int], RankEpoch] = {}
        self._hashes: dict[tuple[str, int], set[int]] = {}
        self._batches: Counter[str] = Counter()  # of each loop
        self._steps, self._sums = 0, dict.fromkeys(("wall_s", "input", "compute", "host"), 0.0)

    def take(self, told: dict[str, Any]) -> None:
        """Take a message of the process."""
        with self._lock:
            self._take(told)

    def _take(self, told: dict[str, Any]) -> None:
        self._told, self.task = told, RankTask.model_validate(told["task"])
        most = (1 << 64) // told["stride"]
        kept = [*self._collectives, *(tuple(one) for one in told["collectives"])]
        self._collectives = [one for one in kept if one[0] * _SPREAD % (1 << 64) < most]
        for loop, number, new in told["passes"]:
            known, before = self._hashes.setdefault((loop, number), set()), self._passes.get((loop, number))
            before = before or RankEpoch(epoch=number)
            fresh = set(new["hashes"]) - known
            known |= fresh
            counts = {name: getattr(before, name) + new[name] for name in ("batches", "samples", "looked")}
            repeats = before.repeats + len(new["hashes"]) - len(fresh)
            self._passes[loop, number] = before.model_copy(
                update=counts | {"ended": before.ended or new["ended"], "below": told["below"], "repeats": repeats}
            )
            self._batches[loop] += new["batches"]
            for gone in sorted(at for name, at in self._passes if name == loop)[1 : 1 - _PASSES]:
                del self._passes[loop, gone], self._hashes[loop, gone]

    def add(self, steps: Steps) -> None:
        """Add measured steps."""
        sums, outside_s = self._sums, float(steps.outside_s.sum())
        self._steps += len(steps)
        sums["wall_s"] += float(steps.wall_s.sum())
        sums["input"] += float(steps.wait_s.sum())
        sums["compute"] += float(steps.step_s.sum()) - outside_s
        sums["host"] += outside_s

    def record(self) -> RankRun | None:
        """Record of all that is known by now; ``None`` where the process trains alone, as far as is known."""
        if self.task is None:
            return None
        with self._lock:
            return self._record(self.task)

    def _record(self, task: RankTask) -> RankRun:
        told, sums = self._told, self._sums
        in_step_s, in_request_s = (one / 1e9 for one in told["sums_ns"])
        in_calls_s = min(in_step_s, sums["compute"])
        made = RankRun(
            task=task,
            host=socket.gethostname(),
            clock=_clock(),
            updated_s=time.time(),
            steps=self._steps,
            wall_s=sums["wall_s"],
            parts=RankParts(
                input=max(sums["input"] - in_request_s, 0.0),
                compute=sums["compute"] - in_calls_s,
                host=max(sums["host"] - (in_step_s - in_calls_s), 0.0),
                collective=in_step_s + in_request_s,
            ),
            since_ns=told["since_ns"],
            begun=told["begun"],
            ended=told["ended"],
            measured=told["measured"],
            stride=told["stride"],
            position=told["position"],
            lines=self._lines(),
        )
        kept: RankRun = self._redaction.kept(made)  # before the many numbers, which hide nothing
        return kept.model_copy(update={"collectives": tuple(self._collectives), "epochs": self._epochs()})

    def write(self) -> None:
        """Replace the file; a disk that is full for a while is worth no word."""
        if (found := self.record()) is not None:
            with suppress(OSError):
                atomic_write(self._file, found.model_dump_json().encode(), durable=False)

    def _epochs(self) -> tuple[RankEpoch, ...]:
        """The passes of the loop that took most batches: the others are validation."""
        main = max(self._batches, key=lambda loop: self._batches[loop], default="")
        numbers = sorted(number for loop, number in self._passes if loop == main)
        below = self._told["below"]
        return tuple(
            self._passes[main, number].model_copy(
                update={"below": below, "hashes": tuple(sorted(h for h in self._hashes[main, number] if h < below))}
            )
            for number in numbers
        )

    def _lines(self) -> dict[str, CodeLine]:
        """The line with most time of each kind.

        A Python function that runs while the main thread is in a tf.function is the step's, where it takes most of that
        time; where the data are asked for within the tf.function, it may be theirs.
        """
        most: dict[str, tuple[float, CodeLine]] = {}
        for kind, file, line, function, seconds in self._told["seconds"]:
            if file and seconds > most.get(kind, (0.0, None))[0]:
                most[kind] = seconds, CodeLine(file=file, line=line, function=function)
        lines = {kind: line for kind, (_, line) in most.items() if kind in ("input", "host")}
        step, inside = (most.get(kind, (0.0, None)) for kind in ("call", "inside"))
        if (compute := inside[1] if inside[0] >= step[0] / 2 else step[1]) is not None:
            lines["compute"] = compute
        if inside[1] is not None:
            lines.setdefault("input", inside[1])
        if (place := self._told["asks_at"]) is not None:
            lines["request"] = CodeLine(file=place[0], line=place[1])
        return lines


def _clock() -> str:
    """A name for this start of this machine that says nothing of it."""
    known = socket.gethostname()
    with suppress(OSError):
        known = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    return hashlib.sha256(known.encode()).hexdigest()[:16]
