"""A process of the pool: loads the functions, then answers one call after the other until its parent is gone.

It is started as a fresh interpreter that knows nothing of the parent's ``__main__``: a user's script without the usual
guard must not run again. What it makes again rather than gets a copy of (mapped files, caches, random generators) is
here too: the parent's pickle names these functions, so they import nothing that a plain NumPy function does not need.
Copies of one random generator in several processes would draw the same numbers, an augmentation applied twice instead
of two: a generator goes as a digest of its state, from which each process makes a stream of its own.

Small messages go over a socket, large buffers in a block that both sides map. One request is under way at a time, so
the block is written by one side and read by the other in turn, and what is read is copied out: an array that the
function keeps must not change with the next call. The block is an anonymous file, which nothing has to remove.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import importlib.util
import itertools
import json
import mmap
import os
import pickle
import random
import signal
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any, Final, Literal

import cloudpickle  # type: ignore[import-untyped]  # it brings no types
import numpy as np

from xttsbench.processes import end_with_parent

LARGE_BYTES: Final = 64 * 1024
"""Buffers from this size on go through the block; a socket would take them in several pieces."""
_ALIGNMENT_BYTES: Final = 64


def anonymous_file() -> int:
    """The descriptor of an empty file in memory, or of a deleted one on disk where the system has no such files."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("xttsbench-pool")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Channel:
    """One side of the connection; used by one thread at a time."""

    def __init__(self, connection: Connection, block: int) -> None:
        self._connection, self._block = connection, block
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
        self._connection.send_bytes(body)

    def receive(self) -> Any:
        """Wait for a message and return it; its arrays are its own and writable.

        Raises:
            EOFError: the other side is gone.
            OSError: the same, seen otherwise.
        """
        body, at = self._connection.recv_bytes(), struct.calcsize("<I?")
        count, outside = struct.unpack_from("<I?", body)
        sizes = struct.unpack_from(f"<{count}Q", body, at)
        offsets, end = _offsets(sizes)
        parts: list[Any] = []
        if count:
            block = self._mapped(end)
            pairs = zip(sizes, offsets, strict=True)
            parts = [np.frombuffer(block, np.uint8, size, offset).copy() for size, offset in pairs]
        pickled = parts.pop() if outside else memoryview(body)[at + 8 * count :]
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
    """Offsets of buffers of these sizes in the shared block, and the end of the last; the same on both sides."""
    whole = (-(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES for size in sizes)
    *offsets, end = itertools.accumulate(whole, initial=0)
    return offsets, end


_worker: list[int] = []  # what this process adds to every seed; empty outside a pool
_AS_THEY_ARE: Final = (np.ndarray, np.generic, bytes, str, int, float, complex, bool)
"""Results that the parent turns into a tensor as it would without the pool."""


def main(start: str) -> None:
    """Answer calls until the parent closes the connection.

    Args:
        start: JSON of what :class:`xttsbench.fixes.pool.workers.Worker` hands to its process.
    """
    given = json.loads(start)
    connection = Connection(given["connection"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C, which a terminal sends to all of us, is the parent's
    end_with_parent(connection.fileno())
    channel = Channel(connection, given["block"])
    try:
        sys.meta_path.insert(0, _FilesByName(given["files"]))
        seed_worker(given["number"], given["words"])
        with mmap.mmap(given["functions"], 0, access=mmap.ACCESS_READ) as pickled:
            functions: list[tuple[Callable[..., Any], bool]] = pickle.loads(pickled)
        if any(eager for _, eager in functions):
            import tensorflow  # noqa: F401  # now, not in the first call
        if "tensorflow" in sys.modules:
            functions = _prepared(functions)
        ready: tuple[Any, ...] = ("ready",)
    except BaseException as error:
        ready = _raised(error)
    try:
        channel.send(ready)
        while True:
            number, arguments = channel.receive()
            function, eager = functions[number]
            _answer(channel, function, eager, arguments)
    except (EOFError, OSError):
        os._exit(0)  # the parent is gone or done with us


@dataclass(frozen=True)
class ElementOf:
    """Makes an element of the values of an item by the body of an opened generator."""

    function: Callable[..., Any]
    known: Mapping[str, Any]  # values that all items have in common

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """The element, of an item's own values by their names."""
        return self.function(**self.known, **values)


def _answer(channel: Channel, function: Callable[..., Any], eager: bool, arguments: tuple[Any, ...]) -> None:
    try:
        value = _sendable(function(*(map(_tensor, arguments) if eager else arguments)))
    except BaseException as error:  # SystemExit too: it is the parent's call that ends with it
        channel.send(_raised(error))
        return
    try:
        channel.send(("value", value))
    except OSError:
        raise
    except Exception as error:
        channel.send(_raised(TypeError(f"the result cannot be sent to another process: {error}")))


def _tensor(value: Any) -> Any:
    import tensorflow as tf

    return tf.constant(value, tf.string if isinstance(value, bytes) or value.dtype == object else None)


def _sendable(value: Any) -> Any:
    """A result without classes that the parent may not know: named tuples as tuples, tensors as arrays."""
    if isinstance(value, dict):
        return {key: _sendable(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return (list if isinstance(value, list) else tuple)(map(_sendable, value))
    if value is None or isinstance(value, _AS_THEY_ARE):
        return np.asarray(value) if isinstance(value, np.ma.MaskedArray) else value
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def _raised(error: BaseException) -> tuple[Any, ...]:
    """Message to the parent about an exception: its pickle where it has one, its name and text, its traceback."""
    text = "".join(traceback.format_exception(error))
    pickled: bytes | None = None
    with suppress(Exception):
        pickled = cloudpickle.dumps(error)
    return "raised", pickled, f"{type(error).__name__}: {error}", text


def _prepared(functions: list[tuple[Callable[..., Any], bool]]) -> list[tuple[Callable[..., Any], bool]]:
    """The functions as TensorFlow calls them: unconverted. Keeps TensorFlow in this process off the GPUs.

    It would take the memory there that the training step needs.
    """
    import tensorflow as tf

    with suppress(RuntimeError):  # the user's module has used TensorFlow as it was imported
        tf.config.set_visible_devices([], "GPU")
    return [(tf.autograph.experimental.do_not_convert(function), eager) for function, eager in functions]


def mapped_array(
    file: str, dtype: Any, mode: Literal["r", "c"], offset_bytes: int, shape: tuple[int, ...], order: Literal["C", "F"]
) -> Any:
    """An array mapped from a file, as the parent has it mapped: the pages are shared, not copied."""
    return np.memmap(file, dtype, mode, offset_bytes, shape, order)


def cached_function(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Any:
    """``functools.lru_cache`` around a function, empty."""
    return functools.lru_cache(**parameters)(function)


def cached_property(function: Callable[..., Any], name: str) -> Any:
    """``functools.cached_property`` with a lock of this process."""
    made: Any = functools.cached_property(function)
    made.__set_name__(None, name)
    return made


def autograph_module() -> Any:
    """The module ``ag__`` that the code which AutoGraph generates refers to; it can be imported under no name."""
    from tensorflow.python.autograph.impl import api

    return api.PyToTF().get_extra_locals()["ag__"]


class _FilesByName:
    """Finds the parent's modules that were loaded from a file's path, which no entry of ``sys.path`` leads to.

    It stands in ``sys.meta_path`` before the usual search: another file of the same name may lie on the path.
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The specification of a module by its name, as ``sys.meta_path`` asks for it."""
        file = self._files.get(name)
        return None if file is None else importlib.util.spec_from_file_location(name, file)


def digest(*states: Any) -> tuple[int, ...]:
    """Eight 32-bit words that stand for states of random generators; the states themselves stay as they are."""
    return struct.unpack("<8I", hashlib.sha256(pickle.dumps(states, protocol=4)).digest())


def global_digest() -> tuple[int, ...]:
    """The words for NumPy's and Python's global generators of this process."""
    return digest(np.random.get_state(), random.getstate())


def seed_worker(number: int, words: Sequence[int]) -> None:
    """Make this process number ``number`` of a pool, and seed its global generators from the parent's words."""
    _worker[:] = [number]
    np.random.seed([*words, number])
    random.seed(digest([*words, number])[0])


def restored_generator(kind: str, words: Sequence[int]) -> Any:
    """A random generator in place of one that the parent's function holds, with a stream of this process's own.

    Args:
        kind: ``"Random"``, ``"RandomState"`` or the name of a NumPy bit generator (``"PCG64"``).
        words: the digest of the state that the parent's generator had.
    """
    mixed = [*words, *_worker]
    if kind == "Random":
        return random.Random(digest(mixed)[0])
    if kind == "RandomState":
        return np.random.RandomState(mixed)
    return np.random.Generator(getattr(np.random, kind)(np.random.SeedSequence(mixed)))
