"""Memory for batches that are made in NumPy and handed to TensorFlow without a copy, used again when it is free.

TensorFlow takes a NumPy array over as it is where it begins at a multiple of 64 bytes, and copies it else. It holds a
reference to the array until the tensor is gone, so an array's end says when its memory is free. New memory for each
batch would have to be cleared by the kernel page by page, which takes about as long as reading the features does.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import Final

import numpy as np
import numpy.typing as npt

_ALIGNMENT_BYTES: Final = 64
"""Alignment of TensorFlow's own tensors (Eigen's widest vector)."""
_KEPT: Final = 8
"""Free buffers that are kept; what a longer queue of batches needed for a moment is given back."""


class BufferPool:
    """Arrays of float32 of up to a fixed size; the memory of one is used again when it and all its views are gone."""

    def __init__(self, elements: int) -> None:
        """Prepare for arrays of at most so many elements; no memory is taken yet."""
        self._elements = elements
        # Appending to and taking from a deque is atomic: tf.data's threads need no lock.
        self._free: deque[npt.NDArray[np.float32]] = deque(maxlen=_KEPT)

    def take(self, *shape: int) -> npt.NDArray[np.float32]:
        """Return an array of a shape, C order, of any content."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = _aligned(self._elements)
        # The base of a view is the array below it that is itself based on something else than an array. So every view
        # of `whole` keeps it, and nothing else does; of a slice of `memory` they would keep `memory` alone.
        whole = np.asarray(memory.data)
        weakref.finalize(whole, self._free.append, memory).atexit = False
        return whole[: math.prod(shape)].reshape(shape)


def _aligned(elements: int) -> npt.NDArray[np.float32]:
    raw = np.empty(4 * elements + _ALIGNMENT_BYTES, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT_BYTES
    return raw[start : start + 4 * elements].view(np.float32)
