"""The engineered loader: one file for all clips, or shards, read into memory that TensorFlow takes over without a copy.

It is asked for a batch by number and looks everything else up in the plan's columns, so that a pipeline carries nothing
but numbers. Never imports TensorFlow.
"""

from __future__ import annotations

import math
import os
import weakref
import zlib
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from xttsbench.xtts.data.batches import Ints
from xttsbench.xtts.data.cache_files import CacheFileError, check_packed, unreadable
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.planned import Planned
from xttsbench.xtts.data.shard_index import Remote, ShardedCache, shard_name
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.features import FeatureSettings
from xttsbench.xtts.loaders.read_ahead import ReadAhead

_ALIGNMENT_BYTES: Final = 64  # alignment of TensorFlow's own tensors (Eigen's widest vector)
_KEPT: Final = 8  # free buffers that are kept; what a longer queue of batches needed for a moment is given back
_KEPT_OPEN: Final = 256  # shards; of a very large data set the others are opened for each read, some 20 us
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


Read = Callable[[memoryview, int, int], None]
"""Fills memory with rows of a clip, from a frame on."""


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
    if isinstance(cache, ShardedCache):
        reads, close = _ahead(planned, cache) if cache.sharded.remote else _shards(planned, cache)
    else:
        reads, close = _one_file(planned, data, cache)
    mels, references = (BufferPool(elements) for elements in planned.most_elements())

    def fill(read: Read, array: Floats, clips: Ints, firsts: Ints, counts: Ints) -> Floats:
        """Put ``counts`` frames of clips, from ``firsts`` on, into the rows of an array, and the padding after them."""
        memory, row_bytes, frame_bytes = array.data.cast("B"), array.strides[0], array.strides[1]
        for row, (clip, first, count) in enumerate(zip(clips.tolist(), firsts.tolist(), counts.tolist(), strict=True)):
            read(memory[row * row_bytes : row * row_bytes + count * frame_bytes], clip, first)
            array[row, count:] = planned.floor
        return array

    def make(number: int) -> Arrays:
        rows = slice(planned.bounds[number], planned.bounds[number + 1])
        clips, sources, starts = planned.clips[rows], planned.references[rows], planned.reference_starts[rows]
        lengths = planned.lengths[clips]
        counts = np.minimum(planned.lengths[sources] - starts, planned.reference_frames)
        mel_shape, reference_shape = planned.shapes(number)
        read = reads(number)
        mel = fill(read, mels.take(*mel_shape), clips, np.zeros_like(clips), lengths)
        reference = fill(read, references.take(*reference_shape), sources, starts, counts)
        text = planned.texts.padded(clips, int(planned.characters[number]))
        own = np.where(sources == clips, starts, np.int32(-1))
        return Arrays(mel, reference, np.concatenate((clips, planned.texts.lengths[clips], lengths, own, text.ravel())))

    weakref.finalize(make, close)
    return make


def _one_file(
    planned: Planned, data: SpeechData, cache: FeatureCache
) -> tuple[Callable[[int], Read], Callable[[], object]]:
    """Return what reads the clips of a batch from the packed file, and what closes it."""
    path, frame_bytes = cache.packed, 4 * planned.n_mels
    # Checked first: the file that is opened is this one, or what a renewed cache put in its place, which has all rows.
    first_byte = check_packed(path, cache.packed_rows, planned.n_mels)
    descriptor = _opened(path)
    places = first_byte + cache.offsets * frame_bytes

    def read(wanted: memoryview, clip: int, first: int) -> None:
        _read_into(descriptor, path, wanted, int(places[clip]) + first * frame_bytes, data.id, clip)

    return lambda _: read, partial(os.close, descriptor)


def _shards(planned: Planned, cache: ShardedCache) -> tuple[Callable[[int], Read], Callable[[], object]]:
    """Return what reads the clips of a batch from shards on the disk, and what closes them."""
    paths = [cache.directory / shard_name(shard) for shard in range(len(cache.firsts))]
    kept = [_opened(path) for path in paths[:_KEPT_OPEN]]

    def read(wanted: memoryview, clip: int, first: int) -> None:
        shard, place = cache.place(clip)
        descriptor = kept[shard] if shard < len(kept) else _opened(paths[shard])
        try:
            place += first * 4 * planned.n_mels
            _read_into(descriptor, paths[shard], wanted, place, cache.data.id, clip)
        finally:
            if shard >= len(kept):
                os.close(descriptor)

    def close() -> None:
        for descriptor in kept:
            os.close(descriptor)

    return lambda _: read, close


def _ahead(planned: Planned, cache: ShardedCache) -> tuple[Callable[[int], Read], Callable[[], object]]:
    """Return what reads the clips of a batch from shards elsewhere, and what ends it.

    Each clip is read whole, also where a batch shows a part of it as a reference, so that its check sum says whether
    every byte is right.
    """
    files, frame_bytes, crc32 = cache.sharded.files(), 4 * planned.n_mels, cache.sharded.column("crc32")

    def whole(clip: int) -> bytes:
        (shard, place), expected = cache.place(clip), int(crc32[cache.data.rows[clip]])
        size = int(planned.lengths[clip]) * frame_bytes
        return files.read(shard_name(shard), place, size, lambda content: zlib.crc32(content) == expected)

    def clips_of(number: int) -> list[int]:
        rows = slice(planned.bounds[number], planned.bounds[number + 1])
        return [*planned.clips[rows].tolist(), *planned.references[rows].tolist()]

    ahead = ReadAhead(whole, clips_of, len(planned), cast(Remote, cache.sharded.remote).in_flight)

    def reads(number: int) -> Read:
        content = ahead.take(number)

        def read(wanted: memoryview, clip: int, first: int) -> None:
            wanted[:] = memoryview(content[clip])[first * frame_bytes :][: len(wanted)]

        return read

    return reads, ahead.close


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(path, error) from error


def _read_into(
    descriptor: int, path: Path, wanted: memoryview, place: int, name: Callable[[int], str], clip: int
) -> None:
    got = os.preadv(descriptor, [wanted], place)
    while got < len(wanted):  # the end of the file, unless its file system gives less than was asked for
        more = os.preadv(descriptor, [wanted[got:]], place + got)
        if not more:
            raise CacheFileError(path, f"ends in the clip {name(clip)!r}: it was cut short while it was read")
        got += more
