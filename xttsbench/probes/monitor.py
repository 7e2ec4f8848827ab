"""Samples host and GPUs beside one trial, driven by the loop that waits for the child: no thread of its own.

Processor time, memory, faults and storage reads of the watched process are read from outside it, and what everyone made
of the processors that it may run on, so that neighbours and stolen time can be named. What ``/proc`` gives is Linux
only; elsewhere the fields stay empty with that reason.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any, Final

from xttsbench.probes.nvml import GpuProbe
from xttsbench.probes.procfs import (
    MachineTimes,
    Reads,
    Stat,
    cpu_allowance,
    descendants,
    parse_machine,
    parse_reads,
    parse_stat,
    read_text,
    tasks,
    thread_group,
    throttled_s,
)
from xttsbench.records.readings import MACHINE_COLUMNS, HostReadings, Readings

MIN_GAP_NS: Final = 20_000_000
"""Two ticks of the kernel's counters: a sample sooner than that after the one before would see none of them move."""
MAIN_GROUP: Final = "main"
CHILDREN_GROUP: Final = "child processes"

_SAMPLED: Final = (
    *("t_ns", "cpu_s", "run_delay_s", "rss_bytes", "major_faults", "read_bytes", "read_call_bytes", "throttled_s"),
    "parent_cpu_s",
)  # columns of :class:`~xttsbench.records.readings.HostReadings` that get an entry with each sample, where it is read


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
        parent_cpu_s: Callable[[], float] = time.process_time,
        quota_cpus: Callable[[], float | None] = lambda: cpu_allowance().quota_cpus,
        throttled: Callable[[], float | None] = throttled_s,
    ) -> None:
        self._pid = pid
        self._proc = proc
        self._home = f"{proc}/{pid}"
        self._clock = clock
        self._cpus = _cpus(pid)
        limits = [float(len(self._cpus)) if self._cpus else None, quota_cpus()]
        self._allowed_cpus = min((limit for limit in limits if limit is not None), default=None)
        self._parent = parent_cpu_s
        self._throttled = throttled
        self._family: list[int] = []
        self._pids: set[int] = {pid}
        self._threads: dict[int, float] = {}
        self._groups: dict[str, float] = {}
        self._delays_ns: dict[tuple[int, int], int] = {}
        self._delayed_ns = 0
        self._unmeasured: dict[str, str] = {}
        self._columns: dict[str, list[Any]] = {name: [] for name in _SAMPLED}
        self._machine: list[MachineTimes] = []
        self._ended = False
        self._last_ns = clock()
        self._machine_before = self._machine_times()
        self._children_start_s = 0.0
        try:
            own = parse_stat(read_text(f"{self._home}/stat"))
            self._family = descendants(pid, proc)
            self._children_start_s = _children_cpu_s(own, self._living_family())
            self._walk_threads(baseline=True)
            self._walk_delays()
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

    @property
    def samples(self) -> int:
        """Number of samples held."""
        return len(self._columns["t_ns"])

    def thin(self) -> None:
        """Forget every second sample: of a process that is watched for hours a bounded number is held."""
        for column in (*self._columns.values(), self._machine):
            del column[1::2]

    def _take(self, now_ns: int) -> None:
        self._family = descendants(self._pid, self._proc)
        own = parse_stat(read_text(f"{self._home}/stat"))
        if own.ended or own.rss_bytes == 0:
            self._ended = True
            return
        reads = self._reads(self._pid)
        self._walk_threads()
        self._walk_delays()
        self._append(now_ns, own, self._living_family(), reads)

    def _append(self, now_ns: int, own: Stat, family: dict[int, Stat], reads: Reads | None) -> None:
        children_s = _children_cpu_s(own, family)
        self._risen("cpu_s", own.cpu_s + children_s)
        if children_s > self._children_start_s:
            used_s = children_s - self._children_start_s
            self._groups[CHILDREN_GROUP] = max(used_s, self._groups.get(CHILDREN_GROUP, 0.0))
        self._risen("major_faults", own.major_faults + sum(stat.major_faults for stat in family.values()))
        if reads is not None:
            of_all = [reads, *(other for pid in family if (other := self._reads(pid)) is not None)]
            self._risen("read_bytes", sum(one.storage_bytes for one in of_all))
            if reads.call_bytes is None:
                self._unmeasured["read_call_bytes"] = "/proc/<pid>/io has no rchar"
            else:
                self._risen("read_call_bytes", sum(one.call_bytes or 0 for one in of_all))
        if "throttled_s" not in self._unmeasured:
            if (stopped_s := self._throttled()) is not None:
                self._columns["throttled_s"].append(stopped_s)
            else:
                self._give_up("throttled_s", "no processor quota is set, or the kernel does not count its stops")
        self._pids |= family.keys()
        self._columns["rss_bytes"].append(own.rss_bytes + sum(stat.rss_bytes for stat in family.values()))
        if (times := self._machine_times()) is not None:
            self._machine.append(times)
        self._columns["parent_cpu_s"].append(self._parent())
        if "run_delay_s" not in self._unmeasured:
            self._columns["run_delay_s"].append(self._delayed_ns / 1e9)
        self._columns["t_ns"].append(now_ns)
        self._last_ns = now_ns

    def _risen(self, name: str, value: float) -> None:
        """Add to a counter that never falls: a child that ends without being waited for takes its counts along."""
        column = self._columns[name]
        column.append(max(value, column[-1]) if column else value)

    def _living_family(self) -> dict[int, Stat]:
        living = {}
        for pid in self._family:
            # One that ended was waited for, so its counts are in those of its parent.
            with contextlib.suppress(OSError, ValueError, IndexError):
                living[pid] = parse_stat(read_text(f"{self._proc}/{pid}/stat"))
        return living

    def _give_up(self, column: str, why: str) -> None:
        self._columns[column].clear()
        self._unmeasured[column] = why

    def _reads(self, pid: int) -> Reads | None:
        """Bytes read and written; ``None`` where the kernel forbids it, and then given up for the process itself."""
        if "read_bytes" in self._unmeasured:
            return None
        try:
            return parse_reads(read_text(f"{self._proc}/{pid}/io"))
        except (OSError, ValueError) as error:
            if pid == self._pid:
                if self._columns["read_bytes"]:
                    raise  # It could be read before, so the process is going.
                why = f"/proc/<pid>/io cannot be read: {_why(error)}"
                self._unmeasured |= {"read_bytes": why, "read_call_bytes": why}
            return None

    def _machine_times(self) -> MachineTimes | None:
        if "machine_busy_s" in self._unmeasured:
            return None
        try:
            return parse_machine(read_text(f"{self._proc}/stat"), self._cpus)
        except (OSError, ValueError) as error:
            self._machine.clear()
            self._unmeasured |= dict.fromkeys(MACHINE_COLUMNS, f"/proc/stat cannot be read: {_why(error)}")
            return None

    def _walk_delays(self) -> None:
        """Add what the threads waited for a processor since the walk before; one that ended keeps what it had."""
        if "run_delay_s" in self._unmeasured:
            return
        before, self._delays_ns = self._delays_ns, {}
        for pid in (self._pid, *self._family):
            for tid in tasks(pid, self._proc):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    # sched-stats.rst: time on a processor, time waited for one, time slices.
                    waited_ns = int(read_text(f"{self._proc}/{pid}/task/{tid}/schedstat").split()[1])
                    self._delays_ns[pid, tid] = waited_ns
                    known_ns = before.get((pid, tid), 0)
                    self._delayed_ns += waited_ns - known_ns if waited_ns >= known_ns else waited_ns
        if not self._delays_ns:
            self._give_up("run_delay_s", "the kernel does not count the wait for a processor (schedstat)")

    def _walk_threads(self, *, baseline: bool = False) -> None:
        before, self._threads = self._threads, {}
        for tid in map(int, os.listdir(f"{self._home}/task")):
            try:
                stat = parse_stat(read_text(f"{self._home}/task/{tid}/stat"))
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
        machine = self._machine
        if machine and machine[-1] == self._machine_before:
            # Some sandboxes and old container layers show the machine's counters frozen, or all of them 0.
            machine = []
            unmeasured |= dict.fromkeys(MACHINE_COLUMNS, "the machine's processor counters do not advance here")
        if not self._columns["t_ns"]:
            reason = "the process ended before the first sample" if self._ended else "no sample was taken"
            if not os.path.isdir(f"{self._proc}/self"):
                reason = "this system has no /proc"
            unmeasured = dict.fromkeys((*_SAMPLED, *MACHINE_COLUMNS, "pids", "thread_group_cpu_s"), reason)
        elif not self._groups:
            unmeasured["thread_group_cpu_s"] = "no thread used a tick of the processor"
        return HostReadings(
            allowed_cpus=self._allowed_cpus,
            pids=tuple(sorted(self._pids)) if self._columns["t_ns"] else (),
            machine_busy_s=tuple(times.busy_s for times in machine),
            machine_steal_s=tuple(times.steal_s for times in machine),
            machine_idle_s=tuple(times.idle_s for times in machine),
            thread_group_cpu_s=dict(self._groups),
            unmeasured=unmeasured,
            **{name: tuple(values) for name, values in self._columns.items()},
        )


def processors_in_use(seconds: float, *, proc: str = "/proc") -> float | None:
    """Share of the processors that this process may use that is in use, or stolen, while it sleeps for some seconds.

    ``None`` where the machine's counters cannot be read or do not move.
    """
    cpus = _cpus(os.getpid())
    try:
        before = parse_machine(read_text(f"{proc}/stat"), cpus)
        time.sleep(seconds)
        after = parse_machine(read_text(f"{proc}/stat"), cpus)
    except (OSError, ValueError):
        return None
    taken_s = after.busy_s - before.busy_s + after.steal_s - before.steal_s
    elapsed_s = taken_s + after.idle_s - before.idle_s
    return taken_s / elapsed_s if elapsed_s > 0 else None


def _cpus(pid: int) -> frozenset[int]:
    with contextlib.suppress(OSError, AttributeError):
        return frozenset(os.sched_getaffinity(pid))
    return frozenset()


def _children_cpu_s(own: Stat, family: dict[int, Stat]) -> float:
    return own.reaped_cpu_s + sum(stat.cpu_s + stat.reaped_cpu_s for stat in family.values())


def _why(error: Exception) -> str:
    return (error.strerror or "unreadable") if isinstance(error, OSError) else str(error)


INTERVAL_S: Final = 0.2


class Monitor:
    """Readings of one process and of all GPUs, at an even interval.

    The caller waits at most :meth:`due` seconds for the child, then calls :meth:`tick`. ``gpus`` is what
    :func:`xttsbench.probes.nvml.open_gpus` returned; the probe is used again by the next trial, so it is not closed
    here, and only one monitor at a time may use it. Without GPUs that reason is in the readings.
    """

    def __init__(
        self,
        pid: int,
        *,
        interval_s: float = INTERVAL_S,
        gpus: tuple[GpuProbe | None, str | None],
        clock: Callable[[], int] = time.perf_counter_ns,
        host: HostProbe | None = None,
    ) -> None:
        self._interval_ns = round(interval_s * 1e9)
        self._gpus, self._no_gpu_reason = gpus
        if self._gpus is not None:
            self._gpus.restart()
        self._host = host or HostProbe(pid)
        self._next_ns = clock() + self._interval_ns

    def due(self, now_ns: int) -> float:
        """Seconds from ``now_ns`` (``time.perf_counter_ns``) to the next sample; 0 where it is overdue."""
        return max(self._next_ns - now_ns, 0) / 1e9

    def tick(self, now_ns: int) -> None:
        """Take a sample where one is due. A caller that comes late skips the missed ones and keeps the rhythm."""
        if now_ns < self._next_ns:
            return
        self._next_ns += ((now_ns - self._next_ns) // self._interval_ns + 1) * self._interval_ns
        self.sample()

    def sample(self) -> None:
        """Take a sample whatever the rhythm: at the edges of what is measured."""
        self._host.sample()
        if self._gpus is not None:
            self._gpus.sample()

    def readings(self) -> Readings:
        """Everything sampled so far."""
        if self._gpus is None:
            reason = self._no_gpu_reason or "no GPU was looked for"
            return Readings(host=self._host.readings(), unmeasured={"gpus": reason})
        return Readings(host=self._host.readings(), gpus=self._gpus.readings())
