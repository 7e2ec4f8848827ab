"""Processor time, memory, faults and storage reads of a watched process, read from outside it beside its steps.

What ``/proc`` gives is Linux only; elsewhere the fields stay empty with that reason.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Final

import psutil

from xttsbench.probes.procfs import Reads, Stat, parse_reads, parse_stat, thread_group
from xttsbench.probes.quota import throttled_s
from xttsbench.records.readings import HostReadings

MIN_GAP_NS: Final = 20_000_000
"""Two ticks of the kernel's counters: a sample sooner than that after the one before would see none of them move."""
FAMILY_EVERY: Final = 10
"""Child processes are looked for at every tenth sample, since that takes a walk over all processes."""
MAIN_GROUP: Final = "main"
CHILDREN_GROUP: Final = "child processes"

_PROCESS_FIELDS: Final = (
    *("t_ns", "cpu_s", "rss_bytes", "major_faults", "read_bytes", "read_call_bytes", "throttled_s", "machine_busy"),
    "pids",
)


class HostProbe:
    """Samples one process and its children until it ends; then further samples do nothing.

    Processor time by thread counts from the making of the probe to the last sample; threads that ended in between keep
    what they had used at the last sample that saw them. The main thread is the group ``main`` and child
    processes, the ended ones included, are ``child processes``.
    """

    def __init__(
        self,
        pid: int,
        *,
        proc: str = "/proc",
        clock: Callable[[], int] = time.perf_counter_ns,
        machine_times: Callable[[], Sequence[float]] = psutil.cpu_times,
        children: Callable[[int], list[int]] | None = None,
        throttled: Callable[[], float | None] = throttled_s,
    ) -> None:
        self._pid = pid
        self._proc = proc
        self._home = f"{proc}/{pid}"
        self._clock = clock
        self._machine_times = machine_times
        self._children = children or _descendants
        self._throttled = throttled
        self._family: list[int] = []
        self._pids: set[int] = {pid}
        self._threads: dict[int, float] = {}
        self._groups: dict[str, float] = {}
        self._unmeasured: dict[str, str] = {}
        self._t_ns: list[int] = []
        self._cpu_s: list[float] = []
        self._rss_bytes: list[int] = []
        self._major_faults: list[int] = []
        self._read_bytes: list[int] = []
        self._read_call_bytes: list[int] = []
        self._throttled_s: list[float] = []
        self._machine_busy: list[float] = []
        self._calls = 0
        self._ended = False
        self._last_ns = clock()
        self._busy_idle = _busy_and_idle(machine_times())
        self._children_start_s = 0.0
        try:
            own = parse_stat(_read(f"{self._home}/stat"))
            self._family = self._children(pid)
            self._children_start_s = _children_cpu_s(own, self._living_family())
            self._walk_threads(baseline=True)
        except (OSError, ValueError, IndexError):
            self._ended = True

    def sample(self) -> None:
        """Take a sample, unless the process has ended or the one before is less than :data:`MIN_GAP_NS` old.

        Never raises because the process ended, even in the middle.
        """
        now_ns = self._clock()
        if self._ended or now_ns - self._last_ns < MIN_GAP_NS:
            return
        try:
            self._take(now_ns)
        except (OSError, ValueError, IndexError):
            # ESRCH, ENOENT, EACCES or a torn line: each is how a process that is ending looks from outside.
            self._ended = True

    def _take(self, now_ns: int) -> None:
        self._calls += 1
        if self._calls % FAMILY_EVERY == 0:
            self._family = self._children(self._pid)
        own = parse_stat(_read(f"{self._home}/stat"))
        if own.ended or own.rss_bytes == 0:
            self._ended = True
            return
        reads = self._reads(self._pid)
        self._walk_threads()
        self._append(now_ns, own, self._living_family(), reads)

    def _append(self, now_ns: int, own: Stat, family: dict[int, Stat], reads: Reads | None) -> None:
        children_s = _children_cpu_s(own, family)
        # A child that ends without being waited for takes its counts along: what was counted stays counted.
        self._cpu_s.append(max(own.cpu_s + children_s, self._cpu_s[-1] if self._cpu_s else 0.0))
        if children_s > self._children_start_s:
            used_s = children_s - self._children_start_s
            self._groups[CHILDREN_GROUP] = max(used_s, self._groups.get(CHILDREN_GROUP, 0.0))
        faults = own.major_faults + sum(stat.major_faults for stat in family.values())
        self._major_faults.append(max(faults, self._major_faults[-1] if self._major_faults else 0))
        if reads is not None:
            self._append_reads([reads, *(other for pid in family if (other := self._reads(pid)) is not None)])
        self._sample_throttling()
        self._pids |= family.keys()
        self._rss_bytes.append(own.rss_bytes + sum(stat.rss_bytes for stat in family.values()))
        self._sample_machine()
        self._t_ns.append(now_ns)
        self._last_ns = now_ns

    def _living_family(self) -> dict[int, Stat]:
        living = {}
        for pid in self._family:
            # One that ended was waited for, so its counts are in those of its parent.
            with contextlib.suppress(OSError, ValueError, IndexError):
                living[pid] = parse_stat(_read(f"{self._proc}/{pid}/stat"))
        return living

    def _append_reads(self, reads: Sequence[Reads]) -> None:
        storage = sum(one.storage_bytes for one in reads)
        self._read_bytes.append(max(storage, self._read_bytes[-1] if self._read_bytes else 0))
        if reads[0].call_bytes is None:
            self._unmeasured["read_call_bytes"] = "/proc/<pid>/io has no rchar"
            return
        calls = sum(one.call_bytes or 0 for one in reads)
        self._read_call_bytes.append(max(calls, self._read_call_bytes[-1] if self._read_call_bytes else 0))

    def _sample_throttling(self) -> None:
        if "throttled_s" in self._unmeasured:
            return
        stopped_s = self._throttled()
        if stopped_s is None:
            self._throttled_s.clear()
            self._unmeasured["throttled_s"] = "no processor quota is set, or the kernel does not count its stops"
            return
        self._throttled_s.append(stopped_s)

    def _reads(self, pid: int) -> Reads | None:
        """What was read; ``None`` where it may not be told, and then for the process it is given up."""
        if "read_bytes" in self._unmeasured:
            return None
        try:
            return parse_reads(_read(f"{self._proc}/{pid}/io"))
        except (OSError, ValueError) as error:
            if pid == self._pid:
                if self._read_bytes:
                    raise  # It could be read before, so the process is going.
                why = f"/proc/<pid>/io cannot be read: {_why(error)}"
                self._unmeasured |= {"read_bytes": why, "read_call_bytes": why}
            return None

    def _sample_machine(self) -> None:
        if "machine_busy" in self._unmeasured:
            return
        busy, idle = _busy_and_idle(self._machine_times())
        busy_before, idle_before = self._busy_idle
        busy_s, idle_s = busy - busy_before, max(idle - idle_before, 0.0)
        self._busy_idle = busy, idle
        if busy_s + idle_s <= 0:
            # Some sandboxes and old container layers show the machine's counters frozen, or all of them 0.
            self._machine_busy.clear()
            self._unmeasured["machine_busy"] = "the machine's processor counters do not advance here"
            return
        self._machine_busy.append(min(max(busy_s / (busy_s + idle_s), 0.0), 1.0))

    def _walk_threads(self, *, baseline: bool = False) -> None:
        before, self._threads = self._threads, {}
        for entry in os.listdir(f"{self._home}/task"):
            tid = int(entry)
            try:
                stat = parse_stat(_read(f"{self._home}/task/{entry}/stat"))
            except OSError:
                continue  # This thread ended since the directory was listed.
            self._threads[tid] = stat.cpu_s
            if baseline:
                continue
            known_s = before.get(tid, 0.0)
            # Less than before: the kernel gave the id of an ended thread to a new one.
            used_s = stat.cpu_s - known_s if stat.cpu_s >= known_s else stat.cpu_s
            if used_s > 0:
                group = MAIN_GROUP if tid == self._pid else thread_group(stat.name)
                self._groups[group] = self._groups.get(group, 0.0) + used_s

    def readings(self) -> HostReadings:
        """Everything sampled so far, with the reason for each field that is empty."""
        unmeasured = dict(self._unmeasured)
        if not self._t_ns:
            if not os.path.isdir(f"{self._proc}/self"):
                reason = "this system has no /proc"
            elif self._ended:
                reason = "the process ended before the first sample"
            else:
                reason = "no sample was taken"
            unmeasured = dict.fromkeys((*_PROCESS_FIELDS, "thread_group_cpu_s"), reason)
        elif not self._groups:
            unmeasured["thread_group_cpu_s"] = "no thread used a tick of the processor"
        return HostReadings(
            t_ns=tuple(self._t_ns),
            cpu_s=tuple(self._cpu_s),
            rss_bytes=tuple(self._rss_bytes),
            major_faults=tuple(self._major_faults),
            read_bytes=tuple(self._read_bytes),
            read_call_bytes=tuple(self._read_call_bytes),
            throttled_s=tuple(self._throttled_s),
            pids=tuple(sorted(self._pids)) if self._t_ns else (),
            machine_busy=tuple(self._machine_busy),
            thread_group_cpu_s=dict(self._groups),
            unmeasured=unmeasured,
        )


def _busy_and_idle(times: Sequence[float]) -> tuple[float, float]:
    # user, nice, system, idle, iowait, irq, softirq, steal; the guest times after these are part of user and nice.
    idle = sum(times[3:5])
    return sum(times[:8]) - idle, idle


def _children_cpu_s(own: Stat, family: dict[int, Stat]) -> float:
    return own.reaped_cpu_s + sum(stat.cpu_s + stat.reaped_cpu_s for stat in family.values())


def _descendants(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


def _read(path: str) -> str:
    with open(path, "rb", buffering=0) as file:
        return file.read().decode("utf-8", "replace")


def _why(error: Exception) -> str:
    return (error.strerror or "unreadable") if isinstance(error, OSError) else str(error)
