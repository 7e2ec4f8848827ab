"""Watched runs on this machine: each announces itself while it runs, and says in its directory how it goes."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from xttsbench.files import atomic_write
from xttsbench.records.monitoring import LIVE_FILE, LiveRun, RunningRun, running_directory

_LARGEST_BYTES: Final = 65_536


def announce(pid: int, run: Path) -> Path | None:
    """Write the file that leads from a process to its run; ``None`` where the runtime directory is not to be had.

    Args:
        pid: of the watched process.
        run: its run directory.
    """
    directory = running_directory()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if directory.stat().st_uid != os.getuid():
            return None
        directory.chmod(0o700)
        file = directory / f"{pid}.json"
        atomic_write(file, RunningRun(run=str(run.absolute())).model_dump_json().encode())
    except OSError:
        return None
    return file


def running() -> dict[int, Path]:
    """Return the run directory of each watched process that is alive, by its pid; files of dead ones are removed."""
    found: dict[int, Path] = {}
    directory = running_directory()
    try:
        if directory.stat().st_uid != os.getuid():
            return {}
        files = sorted(directory.glob("[1-9]*.json"))
    except OSError:
        return {}
    for file in files:
        if not file.stem.isdecimal():
            continue
        if not Path("/proc", file.stem).exists():
            with suppress(OSError):
                file.unlink()
            continue
        with suppress(OSError, ValidationError):
            found[int(file.stem)] = Path(RunningRun.model_validate_json(_content(file)).run)
    return found


def read_live(run: Path) -> LiveRun | None:
    """Return what a watched run says of itself; ``None`` where its directory says nothing that can be read."""
    try:
        return LiveRun.model_validate_json(_content(run / LIVE_FILE))
    except (OSError, ValidationError):
        return None


def _content(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(_LARGEST_BYTES)
