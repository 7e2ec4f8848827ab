"""One process at a time in a run's directory, by a lock that the kernel releases however its holder dies."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xttsbench.errors import UsageError


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold a run's directory, which must be there; it is the directory itself that is locked, so nothing is left in it.

    Raises:
        UsageError: another process holds it.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"--out {str(directory)!r} is in use by another process that goes on with this run; wait for its end, "
                "or name another directory."
            ) from error
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP):  # of a file system without locks, which keeps none out
                raise
        yield
    finally:
        os.close(descriptor)
