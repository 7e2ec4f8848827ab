"""What the batches of a timed run hold, as digests that are taken when a turn is over, off the clock.

During a turn the batches are kept, which costs a step a microsecond. Two runs are compared by the digests of the
batches that both have. Where a turn yields more than may be kept, the next ones keep those whose number is a multiple
of a power of two, so that what a fast run keeps is a part of what a slow one does.
"""

from __future__ import annotations

import time
import zlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from xttsbench.records.elements import Contents
from xttsbench.worker.batches import size_bytes

HELD_BYTES: Final = 1 << 26
"""Of batches that are kept in one turn at most: as long as they are, a pipeline takes new memory for its next ones."""
_MOST: Final = 5_000
"""Digests of a run."""
_SUMMED: Final = 1 << 16
"""Bytes from which on sums take the place of a checksum, which takes five times as long."""
_SUMS: Final = 1021
"""A prime: values that change places count in other sums, unless they are a multiple of it apart."""


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
        """What was seen."""
        self.digest()
        epochs, batches, digests = [*zip(*self._found, strict=True)] or [(), (), ()]
        return Contents(epochs=epochs, batches=batches, digests=digests, seen=self._seen, cost_s=self._spent_s)


def _kept_bytes(batch: Any) -> int:
    """Of the processor's memory; a device's is not kept, so that such a batch has no size that fits."""
    parts = tf.nest.flatten(batch, expand_composites=True)
    on_device = any(isinstance(part, tf.Tensor) and "CPU" not in part.device for part in parts)
    return HELD_BYTES + 1 if on_device else size_bytes(batch)


def digest(batch: Any) -> int:
    """Of dtypes and shapes in the upper half, of all values' bits in the lower one."""
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
    """Of the values, as their bits; a large array by sums of its 64-bit words."""
    if flat.dtype.kind == "O":
        return zlib.crc32(b"\0".join(one if isinstance(one, bytes) else str(one).encode() for one in flat), before)
    data = np.ascontiguousarray(flat).view(np.uint8)
    if data.size < _SUMMED:
        return zlib.crc32(data.tobytes(), before)
    cut = data.size // (8 * _SUMS) * (8 * _SUMS)
    sums = data[:cut].view(np.uint64).reshape(-1, _SUMS).sum(axis=0)
    return zlib.crc32(data[cut:].tobytes(), zlib.crc32(sums.tobytes(), before))
