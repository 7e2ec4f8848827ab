"""The machine as a reading each time: its processors one by one, memory, storage, and what quotas stop.

Each reading is what went on since the one before it, from counters that the kernel keeps anyway. What cannot be read is
``None`` in the reading, with the reason in :attr:`MachineProbe.unmeasured`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from xttsbench.probes.live.pace import Pace
from xttsbench.probes.quota import memory_available_bytes, memory_limit_bytes, throttled_s
from xttsbench.records.monitoring import Reading

_SECTOR_BYTES: Final = 512
"""Of ``/proc/diskstats``, whatever the device's own sectors are."""
_PIECE_BYTES: Final = 1 << 16
_SLOW_SHARE, _SLOW_S = 0.001, 1.0
"""Memory and quota take longer to read than to change."""

Times = tuple[int, int, int, int]
"""Ticks: used, waiting for storage, stolen, all."""


class MachineProbe:
    """Reads the machine.

    Attributes:
        cores: numbers of the processors that are on.
        disks: names of the storage devices.
        unmeasured: column to why it is empty.
    """

    def __init__(self, root: Path = Path("/"), *, clock: Callable[[], float]) -> None:
        self._root, self._clock = root, clock
        self._stat, self._diskstats, self._meminfo = (
            str(root / "proc" / name) for name in ("stat", "diskstats", "meminfo")
        )
        self.unmeasured: dict[str, str] = {}
        self._slow = Pace(_SLOW_SHARE, _SLOW_S)
        self._limited = memory_limit_bytes(root) is not None
        self._times: dict[bytes, Times] = self._read_times()[0]
        self._read_s = self._stopped_at_s = clock()
        self._sectors = self._read_disks({path.name for path in _devices(root)})
        self.cores = tuple(sorted(int(name[3:]) for name in self._times if len(name) > 3))
        self._columns = {name: f"{name.decode()}_share" for name in self._times}
        self.disks = tuple(sorted(self._sectors))
        self._stopped_s = throttled_s(root)
        if not self.cores:
            self.unmeasured["cpu_share"] = "/proc/stat cannot be read"
        if not self.disks:
            self.unmeasured["storage_read_bytes_per_s"] = "no storage device is to be seen in /proc/diskstats"
        if self._stopped_s is None:
            self.unmeasured["quota_throttled_cpus"] = "no processor quota is set, or its stops are not counted"

    def read(self) -> Reading:
        """What went on since the last reading; memory and quota in about one reading a second."""
        now_s = self._clock()
        seconds, self._read_s = now_s - self._read_s, now_s
        found: Reading = {}
        self._add_processors(found)
        if seconds > 0 and self.disks:
            self._add_storage(found, seconds)
        if self._slow.due():
            with self._slow:
                self._add_memory(found)
                self._add_quota(found, now_s)
        return found

    def busy_s(self) -> float | None:
        """Processor seconds used by anyone, as of the last reading."""
        times = self._times.get(b"cpu")
        return None if times is None else times[0] / os.sysconf("SC_CLK_TCK")

    def _add_processors(self, found: Reading) -> None:
        before, (self._times, found["runnable_threads"]) = self._times, self._read_times()
        for name, now in self._times.items():
            was = before.get(name, now)
            if (whole := now[3] - was[3]) <= 0 or name not in self._columns:  # it sleeps, or has just come
                continue
            # The counters of idle time and of waiting may fall by a tick.
            used, waited, stolen = max(now[0] - was[0], 0), max(now[1] - was[1], 0), max(now[2] - was[2], 0)
            found[self._columns[name]] = min(used / whole, 1.0)
            if name == b"cpu":
                found["cpu_steal_share"], found["cpu_iowait_share"] = stolen / whole, waited / whole

    def _read_times(self) -> tuple[dict[bytes, Times], int | None]:
        """Ticks of ``cpu`` (all of them) and of each processor, and how many threads run or wait for one."""
        times: dict[bytes, Times] = {}
        try:
            text = _read(self._stat)
            for line in text.splitlines():
                if not line.startswith(b"cpu"):
                    break
                # user, nice, system, idle, iowait, irq, softirq, steal; guest times are in user and nice.
                name, user, nice, system, idle, waiting, irq, soft, steal = line.split(None, 9)[:9]
                used = int(user) + int(nice) + int(system) + int(irq) + int(soft)
                times[name] = used, int(waiting), int(steal), used + int(waiting) + int(steal) + int(idle)
        except (OSError, ValueError):
            return {}, None
        at = text.find(b"\nprocs_running ")
        return times, None if at < 0 else int(text[at + 15 : at + 30].split(None, 1)[0])

    def _add_storage(self, found: Reading, seconds: float) -> None:
        before, self._sectors = self._sectors, self._read_disks(set(self.disks))
        read = written = busiest = 0.0
        for name, now in self._sectors.items():
            rates = [max(one - was, 0) / seconds for one, was in zip(now, before.get(name, now), strict=True)]
            disk = rates[0] * _SECTOR_BYTES, rates[1] * _SECTOR_BYTES, min(rates[2] / 1e3, 1.0)
            names = ("read_bytes_per_s", "write_bytes_per_s", "busy_share")
            found |= {f"disk_{name}_{what}": value for what, value in zip(names, disk, strict=True)}
            read, written, busiest = read + disk[0], written + disk[1], max(busiest, disk[2])
        if self._sectors:
            found["storage_read_bytes_per_s"], found["storage_write_bytes_per_s"] = read, written
            found["storage_busy_share"] = busiest

    def _read_disks(self, names: set[str]) -> dict[str, tuple[int, int, int]]:
        """Sectors read and written, and milliseconds at work, of each device."""
        try:
            lines = _read(self._diskstats).decode("ascii", "replace").splitlines()
        except OSError:
            return {}
        found = {}
        for line in lines:
            fields = line.split()
            if len(fields) > 12 and fields[2] in names:
                found[fields[2]] = int(fields[5]), int(fields[9]), int(fields[12])
        return found

    def _add_memory(self, found: Reading) -> None:
        """Of the control group, where that may use less than the machine has."""
        limit = memory_limit_bytes(self._root) if self._limited else None
        left = None if limit is None else memory_available_bytes(self._root)
        try:
            fields = dict(line.split(b":", 1) for line in _read(self._meminfo).splitlines()[:3])
            total, available = (int(fields[name].split()[0]) * 1024 for name in (b"MemTotal", b"MemAvailable"))
        except (OSError, ValueError, KeyError):
            self.unmeasured["memory_used_bytes"] = "/proc/meminfo cannot be read"
            return
        if limit is not None and left is not None and limit < total:
            total, available = limit, min(left, available)
        found |= {"memory_used_bytes": total - available, "memory_total_bytes": total}

    def _add_quota(self, found: Reading, now_s: float) -> None:
        if self._stopped_s is None or now_s <= self._stopped_at_s:
            return
        if (stopped_s := throttled_s(self._root)) is not None:
            found["quota_throttled_cpus"] = max(stopped_s - self._stopped_s, 0.0) / (now_s - self._stopped_at_s)
            self._stopped_s, self._stopped_at_s = stopped_s, now_s


def _devices(root: Path) -> list[Path]:
    """Whole devices of storage: not partitions, loops, memory, or what is made of other devices."""
    return [path.parent for path in root.glob("sys/block/*/device")]


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = piece = os.read(descriptor, _PIECE_BYTES)
        while len(piece) == _PIECE_BYTES:
            text += (piece := os.read(descriptor, _PIECE_BYTES))
        return text
    finally:
        os.close(descriptor)
