"""Planned batches as columns, and the loaders that make them in Python: from WAV, ``.npy`` files or the packed file.

A loader is asked for a batch by number and looks everything else up in the columns, so that a pipeline carries nothing
but numbers, and the graph of a dataset stays small. Never imports TensorFlow: a thread of ``tf.data`` makes a batch, or
a process of its own (:mod:`xttsbench.xtts.loaders.processes`), by the same lines, in memory that TensorFlow takes over
without a copy.
"""

from __future__ import annotations

import math
import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.data.batches import Batch
from xttsbench.xtts.data.cache_files import CacheFileError, check_packed, unreadable
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.features import FeatureSettings, log_mel_frames
from xttsbench.xtts.text import VOCABULARY
from xttsbench.xtts.wav import WavError, read_canonical_wav

Ints = npt.NDArray[np.int32]
_ENCODED: Final[WeakKeyDictionary[SpeechData, Texts]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False, slots=True)
class Texts:
    """The encoded texts of a data set in one buffer."""

    ids: npt.NDArray[np.uint8]
    """The ids of all texts, one after the other; with a 0 at the end, so that no place is out of range."""
    starts: npt.NDArray[np.int64]
    """``[n]`` where each begins."""
    lengths: Ints
    """``[n]``"""

    def padded(self, clips: Ints, characters: int) -> Ints:
        """Return the texts of some clips, ``[len(clips), characters]``, with 0 after each."""
        place = np.arange(characters)
        inside = place < self.lengths[clips, None]
        return np.where(inside, self.ids[np.where(inside, self.starts[clips, None] + place, 0)], 0).astype(np.int32)


@dataclass(frozen=True, eq=False, slots=True)
class Planned:
    """Planned batches, end to end, and what is known of the clips of their data set."""

    clips: Ints
    """``[rows]`` of all batches."""
    references: Ints
    reference_starts: Ints
    bounds: npt.NDArray[np.int64]
    """``[batches + 1]`` first row of each batch."""
    frames: Ints
    """``[batches]`` that mels are padded to."""
    characters: Ints
    """``[batches]`` that texts are padded to."""
    reference_frames: int
    lengths: Ints
    """``[n]`` mel frames of each clip of the data set."""
    texts: Texts
    n_mels: int
    floor: np.float32
    """What mels are padded with: the logarithm of the features' floor."""

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def sizes(self) -> list[int]:
        """The distinct numbers of rows that batches have, rising."""
        return [int(size) for size in np.unique(np.diff(self.bounds))]

    def shapes(self, number: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Return the shapes of a batch's mels and of its references, both ``[rows, frames, n_mels]``."""
        rows = int(self.bounds[number + 1] - self.bounds[number])
        return (rows, int(self.frames[number]), self.n_mels), (rows, self.reference_frames, self.n_mels)

    def most_elements(self) -> tuple[int, int]:
        """Return how many numbers the largest mels and the largest references of a batch have."""
        rows = np.diff(self.bounds)
        return int((rows * self.frames).max()) * self.n_mels, int(rows.max()) * self.reference_frames * self.n_mels


def planned(data: SpeechData, batches: Sequence[Batch], features: FeatureSettings) -> Planned:
    """Gather planned batches into columns, after checking that they fit the data.

    Raises:
        InvalidInputError: there is no batch, or the batches were planned for other data or other settings.
    """
    if not batches:
        raise InvalidInputError("no batch was planned; plan some, of more clips or smaller batches")
    clips, references, reference_starts = (
        np.concatenate([getattr(batch, column) for batch in batches]).astype(np.int32, copy=False)
        for column in ("clips", "references", "reference_starts")
    )
    sizes = np.fromiter((len(batch.clips) for batch in batches), np.int64, len(batches))
    frames, characters, reference_frames = (
        np.fromiter((getattr(batch, column) for batch in batches), np.int32, len(batches))
        for column in ("frames", "characters", "reference_frames")
    )
    named = np.concatenate((clips, references))
    if named.min() < 0 or named.max() >= len(data):
        raise InvalidInputError(
            f"the batches name the clips {named.min()} to {named.max()}, and {data.directory} has {len(data)}; "
            "plan them for this data set"
        )
    lengths = (data.samples // features.hop_samples).astype(np.int32)
    misfits = np.flatnonzero(
        (lengths[clips] > np.repeat(frames, sizes)) | (data.text_lengths[clips] > np.repeat(characters, sizes))
    )
    outside = np.flatnonzero((reference_starts < 0) | (reference_starts >= lengths[references]))
    if len(misfits) or len(outside):
        clip = int(clips[misfits[0]] if len(misfits) else references[outside[0]])
        raise InvalidInputError(
            f"the clip {data.id(clip)!r} has {lengths[clip]} mel frames and {data.text_lengths[clip]} characters, "
            "which do not fit the batch planned for it; plan the batches for this data set and these features"
        )
    if (reference_frames != reference_frames[0]).any():
        raise InvalidInputError(
            f"batches have references of {np.unique(reference_frames).tolist()} frames; plan them with one length"
        )
    return Planned(
        clips,
        references,
        reference_starts,
        np.concatenate(([0], np.cumsum(sizes))),
        frames,
        characters,
        int(reference_frames[0]),
        lengths,
        _texts(data),
        features.n_mels,
        np.log(np.float32(features.log_floor)),
    )


def _texts(data: SpeechData) -> Texts:
    """Return the encoded texts of a data set, encoded once for all of its datasets in this process."""
    if data not in _ENCODED:
        if VOCABULARY > 256:
            raise ValueError(f"ids of {VOCABULARY} symbols do not fit a byte")
        ids = bytearray()
        starts = np.empty(len(data), np.int64)
        for clip in range(len(data)):
            starts[clip] = len(ids)
            ids += data.text_ids(clip).astype(np.uint8).tobytes()
        lengths = np.diff(starts, append=len(ids)).astype(np.int32)
        ids.append(0)
        _ENCODED[data] = Texts(np.frombuffer(ids, np.uint8), starts, lengths)
    return _ENCODED[data]


_ALIGNMENT_BYTES: Final = 64  # alignment of TensorFlow's own tensors (Eigen's widest vector)
_KEPT: Final = 8  # free buffers that are kept; what a longer queue of batches needed for a moment is given back
Floats = npt.NDArray[np.float32]
Fill = Callable[[Floats, Ints, Ints, Ints], None]
"""``fill(array, clips, firsts, counts)`` puts frames of clips, from ``firsts`` on, into ``array[i, : counts[i]]``."""


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


def by_clip(read: Callable[[int, int, Floats], None]) -> Fill:
    """Return what fills a batch clip by clip: ``read(clip, first, array)`` fills ``[k, n_mels]`` with ``k`` frames."""

    def fill(array: Floats, clips: Ints, firsts: Ints, counts: Ints) -> None:
        for rows, clip, first, count in zip(array, clips.tolist(), firsts.tolist(), counts.tolist(), strict=True):
            read(clip, first, rows[:count])

    return fill


def kept(read: Callable[[int, int, Floats], None], planned: Planned) -> Callable[[int, int, Floats], None]:
    """Return ``read`` with a memory: a clip's features are read whole when they are first asked for, and kept."""
    mels: dict[int, Floats] = {}

    def from_memory(clip: int, first: int, out: Floats) -> None:
        mel = mels.get(clip)
        if mel is None:  # two threads may find so at once, and read the same
            mel = np.empty((int(planned.lengths[clip]), planned.n_mels), np.float32)
            read(clip, 0, mel)
            mels[clip] = mel
        out[:] = mel[first : first + len(out)]

    return from_memory


class Arrays(NamedTuple):
    """A batch of ``b`` rows as it comes out of Python."""

    mel: Floats
    """``[b, frames, n_mels]``"""
    reference: Floats
    """``[b, reference_frames, n_mels]``"""
    numbers: Ints
    """All else, see :func:`fill_batch`: in one array, for each costs TensorFlow some 10 us of Python."""


MakeBatch = Callable[[int], Arrays]
"""Makes a batch from its number."""


def fill_batch(planned: Planned, fill: Fill, number: int, mel: Floats, reference: Floats) -> Ints:
    """Put the features of a batch's clips and references into two arrays, padded, and return its numbers.

    The arrays have the shapes of ``planned.shapes(number)`` and any content.

    Returns:
        One after the other, int32: the clips' numbers, the lengths of their texts, of their mels, the references'
        starts (``[b]`` each), and the texts ``[b, characters]``.
    """
    begin, end = planned.bounds[number], planned.bounds[number + 1]
    clips, sources = planned.clips[begin:end], planned.references[begin:end]
    starts, lengths = planned.reference_starts[begin:end], planned.lengths[clips]
    _fill_padded(planned, fill, mel, clips, np.zeros_like(clips), lengths)
    counts = np.minimum(planned.lengths[sources] - starts, planned.reference_frames)
    _fill_padded(planned, fill, reference, sources, starts, counts)
    text = planned.texts.padded(clips, int(planned.characters[number]))
    own = np.where(sources == clips, starts, np.int32(-1))
    return np.concatenate((clips, planned.texts.lengths[clips], lengths, own, text.ravel()))


def _fill_padded(planned: Planned, fill: Fill, array: Floats, clips: Ints, firsts: Ints, counts: Ints) -> None:
    fill(array, clips, firsts, counts)
    for row, count in enumerate(counts.tolist()):
        if count < array.shape[1]:
            array[row, count:] = planned.floor


class BatchMemory:
    """Where batches of a plan are put, for TensorFlow to take over; used again when it is free."""

    def __init__(self, planned: Planned) -> None:
        self._planned = planned
        self._mels, self._references = (BufferPool(elements) for elements in planned.most_elements())

    def take(self, number: int) -> tuple[Floats, Floats]:
        """Return arrays of any content for a batch's mels and references."""
        mel, reference = self._planned.shapes(number)
        return self._mels.take(*mel), self._references.take(*reference)


def in_this_process(planned: Planned, fill: Fill) -> MakeBatch:
    """Return what makes a batch from its number in the thread that calls it."""
    memory = BatchMemory(planned)

    def make(number: int) -> Arrays:
        mel, reference = memory.take(number)
        return Arrays(mel, reference, fill_batch(planned, fill, number, mel, reference))

    return make


def numpy_wav(
    planned: Planned, data: SpeechData, cache: FeatureCache | None, features: FeatureSettings, *, keep: bool = False
) -> Fill:
    """Return what fills a batch with features computed from the WAV files in NumPy; the cache is not used.

    That is what most projects start with.
    """

    def read(clip: int, start: int, out: npt.NDArray[np.float32]) -> None:
        path = data.wav(clip)
        samples = read_canonical_wav(path, features.sample_rate_hz)
        if len(samples) != data.samples[clip]:
            raise WavError(path, f"has {len(samples)} samples, and had {data.samples[clip]}", "start the run again")
        out[:] = log_mel_frames(samples, features, start, len(out))

    return by_clip(kept(read, planned) if keep else read)


def numpy_cache(
    planned: Planned, data: SpeechData, cache: FeatureCache, features: FeatureSettings, *, keep: bool = False
) -> Fill:
    """Return what fills a batch with features of one ``.npy`` file per clip, read with ``np.load``.

    It spends most of its time in Python, on the header, so that threads wait for one another.
    """

    def read(clip: int, start: int, out: npt.NDArray[np.float32]) -> None:
        path = cache.npy(clip)
        try:
            mel = np.load(path, allow_pickle=False)
        except OSError as error:
            raise unreadable(path, error) from error
        except (ValueError, EOFError) as error:
            raise CacheFileError(path, f"is no whole .npy file ({error})") from error
        expected = (int(planned.lengths[clip]), planned.n_mels)
        if mel.shape != expected or mel.dtype != np.float32 or not mel.flags.c_contiguous:
            raise CacheFileError(
                path,
                f"holds {mel.dtype.str} {mel.shape}{'' if mel.flags.c_contiguous else ' in Fortran order'}, "
                f"and <f4 {expected} in C order is expected",
            )
        out[:] = mel[start : start + len(out)]

    return by_clip(kept(read, planned) if keep else read)


def packed(planned: Planned, data: SpeechData, cache: FeatureCache, features: FeatureSettings) -> Fill:
    """Return what fills a batch from one file for all clips: no file to open and no header to parse.

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

    def fill(array: Floats, clips: Ints, firsts: Ints, counts: Ints) -> None:
        memory, row_bytes = array.data.cast("B"), array.strides[0]
        places = (first_byte + (cache.offsets[clips] + firsts) * frame_bytes).tolist()
        for row, (place, size) in enumerate(zip(places, (counts * frame_bytes).tolist(), strict=True)):
            wanted = memory[row * row_bytes : row * row_bytes + size]
            got = os.preadv(descriptor, [wanted], place)
            while got < size:  # the end of the file, unless its file system gives less than was asked for
                more = os.preadv(descriptor, [wanted[got:]], place + got)
                if not more:
                    what = f"ends in the clip {data.id(int(clips[row]))!r}: it was cut short while it was read"
                    raise CacheFileError(path, what)
                got += more

    weakref.finalize(fill, os.close, descriptor)
    return fill
