"""Readings of the kernel's files on processes (``/proc``) and on the limits that are set to them (control groups).

TensorFlow and most tools size their thread pools by the machine; in a container, control groups then throttle them.
Both versions of control groups are read, the process's own group and its ancestors, since the tightest limit holds.

psutil is not used for these: one read of a ``stat`` line gives state, processor time, faults and memory of the same
moment, so that a process that ended is told from one that uses nothing, and psutil has neither the major faults nor
the names of threads.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import psutil

from xttsbench.records.rows import SegmentRows

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_NUMBERING = re.compile(r"[\s\-_.:/#]*\d+")
_EDGES = re.compile(r"^[\s\-_.:/#]+|[\s\-_.:/#]+$")


def read_text(path: str) -> str:
    """A file of ``/proc``, in one piece, so that all of it is of one moment."""
    with open(path, "rb", buffering=0) as file:
        return file.read().decode("utf-8", "replace")


def tasks(pid: int, proc: str = "/proc") -> Iterator[int]:
    """The threads of a process; none where it is gone."""
    with contextlib.suppress(OSError, ValueError):
        yield from map(int, os.listdir(f"{proc}/{pid}/task"))


def descendants(pid: int, proc: str = "/proc") -> list[int]:
    """All that a process started and that they started, from what the kernel lists of each thread."""
    family = [pid]
    for one in family:  # which grows
        for tid in tasks(one, proc):
            with contextlib.suppress(OSError, ValueError):
                family += map(int, read_text(f"{proc}/{one}/task/{tid}/children").split())
    return family[1:]


def process_cpu_s(pid: int) -> float:
    """Processor time of all threads of a process, by its clock (clock_getcpuclockid(3)): finer than its ``stat``.

    Raises:
        OSError: there is no such process.
    """
    return time.clock_gettime((~pid << 3) | 2)


@dataclass(frozen=True, slots=True)
class Stat:
    """One ``/proc/<pid>/stat`` or ``/proc/<pid>/task/<tid>/stat``; processor time is user and system."""

    name: str
    state: str
    """The kernel's letter: ``R`` runs, ``T`` was stopped by a signal, ``Z`` is a zombie."""
    cpu_s: float
    reaped_cpu_s: float
    """Processor time of the children that ended and were waited for."""
    major_faults: int
    """Major faults of the process and of the children that ended and were waited for."""
    rss_bytes: int
    parent: int
    """Process id of its parent."""
    started_ticks: int
    """When it started, in ticks since the machine did: with the process id it names a process for good."""

    @property
    def ended(self) -> bool:
        """Whether the process is a zombie: it keeps its times, but its memory is gone."""
        return self.state in "ZX"


def parse_stat(text: str) -> Stat:
    """Parse a ``stat`` line (proc(5)). Raises ``ValueError`` or ``IndexError`` where it is not one."""
    # The name is in parentheses and may itself hold parentheses and spaces, so it ends at the last one.
    start, end = text.index("(") + 1, text.rindex(")")
    # From the third field on: state 3, ppid 4, majflt 12, cmajflt 13, utime 14, stime 15, cutime 16, cstime 17,
    # starttime 22, rss 24.
    fields = text[end + 1 :].split()
    return Stat(
        name=text[start:end],
        state=fields[0],
        cpu_s=(int(fields[11]) + int(fields[12])) * _TICK_S,
        reaped_cpu_s=(int(fields[13]) + int(fields[14])) * _TICK_S,
        major_faults=int(fields[9]) + int(fields[10]),
        rss_bytes=int(fields[21]) * _PAGE_BYTES,
        parent=int(fields[1]),
        started_ticks=int(fields[19]),
    )


class MachineTimes(NamedTuple):
    """Use of processors since the machine started, in processor seconds."""

    busy_s: float
    """Someone used them: user, nice, system and interrupts."""
    steal_s: float
    """Time in which processors had work, and the hypervisor ran something else."""
    idle_s: float
    """Time without work, waiting for storage included."""


def parse_machine(text: str, cpus: frozenset[int]) -> MachineTimes:
    """Sum the times of some processors in ``/proc/stat`` (proc(5)); of all, where some of them are not in it.

    Some container layers show only the container's processors and number them anew. Raises ``ValueError`` where there
    are no such lines, or one holds anything but numbers.
    """
    each = {}
    for line in text.splitlines()[1:]:  # the first is the sum of all
        if not line.startswith("cpu"):
            break
        name, *fields = line.split()
        # The guest times after these are in user and nice; old kernels have no steal.
        user, nice, system, idle, waiting, irq, soft, steal = [*map(int, fields[:8]), *[0] * (8 - len(fields))]
        each[int(name[3:])] = user + nice + system + irq + soft, steal, idle + waiting
    if not each:
        raise ValueError("no processors in /proc/stat")
    chosen = [each[cpu] for cpu in (cpus if cpus and cpus <= each.keys() else each)]
    return MachineTimes(*(sum(column) * _TICK_S for column in zip(*chosen, strict=True)))


@dataclass(frozen=True, slots=True)
class Reads:
    """Counters of a ``/proc/<pid>/io``: bytes read and written."""

    storage_bytes: int
    """Fetched from storage, page-cache hits not among them (``read_bytes``)."""
    call_bytes: int | None
    """Returned by read calls, wherever from (``rchar``)."""


def parse_reads(text: str) -> Reads:
    """Parse a ``/proc/<pid>/io`` (proc(5)). Raises ``ValueError`` where ``read_bytes`` is not in it."""
    fields = {key: value for key, _, value in (line.partition(":") for line in text.splitlines())}
    if "read_bytes" not in fields:
        raise ValueError("no read_bytes in /proc/<pid>/io")
    return Reads(int(fields["read_bytes"]), int(fields["rchar"]) if "rchar" in fields else None)


def own_reads() -> Reads | None:
    """Counters of this process; ``None`` where the kernel has none."""
    try:
        return parse_reads(read_text("/proc/self/io"))
    except (OSError, ValueError):
        return None


def thread_group(name: str) -> str:
    """The name without its numbering, so that threads of one pool share a group and the group is the same every run.

    ``tf_data_12`` is ``tf_data``, ``pool-1-thread-7`` is ``pool-thread``, ``Thread-1 (run)`` is ``Thread``. A name of
    nothing but numbers is ``unnamed``.
    """
    return _EDGES.sub("", _NUMBERING.sub("", name.partition("(")[0])) or "unnamed"


class ChildrenCpu:
    """Adds it to the rows of a stretch of steps, which share it by their wall times.

    The kernel tells it in hundredths of a second, and reading it takes as long as a quick step.
    """

    def __init__(self) -> None:
        self._known_ns = children_cpu_ns()

    def spread(self, rows: SegmentRows, first: int) -> None:
        """Add what was used since the last time to the rows from that index on."""
        now_ns = children_cpu_ns()
        added_ns, self._known_ns = now_ns - self._known_ns, now_ns
        rows.share_out(first, added_ns)


def children_cpu_ns() -> int:
    """Processor time of all that this process started and that they started: those that run, and those waited for."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = ended.ru_utime + ended.ru_stime
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # there are none, which is cheaper to ask for than to look for
        return round(seconds * 1e9)
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = parse_stat(read_text(f"/proc/{pid}/stat"))
            seconds += stat.cpu_s + stat.reaped_cpu_s
    return round(seconds * 1e9)


@dataclass(frozen=True, slots=True)
class CpuAllowance:
    """Processors of the machine, and how many of them this process can keep busy.

    ``quota_cpus`` is processor seconds per second, so it may be fractional; ``None`` means that no quota is set.
    """

    machine_cpus: int
    affinity_cpus: int
    quota_cpus: float | None
    allowed_cpus: float


def cpu_allowance(root: Path = Path("/")) -> CpuAllowance:
    """The processors this process may use: the smaller of its affinity mask and of its control groups' quota.

    ``root`` is where the file system's ``proc`` and ``sys`` are looked up; the affinity mask is asked of the kernel.
    """
    machine = os.cpu_count() or 1
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else machine
    quotas = [quota for group in _groups(root, "cpu") if (quota := _quota_cpus(group)) is not None]
    quota = min(quotas, default=None)
    return CpuAllowance(machine, affinity, quota, float(affinity) if quota is None else min(float(affinity), quota))


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """The tightest memory limit of this process's control groups in bytes, or ``None`` where none is set."""
    return min((limit for limit, _, _ in _memory_limits(root)), default=None)


def obtainable_bytes() -> int:
    """Bytes that processes can still get: the machine's available memory, or the rest of the limit, if less."""
    machine, limited = int(psutil.virtual_memory().available), memory_limit_left_bytes()
    return machine if limited is None else min(machine, limited)


def memory_limit_left_bytes(root: Path = Path("/")) -> int | None:
    """Bytes left of the tightest memory limit, reclaimable page cache included; ``None`` where no limit is set.

    The machine's own available memory is another matter, and may be less.
    """
    left = []
    for limit, group, used in _memory_limits(root):
        now = text_of(group / used) or ""
        if now.isdigit():
            left.append(max(limit - int(now) + _counts(group / "memory.stat").get("inactive_file", 0), 0))
    return min(left, default=None)


def _memory_limits(root: Path) -> Iterator[tuple[int, Path, str]]:
    """Each limit that is set, in bytes, with its group and the file there that says how much of it is used."""
    for group in _groups(root, "memory"):
        for most, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            text = text_of(group / most) or ""
            # Version 1 writes "no limit" as the largest multiple of a page below 2**63.
            if text.isdigit() and int(text) < 1 << 62:
                yield int(text), group, used


def throttled_s(root: Path = Path("/")) -> float | None:
    """Seconds for which processor quotas have stopped threads of this process's control groups so far.

    ``None`` where no group has a quota, or the kernel does not count it. Of several groups with a quota the one that
    was stopped longest is told.
    """
    found = []
    for group in _groups(root, "cpu"):
        if _quota_cpus(group) is not None:
            counts = _counts(group / "cpu.stat")
            # Version 2 counts microseconds, version 1 nanoseconds.
            units = {"throttled_usec": 1e-6, "throttled_time": 1e-9}
            found += [counts[name] * unit for name, unit in units.items() if name in counts]
    return max(found, default=None)


def _counts(path: Path) -> dict[str, int]:
    """The numbers of a file with a name and a number on each line; none where there is no such file."""
    pairs = (line.partition(" ") for line in (text_of(path) or "").splitlines())
    return {name: int(value) for name, _, value in pairs if value.isdigit()}


def _quota_cpus(group: Path) -> float | None:
    # v2: "max 100000" or "150000 100000"; v1: the same two numbers in a file each, -1 for none. Microseconds.
    version_2 = text_of(group / "cpu.max")
    if version_2 is not None:
        quota, _, period = version_2.partition(" ")
    else:
        quota = text_of(group / "cpu.cfs_quota_us") or ""
        period = text_of(group / "cpu.cfs_period_us") or ""
    if not (quota.isdigit() and period.isdigit() and int(quota) and int(period)):
        return None
    return int(quota) / int(period)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Directories of the process's control groups that may hold the controller's files, own group first."""
    mount = root / "sys/fs/cgroup"
    for line in (text_of(root / "proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            # The hybrid layout keeps version 2 in a directory of its own.
            mounts = [mount, mount / "unified"]
        elif controller in controllers.split(","):
            mounts = [mount / controllers, mount / controller]
        else:
            continue
        # A container that sees the host's path (".." or a directory that is not mounted) still has its own group at
        # the mount, which is the last of these ancestors; the files that are missing on the way are passed over.
        inner = PurePosixPath(path.strip("/"))
        if ".." in inner.parts:
            inner = PurePosixPath()
        for top in mounts:
            yield top / inner
            yield from (top / parent for parent in inner.parents if inner.parts)


def text_of(path: Path) -> str | None:
    """A small file of the kernel's without white space at its ends; ``None`` where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
