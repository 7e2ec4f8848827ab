"""The engineered loader: one file for all clips, read into memory that TensorFlow takes over without a copy.

It is asked for a batch by number and looks everything else up in the plan's columns, so that a pipeline carries nothing
but numbers. Never imports TensorFlow.
"""

from __future__ import annotations

import math
import os
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from xttsbench.xtts.data.batches import Ints, Planned
from xttsbench.xtts.data.cache_files import CacheFileError, check_packed, unreadable
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.features import FeatureSettings

_ALIGNMENT_BYTES: Final = 64  # alignment of TensorFlow's own tensors (Eigen's widest vector)
_KEPT: Final = 8  # free buffers that are kept; what a longer queue of batches needed for a moment is given back
Floats = npt.NDArray[np.float32]


class BufferPool:
    """Arrays of float32 of up to a fixed size; the memory of one is used again when it and all its views are gone.

    TensorFlow takes a NumPy array over as it is where it begins at a multiple of 64 bytes, and copies it else. It holds
    a reference to the array until the tensor is gone, so an array's end says when its memory is free. New memory for
    each batch would have to be cleared by the kernel page by page, which takes about as long as reading the features.
    """

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
            raw = np.empty(4 * self._elements + _ALIGNMENT_BYTES, np.uint8)
            start = -raw.ctypes.data % _ALIGNMENT_BYTES
            memory = raw[start : start + 4 * self._elements].view(np.float32)
        # The base of a view is the array below it that is itself based on something else than an array. So every view
        # of `whole` keeps it, and nothing else does; of a slice of `memory` they would keep `memory` alone.
        whole = np.asarray(memory.data)
        weakref.finalize(whole, self._free.append, memory).atexit = False
        return whole[: math.prod(shape)].reshape(shape)


class Arrays(NamedTuple):
    """A batch of ``b`` rows as it comes out of Python."""

    mel: Floats
    """``[b, frames, n_mels]``"""
    reference: Floats
    """``[b, reference_frames, n_mels]``"""
    numbers: Ints
    """All else in one array, for each costs TensorFlow some 10 us of Python: one after the other, int32, the clips'
    numbers, the lengths of their texts, of their mels, the references' starts (``[b]`` each), and the texts
    ``[b, characters]``."""


def packed(
    planned: Planned, data: SpeechData, cache: FeatureCache, features: FeatureSettings
) -> Callable[[int], Arrays]:
    """Return what makes a batch from its number: no file to open and no header to parse.

    Each clip's rows are read at their offset into the batch's memory, which TensorFlow then takes over as it is.
    Measured beside it were a map of the file (``np.memmap``), which is as fast, and gathers in TensorFlow's ops from
    ``tf.raw_ops.ImmutableConst``, which are slower. A read that finds too little says so, whereas a process that
    touches a map of a file that has become shorter is killed by the kernel.

    Raises:
        CacheFileError: the packed file is gone or not what the cache's index says.
    """
    path, frame_bytes = cache.packed, 4 * planned.n_mels
    # Checked first: the file that is opened is this one, or what a renewed cache put in its place, which has all rows.
    first_byte = check_packed(path, cache.packed_rows, planned.n_mels)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(path, error) from error
    mels, references = (BufferPool(elements) for elements in planned.most_elements())

    def fill(array: Floats, clips: Ints, firsts: Ints, counts: Ints) -> Floats:
        """Put ``counts`` frames of clips, from ``firsts`` on, into the rows of an array, and the padding after them."""
        memory, row_bytes = array.data.cast("B"), array.strides[0]
        places = (first_byte + (cache.offsets[clips] + firsts) * frame_bytes).tolist()
        for row, (place, count) in enumerate(zip(places, counts.tolist(), strict=True)):
            size = count * frame_bytes
            wanted = memory[row * row_bytes : row * row_bytes + size]
            got = os.preadv(descriptor, [wanted], place)
            while got < size:  # the end of the file, unless its file system gives less than was asked for
                more = os.preadv(descriptor, [wanted[got:]], place + got)
                if not more:
                    what = f"ends in the clip {data.id(int(clips[row]))!r}: it was cut short while it was read"
                    raise CacheFileError(path, what)
                got += more
            array[row, count:] = planned.floor
        return array

    def make(number: int) -> Arrays:
        rows = slice(planned.bounds[number], planned.bounds[number + 1])
        clips, sources, starts = planned.clips[rows], planned.references[rows], planned.reference_starts[rows]
        lengths = planned.lengths[clips]
        counts = np.minimum(planned.lengths[sources] - starts, planned.reference_frames)
        mel_shape, reference_shape = planned.shapes(number)
        mel = fill(mels.take(*mel_shape), clips, np.zeros_like(clips), lengths)
        reference = fill(references.take(*reference_shape), sources, starts, counts)
        text = planned.texts.padded(clips, int(planned.characters[number]))
        own = np.where(sources == clips, starts, np.int32(-1))
        return Arrays(mel, reference, np.concatenate((clips, planned.texts.lengths[clips], lengths, own, text.ravel())))

    weakref.finalize(make, os.close, descriptor)
    return make
