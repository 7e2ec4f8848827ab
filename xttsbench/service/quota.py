"""A process held to a share of the processor: by a control group, or by stopping it where none can be made."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path, PurePosixPath
from typing import Final

TICK_S: Final = 0.01
"""Interval in which :meth:`Quota.tick` wants to be called where ``kind`` is ``stops``."""
_PERIOD_US: Final = 20_000
"""Length of the kernel's period: short, so that a quarter of a core is slow and not halting."""
_ROOT: Final = Path("/sys/fs/cgroup")
_PREFIX: Final = "xttsbench-"


class Quota:
    """Cores that one child process may use on average.

    Args:
        pid: of a child that has not been waited for.
        cores: 0.25 is a quarter of the time of one core.

    Attributes:
        kind: ``cgroup v1``, ``cgroup v2``, or ``stops``: SIGSTOP and SIGCONT by the processor time that was used.
    """

    def __init__(self, pid: int, cores: float) -> None:
        self.kind, self._pid, self._group = "stops", pid, None
        for version, parent in _parents():
            group = parent / f"{_PREFIX}{os.getpid()}-{pid}"
            try:
                group.mkdir()
                self._group = group
                self.set(cores)
                (group / "cgroup.procs").write_text(str(pid), "ascii")
            except OSError:
                self.close()
            else:
                self.kind = version
                return
        self._clock = (~pid << 3) | 2  # the process's CPU-time clock: clock_getcpuclockid(3)
        self._stopped, self._left_s = False, 0.0
        self._used_s, self._at_s = time.clock_gettime(self._clock), time.monotonic()
        self.set(cores)

    def set(self, cores: float) -> None:
        """Change the quota of the running process."""
        self._cores = cores
        if self._group is not None:
            quota, period = str(round(cores * _PERIOD_US)), str(_PERIOD_US)
            second = (self._group / "cpu.max").exists()
            burst = self._group / ("cpu.max.burst" if second else "cpu.cfs_burst_us")
            with contextlib.suppress(OSError):
                burst.write_text("0", "ascii")  # the kernel refuses a quota below it
            if second:
                (self._group / "cpu.max").write_text(f"{quota} {period}", "ascii")
            else:
                (self._group / "cpu.cfs_period_us").write_text(period, "ascii")
                (self._group / "cpu.cfs_quota_us").write_text(quota, "ascii")
            with contextlib.suppress(OSError):  # since Linux 5.14; without it some 5 % of a quarter of a core are lost
                burst.write_text(quota, "ascii")

    def tick(self) -> None:
        """Stop the process where it has used more than its share, and let it go on where that is paid back."""
        now_s, used_s = time.monotonic(), time.clock_gettime(self._clock)
        self._left_s += self._cores * (now_s - self._at_s) - (used_s - self._used_s)
        self._left_s = min(self._left_s, self._cores * 2 * TICK_S)  # what was not used is not saved up
        self._at_s, self._used_s = now_s, used_s
        if self._stopped != (self._left_s < 0):
            self._stopped = not self._stopped
            os.kill(self._pid, signal.SIGSTOP if self._stopped else signal.SIGCONT)

    def close(self) -> None:
        """Remove the group, after the process has ended."""
        if self._group is not None:
            with contextlib.suppress(OSError):
                self._group.rmdir()
            self._group = None


def sweep() -> None:
    """Remove the groups that were left behind where a whole cluster was killed."""
    for _, parent in _parents():
        for group in parent.glob(f"{_PREFIX}*-*"):
            if not Path("/proc", group.name.removeprefix(_PREFIX).partition("-")[0]).exists():
                with contextlib.suppress(OSError):
                    group.rmdir()


def _parents() -> list[tuple[str, Path]]:
    """Groups in which a group with a quota may be made: this process's own, or the mount's where its path is hidden."""
    found = []
    for line in Path("/proc/self/cgroup").read_text("ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        version, mounts = ("cgroup v1", [controllers, "cpu"]) if controllers else ("cgroup v2", ["", "unified"])
        inner = PurePosixPath(path.strip("/"))
        groups = [_ROOT / mount / group for mount in mounts for group in (inner, "")]
        found += [(version, group) for group in dict.fromkeys(groups) if (group / "cgroup.procs").exists()]
    return found
