"""Whether processes have ended, known by their numbers or by a variable; and who is sent a signal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest


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


def marked(variable: str) -> list[int]:
    """Process ids of those that run with ``NAME=value`` in the environment that they were started with."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0") and is_running(int(folder.name)):
                found.append(int(folder.name))
        except OSError:  # gone, or another user's
            continue
    return found


def freed_ids_signalled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Process ids to which a signal is sent by number though no child of this process has them, from now on."""
    found: list[int] = []

    def watched(send: Callable[[int, int], None]) -> Callable[[int, int], None]:
        def sent(pid: int, number: int) -> None:
            try:
                parent = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                parent = 0
            if parent != os.getpid():
                found.append(pid)
            send(pid, number)

        return sent

    for name in ("kill", "killpg"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    return found
