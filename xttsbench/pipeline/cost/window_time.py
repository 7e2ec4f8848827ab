"""Clocks of the whole process, and what a run that others disturbed would have taken alone. No TensorFlow here."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_UNLIKE: Final = 0.5
"""Standard deviation of the windows' work over its mean from which on they are not of one kind."""
_CALM: Final = 0.05
"""Share of a window's time in the run queue up to which it counts as undisturbed."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One window, hand-over taken off."""

    elements: int
    wall_s: float
    cpu_s: float
    queued_s: float
    """Time in which threads of this process were ready to run but had no processor, summed over them."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Wall time and processor time of the whole process, in seconds."""

    wall_s: float
    cpu_s: float

    @classmethod
    def read(cls) -> Self:
        """Read the clocks."""
        return cls(time.perf_counter(), time.process_time())

    def since(self, before: Clock) -> Clock:
        """The time since another reading."""
        return Clock(self.wall_s - before.wall_s, self.cpu_s - before.cpu_s)


def least_contended(windows: Sequence[Timed]) -> list[Timed]:
    """The windows during which this process hardly queued for a processor, or the better half where most did.

    They are chosen by the share of their time that is queueing. Where they differ much in what they do, that would
    favour the long ones, so all are kept.
    """
    work_s = [max(timed.wall_s - timed.queued_s, 0.0) for timed in windows]
    if len(work_s) > 1 and statistics.pstdev(work_s) > _UNLIKE * statistics.fmean(work_s):
        return list(windows)
    ranked = sorted(windows, key=lambda timed: timed.queued_s / timed.wall_s if timed.wall_s > 0 else 0.0)
    calm = [timed for timed in ranked if timed.queued_s <= _CALM * timed.wall_s]
    half = ranked[: (len(ranked) + 1) // 2]
    return calm if len(calm) > len(half) else half


def uncontended_s(wall_s: float, cpu_s: float, queued_s: float) -> float:
    """Wall time without the part in which others had the processor, never less than what one thread computed.

    Idle threads of TensorFlow's pools spin and queue as well, so the queue counts only as far as computing and queueing
    together fill the wall time, and as computing is most of what is left: an op that waits did not wait for it.
    """
    if wall_s <= 0.0:
        return 0.0
    left_s = max(wall_s - queued_s, min(wall_s, cpu_s))
    filled = min(1.0, max(0.0, ((cpu_s + queued_s) / wall_s - 0.7) / 0.25))
    computing = min(1.0, max(0.0, (cpu_s / left_s - 0.2) / 0.4)) if left_s > 0.0 else 0.0
    return max(wall_s - filled * computing * queued_s, min(wall_s, cpu_s))


def queued_s() -> float:
    """Time that this process's threads were ready to run without a processor; 0 where the kernel does not tell."""
    queued_ns = 0
    for task in Path("/proc/self/task").glob("*/schedstat"):
        try:
            queued_ns += int(task.read_bytes().split()[1])
        except (OSError, IndexError, ValueError):  # the thread has ended, or there is no such file
            continue
    return queued_ns / 1e9
