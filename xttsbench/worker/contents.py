"""Digests of a timed run's batches.

During a turn the batches are kept, which costs a step a microsecond, and digested off the clock when it is over. Two
runs are compared by the digests of the batches that both have. Where a turn yields more than may be kept, the next
ones keep those whose number is a multiple of a power of two, so that what a fast run keeps is a part of what a slow
one does.

A script's loop in Python hands its batches over. One inside a graph puts them into a staging area on the processor:
that is one op, which holds the tensors themselves and copies nothing. It is emptied when the turn is over, or when it
grows large.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.python.framework import ops

from xttsbench.records.pipeline import Contents
from xttsbench.worker.batches import size_bytes
from xttsbench.worker.script.graph_clock import DEVICE, tensors_of
from xttsbench.worker.script.loop import Loop

HELD_BYTES: Final = 1 << 26
"""Most bytes of batches kept in one turn: as long as they are, a pipeline takes new memory for its next ones."""
_MOST: Final = 5_000  # Digests of a run
_SUMMED: Final = 1 << 16  # Bytes from which on sums take the place of a checksum, which takes five times as long
_SUMS: Final = 1021  # A prime: values that change places count in other sums, unless they are a multiple of it apart


class ContentLook:
    """Digests of the batches of one run."""

    def __init__(self, held_bytes: int = HELD_BYTES) -> None:
        self._room = self._left = held_bytes
        self._every = 1
        self._seen = 0
        self._spent_s = 0.0
        self._sizes: dict[int, int] = {}
        self._held: list[tuple[int, int, Any]] = []
        self._found: list[tuple[int, int, int]] = []

    def see(self, epoch: int, number: int, batch: Any, shape_id: int) -> None:
        """Keep a batch until :meth:`digest`, where its turn has come and there is room.

        Args:
            epoch: of the run.
            number: of the batch in its epoch; negative where it is not known.
            batch: as the step was given it.
            shape_id: the same for batches of the same shapes.
        """
        self._seen += 1
        if number < 0 or number % self._every or len(self._found) + len(self._held) >= _MOST:
            return
        size = self._sizes.get(shape_id)
        if size is None:
            size = self._sizes[shape_id] = _kept_bytes(batch)
        self._left -= size
        if self._left >= 0:
            self._held.append((epoch, number, batch))

    @property
    def full(self) -> bool:
        """Whether there is no room for more in this turn."""
        return self._left < 0

    def digest(self) -> None:
        """Take the digests of the batches that were kept, and let go of them."""
        began = time.perf_counter()
        self._found += [(epoch, number, digest(batch)) for epoch, number, batch in self._held]
        self._held.clear()
        if self._left < 0:
            self._every *= 2
        self._left = self._room
        self._spent_s += time.perf_counter() - began

    def record(self) -> Contents:
        """Record of the digests so far."""
        self.digest()
        epochs, batches, digests = [*zip(*self._found, strict=True)] or [(), (), ()]
        return Contents(epochs=epochs, batches=batches, digests=digests, seen=self._seen, cost_s=self._spent_s)


def _kept_bytes(batch: Any) -> int:
    """Bytes in the processor's memory; a batch on a device is not kept, so that its size fits nowhere."""
    parts = tf.nest.flatten(batch, expand_composites=True)
    on_device = any(isinstance(part, tf.Tensor) and "CPU" not in part.device for part in parts)
    return HELD_BYTES + 1 if on_device else size_bytes(batch)


def digest(batch: Any) -> int:
    """Digest of a batch: dtypes and shapes in the upper half, all values' bits in the lower one."""
    form = bits = 0
    for part in tf.nest.flatten(batch, expand_composites=True):
        array = _array(part)
        if array is not None:
            form = zlib.crc32(f"{array.dtype}{array.shape}".encode(), form)
            bits = _checksum(array.reshape(-1), bits)
    return ((form & 0x7FFF_FFFF) << 32) | bits


def _array(part: Any) -> npt.NDArray[Any] | None:
    """The component without a copy where that can be; ``None`` for what has no bits."""
    if not isinstance(part, tf.Tensor):
        return np.asarray(part) if isinstance(part, np.ndarray | np.generic | int | float | bool) else None
    if part.dtype in (tf.variant, tf.resource):
        return None
    try:
        return np.asarray(memoryview(part))
    except (TypeError, ValueError, BufferError):  # strings, bfloat16, and what is not in this machine's memory
        return np.asarray(part.numpy())


def _checksum(flat: npt.NDArray[Any], before: int) -> int:
    """Checksum of the values' bits; of a large array by sums of its 64-bit words."""
    if flat.dtype.kind == "O":
        return zlib.crc32(b"\0".join(one if isinstance(one, bytes) else str(one).encode() for one in flat), before)
    data = np.ascontiguousarray(flat).view(np.uint8)
    if data.size < _SUMMED:
        return zlib.crc32(data.tobytes(), before)
    cut = data.size // (8 * _SUMS) * (8 * _SUMS)
    sums = data[:cut].view(np.uint64).reshape(-1, _SUMS).sum(axis=0)
    return zlib.crc32(data[cut:].tobytes(), zlib.crc32(sums.tobytes(), before))


_STAGED_BYTES: Final = 1 << 25  # That an area may hold before it is emptied within a turn


class ScriptContents:
    """Digests of the batches of a script's loop: of that for which ``counts`` is true.

    Where a call takes several steps, its first batch is asked for at another place of the graph than the others, and
    they have no common numbers: those of graphs are kept only where ``numbered`` is true.
    """

    def __init__(self, counts: Callable[[Loop], bool], numbered: Callable[[], bool]) -> None:
        self.look = ContentLook()
        self._counts, self._numbered = counts, numbered
        self._areas: list[_Area] = []
        self._lock = threading.Lock()

    def got(self, loop: Loop, batch: Any, shape_id: int) -> None:
        """A request from Python gave a batch."""
        if self._counts(loop):
            self.look.see(max(loop.epochs - 1, 0), loop.taken, batch, shape_id)
        loop.taken += 1

    def traced(self, number: Any, batch: Any) -> None:
        """Have the graph that is traced keep what the request of that number gives: a batch, or an ``Optional``."""
        given = batch.element_spec if isinstance(batch, tf.experimental.Optional) else batch
        parts = tf.nest.flatten(given, expand_composites=True)
        dtypes = [one.dtype for one in parts if isinstance(one, tf.Tensor | tf.TensorSpec)]
        plain = dtypes and not any(one in (tf.variant, tf.resource) for one in dtypes)
        if (
            plain and self._numbered() and not tf.config.list_logical_devices("GPU")
        ):  # a copy would cost more than a step may
            self._areas.append(_Area(f"xttsbench/batches/{len(self._areas)}", [tf.int64, *dtypes]))
            self._areas[-1].write(number, batch)

    def relieve(self) -> None:
        """Take what areas hold that grow large; once as much is kept as may be, let go of it."""
        with self._lock:
            for index, area in enumerate(self._areas):
                if area.is_large:
                    self._take(index, area)

    def digest(self) -> None:
        """Take the digests of what was kept, off the clock, and let go of it."""
        with self._lock:
            for index, area in enumerate(self._areas):
                self._take(index, area)
            self.look.digest()

    def _take(self, index: int, area: _Area) -> None:
        if self.look.full:
            area.clear()
        for number, *batch in area.read():
            self.look.see(index, int(number._numpy_internal()), tuple(batch), -1 - index)


class _Area:
    """Batches that one place of a graph has kept; it is found by its name, as rings of time stamps are."""

    def __init__(self, name: str, dtypes: list[Any]) -> None:
        self._given = {"dtypes": dtypes, "shared_name": name, "container": ""}
        self._bytes = 0

    def write(self, number: Any, batch: Any) -> None:
        """Add the op that keeps a batch to the graph that is being traced."""
        given = {"shared_name": self._given["shared_name"], "container": ""}

        def put(value: Any) -> Any:
            with tf.device(DEVICE):
                tf.raw_ops.Stage(values=[number, *tensors_of(value)], **given)
                return tf.constant(True)

        with tf.name_scope("xttsbench"), ops.colocate_with(None, ignore_existing=True), tf.device(DEVICE):
            if isinstance(batch, tf.experimental.Optional):
                tf.cond(batch.has_value(), lambda: put(batch.get_value()), lambda: tf.constant(False))
            else:
                put(batch)

    @property
    def is_large(self) -> bool:
        """Whether the area should be emptied; also where it is not known how large a batch is."""
        count = self._count()
        return bool(count) and (not self._bytes or count * self._bytes >= _STAGED_BYTES)

    def read(self) -> list[list[Any]]:
        """All that is in it, which it lets go of."""
        with tf.device(DEVICE):
            found = [tf.raw_ops.Unstage(**self._given) for _ in range(self._count())]
        self._bytes = size_bytes(found[-1]) if found else self._bytes
        return found

    def clear(self) -> None:
        """Let go of what is in it."""
        with tf.device(DEVICE):
            tf.raw_ops.StageClear(**self._given)

    def _count(self) -> int:
        with tf.device(DEVICE):
            return int(tf.raw_ops.StageSize(**self._given)._numpy_internal())
