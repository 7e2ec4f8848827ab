"""Processor time of the processes that this one started: input pipelines work in them, too."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from xttsbench.probes.procfs import parse_stat
from xttsbench.records.row_memory import SegmentRows


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
        walls = {index: rows.get(index, "wall_ns") for index in range(first, rows.count)} if added_ns > 0 else {}
        total_ns = sum(walls.values())
        for index, wall_ns in walls.items():
            rows.add_to(index, "cpu_ns", added_ns * wall_ns // max(total_ns, 1))


def children_cpu_ns() -> int:
    """Processor time of all that this process started and that they started: those that run, and those waited for."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = ended.ru_utime + ended.ru_stime
    for pid in _descendants(os.getpid()) if _has_children() else ():
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
            seconds += stat.cpu_s + stat.reaped_cpu_s
    return round(seconds * 1e9)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _descendants(pid: int) -> Iterator[int]:
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, children.read_text(encoding="ascii").split()):
                yield child
                yield from _descendants(child)
