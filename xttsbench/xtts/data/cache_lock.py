"""One maker at a time for a feature cache: a lock that the kernel releases however its holder dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from xttsbench.errors import UsageError
from xttsbench.xtts.data.progress import Progress

LOCK: Final = "lock"


@contextmanager
def locked(directory: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock of a directory, made where it is missing; waits for another process that holds it.

    Raises:
        OSError: the directory cannot be made or written.
        UsageError: its file system has no locks.
    """
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _lock(descriptor, directory, progress)
            # Whoever held the lock may have removed the directory, and our file with it.
            if _is_at(descriptor, directory / LOCK):
                yield
                return
        finally:
            os.close(descriptor)


def _lock(descriptor: int, directory: Path, progress: Progress) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        progress.update("waiting for another process that makes this cache", 0, 0)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        raise UsageError(
            f"{directory} cannot be locked ({error.strerror or error}), so two processes might write it at once; "
            "name a place on a local disk (--out ROOT, or XTTSBENCH_CACHE)"
        ) from error


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
