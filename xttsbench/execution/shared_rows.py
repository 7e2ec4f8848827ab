"""The block of memory that a trial writes its rows to: this process makes it, reads it, and outlives whoever writes."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os

from xttsbench.records.row_memory import ROWS, RowMemory


class SharedRows:
    """A file in memory to be handed over by its descriptor, which is open within the context manager.

    Its size is sealed, so that nothing the other side does can take memory away from under this one.

    Args:
        rows: of each segment that are kept.

    Attributes:
        memory: its rows, as long as this process wants to read them.
    """

    def __init__(self, rows: int = ROWS) -> None:
        size = RowMemory.size_bytes(rows)
        self._descriptor = os.memfd_create("xttsbench-rows", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._descriptor, size)
        with contextlib.suppress(OSError):  # some container layers know no seals
            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self.memory = RowMemory(mmap.mmap(self._descriptor, size))

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def __enter__(self) -> SharedRows:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
