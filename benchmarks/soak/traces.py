"""What a process holds, and what is left when it has ended: read from /proc and from the folders that were given it."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path

TOKEN = "XTTSBENCH_SOAK"
"""A variable that everything started by the soak inherits, however it detaches itself."""

_GRACE_S = 3.0
"""Children of ours end within a second of their parent; a busy machine gets more."""


def held(pid: int) -> dict[str, float]:
    """Return what a process holds now; empty where it has ended.

    ``peak_mb`` is the most that was ever resident, ``rss_mb`` what is.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return {}
    status = dict(line.split(":", 1) for line in lines if ":" in line)
    if "VmHWM" not in status:  # a zombie
        return {}
    return {
        "peak_mb": int(status["VmHWM"].split()[0]) / 1024,
        "rss_mb": int(status["VmRSS"].split()[0]) / 1024,
        "descriptors": descriptors,
        "threads": int(status["Threads"]),
    }


def left_behind(token: str, spared: Collection[int]) -> list[str]:
    """Return the processes that carry the token and do not end in time, ``PID command``."""
    deadline = time.monotonic() + _GRACE_S
    while True:
        found = [line for pid, line in _carrying(token) if pid not in spared]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def _carrying(token: str) -> list[tuple[int, str]]:
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            environment = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            command = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{TOKEN}={token}".encode() in environment:
            found.append((int(name), f"{name} {command}"))
    return found


def files(places: Mapping[str, Path]) -> dict[str, list[str]]:
    """Return the files below each place, and the folders, by their names."""
    return {
        name: sorted(str(path.relative_to(place)) for path in place.rglob("*") if not _gone(path))
        for name, place in places.items()
    }


def _gone(path: Path) -> bool:
    return not os.path.lexists(path)
