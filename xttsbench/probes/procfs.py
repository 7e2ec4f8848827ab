"""The lines of ``/proc`` that the host probe reads, parsed.

psutil is not used for these: one read of a ``stat`` line gives state, processor time, faults and memory of the same
moment, so that a process that ended is told from one that uses nothing, and psutil has neither the major faults nor
the names of threads.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_NUMBERING = re.compile(r"[\s\-_.:/#]*\d+")
_EDGES = re.compile(r"^[\s\-_.:/#]+|[\s\-_.:/#]+$")


@dataclass(frozen=True, slots=True)
class Stat:
    """One ``/proc/<pid>/stat`` or ``/proc/<pid>/task/<tid>/stat``; processor time is user and system."""

    name: str
    ended: bool
    """A zombie: it keeps its times, but its memory is gone."""
    cpu_s: float
    reaped_cpu_s: float
    """Processor time of the children that ended and were waited for."""
    major_faults: int
    """Its own and those of the children that ended and were waited for."""
    rss_bytes: int


def parse_stat(text: str) -> Stat:
    """Parse a ``stat`` line (proc(5)). Raises ``ValueError`` or ``IndexError`` where it is not one."""
    # The name is in parentheses and may itself hold parentheses and spaces, so it ends at the last one.
    start, end = text.index("(") + 1, text.rindex(")")
    # From the third field on: state 3, majflt 12, cmajflt 13, utime 14, stime 15, cutime 16, cstime 17, rss 24.
    fields = text[end + 1 :].split()
    return Stat(
        name=text[start:end],
        ended=fields[0] in "ZX",
        cpu_s=(int(fields[11]) + int(fields[12])) * _TICK_S,
        reaped_cpu_s=(int(fields[13]) + int(fields[14])) * _TICK_S,
        major_faults=int(fields[9]) + int(fields[10]),
        rss_bytes=int(fields[21]) * _PAGE_BYTES,
    )


@dataclass(frozen=True, slots=True)
class Reads:
    """What a ``/proc/<pid>/io`` says of reading."""

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


def thread_group(name: str) -> str:
    """The name without its numbering, so that threads of one pool share a group and the group is the same every run.

    ``tf_data_12`` is ``tf_data``, ``pool-1-thread-7`` is ``pool-thread``, ``Thread-1 (run)`` is ``Thread``. A name of
    nothing but numbers is ``unnamed``.
    """
    return _EDGES.sub("", _NUMBERING.sub("", name.partition("(")[0])) or "unnamed"
