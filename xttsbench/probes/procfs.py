"""Processor time, memory and reads of processes, as the lines of ``/proc`` tell them.

psutil is not used for these: one read of a ``stat`` line gives state, processor time, faults and memory of the same
moment, so that a process that ended is told from one that uses nothing, and psutil has neither the major faults nor
the names of threads.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
from collections.abc import Iterator
from dataclasses import dataclass

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
    """Its own and those of the children that ended and were waited for."""
    rss_bytes: int
    parent: int
    """Process id of its parent."""
    started_ticks: int
    """When it started, in ticks since the machine did: with the process id it names a process for good."""

    @property
    def ended(self) -> bool:
        """Whether it is a zombie: it keeps its times, but its memory is gone."""
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


@dataclass(frozen=True, slots=True)
class MachineTimes:
    """What processors of the machine did since it started, in processor seconds."""

    busy_s: float
    """Someone used them: user, nice, system and interrupts."""
    steal_s: float
    """They had work, and the hypervisor ran something else."""
    idle_s: float
    """They had none, waiting for storage included."""


def parse_machine(text: str, cpus: frozenset[int]) -> MachineTimes:
    """Sum the lines of ``/proc/stat`` of some processors (proc(5)); of all, where some of them are not in it.

    Some container layers show only the container's processors and number them anew. Raises ``ValueError`` where there
    are no such lines.
    """
    lines = {}
    for line in text.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdigit():
            lines[int(name[3:])] = [int(field) for field in fields]
    if not lines:
        raise ValueError("no processors in /proc/stat")
    busy = steal = idle = 0
    for cpu in cpus if cpus and cpus <= lines.keys() else lines:
        # user, nice, system, idle, iowait, irq, softirq, steal; the guest times after these are in user and nice.
        times = [*lines[cpu][:8], *[0] * (8 - len(lines[cpu]))]
        busy += sum(times[:3]) + times[5] + times[6]
        steal += times[7]
        idle += times[3] + times[4]
    return MachineTimes(busy * _TICK_S, steal * _TICK_S, idle * _TICK_S)


@dataclass(frozen=True, slots=True)
class Reads:
    """What a ``/proc/<pid>/io`` says of reading, and what was written."""

    storage_bytes: int
    """Fetched from storage, page-cache hits not among them (``read_bytes``)."""
    call_bytes: int | None
    """Returned by read calls, wherever from (``rchar``)."""
    written_bytes: int | None = None
    """To be written to storage, now or later (``write_bytes``)."""


def parse_reads(text: str) -> Reads:
    """Parse a ``/proc/<pid>/io`` (proc(5)). Raises ``ValueError`` where ``read_bytes`` is not in it."""
    fields = {key: value for key, _, value in (line.partition(":") for line in text.splitlines())}
    if "read_bytes" not in fields:
        raise ValueError("no read_bytes in /proc/<pid>/io")
    called, written = (int(fields[key]) if key in fields else None for key in ("rchar", "write_bytes"))
    return Reads(int(fields["read_bytes"]), called, written)


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
        rows.share_out("cpu_ns", first, added_ns)


def children_cpu_ns() -> int:
    """Processor time of all that this process started and that they started: those that run, and those waited for."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = ended.ru_utime + ended.ru_stime
    for pid in descendants(os.getpid()) if _has_children() else ():
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = parse_stat(read_text(f"/proc/{pid}/stat"))
            seconds += stat.cpu_s + stat.reaped_cpu_s
    return round(seconds * 1e9)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
