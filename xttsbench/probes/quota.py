"""How many processors and how much memory this process may use, which in a container is less than the machine has.

TensorFlow and most tools size their thread pools by the machine; the kernel's control groups then throttle them. Both
versions of control groups are read, the process's own group and all its ancestors, since the tightest one holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil

_NO_LIMIT_BYTES = 1 << 62
"""Control groups v1 write "no limit" as the largest multiple of a page below 2**63."""


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
    limits = [
        int(text)
        for group in _groups(root, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
        if (text := _read(group / name)) is not None and text.isdigit()
    ]
    return min((limit for limit in limits if limit < _NO_LIMIT_BYTES), default=None)


def obtainable_bytes() -> int:
    """What this process can still get: what the machine has available, or what its limit leaves, if that is less."""
    available_bytes, limit_bytes = psutil.virtual_memory().available, memory_limit_bytes()
    if limit_bytes is None:
        return available_bytes
    return min(available_bytes, max(0, limit_bytes - psutil.Process().memory_info().rss))


def memory_available_bytes(root: Path = Path("/")) -> int | None:
    """What is left of the tightest memory limit, page cache that can be given up included; ``None`` where none is set.

    The machine's own available memory is another matter, and may be less.
    """
    left = []
    for group in _groups(root, "memory"):
        for most, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            limit, now = _read(group / most), _read(group / used)
            if limit is None or now is None or not (limit.isdigit() and now.isdigit()):
                continue
            fields = dict(line.split(" ", 1) for line in (_read(group / "memory.stat") or "").splitlines())
            cache = fields.get("inactive_file", "0")
            if int(limit) < _NO_LIMIT_BYTES:
                left.append(max(int(limit) - int(now) + (int(cache) if cache.isdigit() else 0), 0))
    return min(left, default=None)


def throttled_s(root: Path = Path("/")) -> float | None:
    """Seconds for which processor quotas have stopped threads of this process's control groups so far.

    ``None`` where no group has a quota, or the kernel does not count it. Of several groups with a quota the one that
    was stopped longest is told.
    """
    found = []
    for group in _groups(root, "cpu"):
        if _quota_cpus(group) is None:
            continue
        fields = dict(line.split(" ", 1) for line in (_read(group / "cpu.stat") or "").splitlines() if " " in line)
        # v2 counts microseconds, v1 nanoseconds.
        for name, unit in (("throttled_usec", 1e-6), ("throttled_time", 1e-9)):
            if fields.get(name, "").isdigit():
                found.append(int(fields[name]) * unit)
    return max(found, default=None)


def _quota_cpus(group: Path) -> float | None:
    # v2: "max 100000" or "150000 100000"; v1: the same two numbers in a file each, -1 for none. Microseconds.
    version_2 = _read(group / "cpu.max")
    if version_2 is not None:
        quota, _, period = version_2.partition(" ")
    else:
        quota = _read(group / "cpu.cfs_quota_us") or ""
        period = _read(group / "cpu.cfs_period_us") or ""
    if not (quota.isdigit() and period.isdigit() and int(quota) and int(period)):
        return None
    return int(quota) / int(period)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Directories of the process's control groups that may hold the controller's files, own group first."""
    mount = root / "sys/fs/cgroup"
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
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


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
