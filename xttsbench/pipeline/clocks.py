"""Times that a busy machine does not upset: of a run, and of one Python function beside the interpreter lock.

What a run that others disturbed would have taken alone is worked out from the clocks of the whole process. Of a Python
function two questions are answered by experiment. Does the calling thread wait? Wall time less processor time less the
time it stood in the kernel's run queue (``/proc/.../schedstat``). Does it keep other Python threads out? A second
thread sleeps and wakes all the while; what it lacks, beyond its naps, its own work and its time in the run queue, it
spent waiting for the lock. Tried and dropped on two shared cores: a thread that spins instead of napping (the kernel
puts both on one core, and the wait for the lock then looks like a wait for a processor). No TensorFlow here.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from xttsbench.records.pipeline import GilClass

_UNLIKE: Final = 0.5  # standard deviation of the windows' work over its mean from which on they are not of one kind
_CALM: Final = 0.05  # share of a window's time in the run queue up to which it counts as undisturbed


@dataclass(frozen=True, slots=True)
class Timed:
    """One window, hand-over taken off."""

    elements: int
    wall_s: float
    cpu_s: float
    queued_s: float  # time in which threads of this process were ready to run but had no processor, summed over them


@dataclass(frozen=True, slots=True)
class Clock:
    """A reading of clocks, of the whole process or of one thread, in seconds."""

    wall_s: float
    cpu_s: float
    queued_s: float = 0.0
    """Ready to run but without a processor; 0 where the kernel does not tell (then a busy machine looks like waits)."""
    asleep_s: float = 0.0  # asleep of its own will; known of the experiment's own thread only

    @classmethod
    def read(cls) -> Self:
        """The clocks of the process, without the run queue, which takes long to read for all its threads."""
        return cls(time.perf_counter(), time.process_time())

    @classmethod
    def of_thread(cls, thread: threading.Thread | None = None) -> Self:
        """The clocks of a thread of this process; the calling one by default."""
        thread = thread or threading.current_thread()
        if thread.ident is None or thread.native_id is None:
            raise RuntimeError("A thread that has not been started has no clock.")
        cpu_s = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        return cls(time.perf_counter(), cpu_s, queued_s(thread.native_id))

    def __sub__(self, before: Clock) -> Clock:
        """The time between two readings."""
        wall_s, cpu_s, asleep_s = (
            self.wall_s - before.wall_s,
            self.cpu_s - before.cpu_s,
            self.asleep_s - before.asleep_s,
        )
        return Clock(wall_s, cpu_s, max(0.0, self.queued_s - before.queued_s), asleep_s)

    @property
    def active_s(self) -> float:
        """Time in which the thread ran or wanted to."""
        return self.cpu_s + self.queued_s


def queued_s(thread: int | str = "*") -> float:
    """Seconds that all threads of this process, or that of one kernel id, were ready to run without a processor."""
    queued_ns = 0
    for task in Path("/proc/self/task").glob(f"{thread}/schedstat"):
        try:
            queued_ns += int(task.read_bytes().split()[1])
        except (OSError, IndexError, ValueError):  # the thread has ended, or there is no such file
            continue
    return queued_ns / 1e9


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


MAJORITY: Final = 0.6
"""Share of a call that one class must have; below it the answer is ``unknown``."""
MIN_EVIDENCE_S: Final = 0.003
"""Less time than this under observation holds too few naps to tell."""
_SWITCH_INTERVAL_S: Final = 0.002
"""Hand-over interval of the lock during the experiment (5 ms by default): the wait per nap in pure Python."""
_NAP_S: Final = 0.0003
"""Well under the interval, so that in a function that keeps the lock the napper's waits outweigh its naps."""
_NAP_EXCESS_S: Final = 0.00006
"""Excess of a short sleep on Linux, in seconds: its timer slack is 50 microseconds."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of a call's time by its use of the interpreter lock; the three add up to 1."""

    blocks: float
    holds: float
    releases: float

    def majority(self) -> GilClass:
        """The class that has at least :data:`MAJORITY` of the time, else ``unknown``."""
        shares: dict[GilClass, float] = {"blocks": self.blocks, "holds": self.holds, "releases": self.releases}
        return next((kind for kind, share in shares.items() if share >= MAJORITY), "unknown")


def measure_shares(
    function: Callable[..., Any], arguments: Sequence[Sequence[Any]], *, calls: int = 8, max_s: float = 0.5
) -> Shares | None:
    """Call a function with recorded arguments and split its time; ``None`` with too little evidence.

    At most ``calls`` calls are made, and none is begun after ``max_s``. Nothing else in the process should compute
    meanwhile. What the function raises is raised.
    """
    if not arguments or calls < 1:
        return None
    with _Napper() as napper:
        deadline = time.perf_counter() + max_s
        nap_before, process_before, before = napper.read(), time.process_time(), Clock.of_thread()
        for number in range(calls):
            function(*arguments[number % len(arguments)])
            if time.perf_counter() > deadline:
                break
        spent = Clock.of_thread() - before
        process_s, napped = time.process_time() - process_before, napper.read() - nap_before
    if spent.wall_s - spent.queued_s < MIN_EVIDENCE_S:
        return None
    # Threads that the function itself started (a BLAS pool) compute for it while the caller waits for them.
    helped_s = max(0.0, process_s - spent.cpu_s - napped.cpu_s)
    # The napper may be taken off a busy processor while it has the lock, which a function that waits does not miss.
    held_up_s = min(napped.queued_s, spent.cpu_s)
    blocks = min(1.0, max(0.0, spent.wall_s - spent.active_s - helped_s - held_up_s) / spent.wall_s)
    # The napper's time in the queue says nothing of the lock. In the function's own, naps pass freely even if it holds
    # the lock whenever it runs: half of that share of the naps is left out, the middle between none and all. A full
    # hold lets one nap through per hand-over.
    locked_s = max(0.0, napped.wall_s - napped.active_s - napped.asleep_s)
    full = _SWITCH_INTERVAL_S / (_SWITCH_INTERVAL_S + _NAP_S + _NAP_EXCESS_S)
    naps_s = napped.asleep_s * (1.0 - 0.5 * spent.queued_s / spent.wall_s)
    held = min(1.0 - blocks, locked_s / (locked_s + naps_s) / full)
    return Shares(blocks=blocks, holds=held, releases=1.0 - blocks - held)


class _Napper:
    """A thread that naps and wakes, under a short switch interval; both end with the block."""

    def __init__(self) -> None:
        self._naps = 0
        self._stop = False
        self._interval = sys.getswitchinterval()
        self._thread = threading.Thread(target=self._nap, name="xttsbench-napper", daemon=True)

    def __enter__(self) -> Self:
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        self._thread.join()
        sys.setswitchinterval(self._interval)

    def read(self) -> Clock:
        """The napper's clocks, with the time that its naps took."""
        return dataclasses.replace(Clock.of_thread(self._thread), asleep_s=self._naps * (_NAP_S + _NAP_EXCESS_S))

    def _nap(self) -> None:
        while not self._stop:
            self._naps += 1
            time.sleep(_NAP_S)
