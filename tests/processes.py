"""Whether processes that a test knows by their numbers have ended."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie that nobody has waited for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def still_running(pids: Iterable[int], within_s: float = 3.0) -> list[int]:
    """Those that still run after a second's grace, tripled for a busy machine."""
    end = time.monotonic() + within_s
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < end:
        time.sleep(0.02)
    return left
