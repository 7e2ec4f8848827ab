"""Messages between a pool and one of its processes: small ones over a socket, large buffers in a block both map.

One request is under way at a time, so the block is written by one side and read by the other in turn, and what is read
is copied out: an array that the function keeps must not change with the next call. The block is an anonymous file
without a name, which nothing has to remove.
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import struct
import tempfile
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

LARGE_BYTES: Final = 64 * 1024
"""Buffers from this size on go through the block; a socket would take them in several pieces."""
KEPT: Final = 4
"""Values shared by many calls that a process keeps; both sides drop the oldest alike."""
_ALIGNMENT_BYTES: Final = 64
_FIRST_RECV_BYTES: Final = 2 * LARGE_BYTES
_LENGTH: Final = struct.Struct("<I")


def anonymous_file() -> int:
    """The descriptor of an empty file in memory, or of a deleted one on disk where the system has no such files."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("xttsbench-pool")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Channel:
    """One side of the connection; used by one thread at a time."""

    def __init__(self, connection: socket.socket, block: int) -> None:
        """Take over a connected stream socket and the descriptor of the block, which both sides have open."""
        self._connection = connection
        self._block = block
        self._map: mmap.mmap | None = None

    def send(self, message: Any) -> None:
        """Pickle and send a message.

        Raises:
            OSError: the other side is gone.
            Exception: whatever pickling raises; nothing has been sent then.
        """
        parts: list[Any] = []

        def small(buffer: pickle.PickleBuffer) -> bool:
            view = buffer.raw()
            if view.nbytes < LARGE_BYTES:
                return True
            parts.append(view)
            return False

        pickled = pickle.dumps(message, protocol=5, buffer_callback=small)
        outside = len(pickled) >= LARGE_BYTES  # long strings are no buffers to pickle
        if outside:
            parts.append(pickled)
        sizes = [memoryview(part).nbytes for part in parts]
        offsets, end = _offsets(sizes)
        if parts:
            block = self._mapped(end)
            for part, size, offset in zip(parts, sizes, offsets, strict=True):
                np.copyto(np.frombuffer(block, np.uint8, size, offset), np.frombuffer(part, np.uint8))
        body = struct.pack(f"<I?{len(sizes)}Q", len(sizes), outside, *sizes) + (b"" if outside else pickled)
        self._connection.sendall(_LENGTH.pack(len(body)) + body)

    def receive(self) -> Any:
        """Wait for a message and return it; its arrays are its own and writable.

        Raises:
            EOFError: the other side is gone.
            OSError: the same, seen otherwise.
        """
        frame = bytearray()
        while len(frame) < _LENGTH.size or len(frame) < _LENGTH.size + _LENGTH.unpack_from(frame)[0]:
            piece = self._connection.recv(_FIRST_RECV_BYTES)
            if not piece:
                raise EOFError("the other side closed the connection")
            frame += piece
        count, outside = struct.unpack_from("<I?", frame, _LENGTH.size)
        at = _LENGTH.size + struct.calcsize("<I?")
        sizes = struct.unpack_from(f"<{count}Q", frame, at)
        offsets, end = _offsets(sizes)
        parts: list[Any] = []
        if count:
            block = self._mapped(end)
            pairs = zip(sizes, offsets, strict=True)
            parts = [np.frombuffer(block, np.uint8, size, offset).copy() for size, offset in pairs]
        pickled = parts.pop() if outside else memoryview(frame)[at + 8 * count :]
        return pickle.loads(pickled, buffers=parts)

    def close(self) -> None:
        """Close the connection and the block; the other side sees the end of both."""
        self._connection.close()
        block, self._block = self._block, -1
        if block >= 0:
            os.close(block)
        self._map = None  # unmapped once nothing refers to it

    def _mapped(self, needed_bytes: int) -> mmap.mmap:
        """The block in memory, made as large as needed; it never shrinks."""
        if self._map is None or len(self._map) < needed_bytes:
            present = os.fstat(self._block).st_size
            if present < needed_bytes:
                os.ftruncate(self._block, 2 * needed_bytes)  # lengths vary, and each growth maps anew
            self._map = mmap.mmap(self._block, 0)
        return self._map


def _offsets(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where buffers of these sizes lie in the block, and where the last one ends; both sides work it out alike."""
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end += -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
    return offsets, end
