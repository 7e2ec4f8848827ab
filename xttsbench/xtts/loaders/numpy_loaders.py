"""Planned batches as columns, and the loaders that make them in Python: from WAV, ``.npy`` files or the packed file.

A loader is asked for a batch by number and looks everything else up in the columns, so that a pipeline carries nothing
but numbers, and the graph of a dataset stays small. Never imports TensorFlow: a thread of ``tf.data`` makes a batch, or
a process of its own, so that Python's lock is no limit, by the same lines, in memory that TensorFlow takes over without
a copy. Such a process has one batch under way, in memory that it shares with us, so that what a batch
costs here is one copy of it; it is spawned, for a fork would copy TensorFlow's threads in whatever state they are.
"""

from __future__ import annotations

import ctypes
import math
import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawArray
from pkgutil import resolve_name
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from xttsbench.errors import InvalidInputError, XttsbenchError
from xttsbench.xtts.data.batches import Ints, Planned
from xttsbench.xtts.data.cache_files import CacheFileError, check_packed, unreadable
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.pool import Server
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.features import FeatureSettings, log_mel_frames
from xttsbench.xtts.loaders import IN_PYTHON, LOADERS
from xttsbench.xtts.wav import WavError, read_canonical_wav

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
            raw = np.empty(4 * self._elements + _ALIGNMENT_BYTES, np.uint8)
            start = -raw.ctypes.data % _ALIGNMENT_BYTES
            memory = raw[start : start + 4 * self._elements].view(np.float32)
        # The base of a view is the array below it that is itself based on something else than an array. So every view
        # of `whole` keeps it, and nothing else does; of a slice of `memory` they would keep `memory` alone.
        whole = np.asarray(memory.data)
        weakref.finalize(whole, self._free.append, memory).atexit = False
        return whole[: math.prod(shape)].reshape(shape)


def by_clip(read: Callable[[int, int, Floats], None], planned: Planned, *, keep: bool) -> Fill:
    """Return what fills a batch clip by clip: ``read(clip, first, array)`` fills ``[k, n_mels]`` with ``k`` frames.

    With ``keep`` a clip's features are read whole when they are first asked for, and kept in memory.
    """
    mels: dict[int, Floats] = {}

    def from_memory(clip: int, first: int, out: Floats) -> None:
        mel = mels.get(clip)
        if mel is None:  # two threads may find so at once, and read the same
            mel = np.empty((int(planned.lengths[clip]), planned.n_mels), np.float32)
            read(clip, 0, mel)
            mels[clip] = mel
        out[:] = mel[first : first + len(out)]

    into = from_memory if keep else read

    def fill(array: Floats, clips: Ints, firsts: Ints, counts: Ints) -> None:
        for rows, clip, first, count in zip(array, clips.tolist(), firsts.tolist(), counts.tolist(), strict=True):
            into(clip, first, rows[:count])

    return fill


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
    """Buffers for the batches of a plan, which TensorFlow takes over; used again when free."""

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

    return by_clip(read, planned, keep=keep)


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

    return by_clip(read, planned, keep=keep)


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


_MOST: Final = 256  # processes of a dataset: more is a slip


class Source(NamedTuple):
    """Input of a loader: everything that a process needs to make any batch of a plan."""

    loader: str
    """One of :data:`IN_PYTHON`."""
    planned: Planned
    data: SpeechData
    cache: FeatureCache | None
    features: FeatureSettings

    def fill(self, **chosen: Any) -> Fill:
        """Return what fills a batch with features; ``chosen`` goes to the loader.

        Raises:
            CacheFileError: a file that the loader opens at once cannot be used.
        """
        make = resolve_name(LOADERS[self.loader])
        fill: Fill = make(self.planned, self.data, self.cache, self.features, **chosen)
        return fill


def check_processes(loader: str, count: int, *, keep: bool) -> None:
    """Refuse a number of processes that a loader cannot use.

    Raises:
        InvalidInputError: it is out of range, the loader runs in TensorFlow's ops, or features are to be kept.
    """
    if not 0 <= count <= _MOST:
        raise InvalidInputError(f"input processes must be 0 to {_MOST}, got {count}")
    if count and loader not in IN_PYTHON:
        raise InvalidInputError(
            f"input processes: the loader {loader} is TensorFlow's own work, in whose threads Python has no part, and "
            f"cannot run without TensorFlow; take no process, or one of {', '.join(IN_PYTHON)}"
        )
    if count and keep:
        raise InvalidInputError(
            f"input processes: each of {count} would keep the features of all clips for itself; take no process, or do "
            "not keep features"
        )


class InputProcesses:
    """Makes batches from their numbers, each in one of some processes; callable from several threads.

    The processes begin with it, and end when nothing refers to it any more, or with this process however that dies.
    """

    def __init__(self, source: Source, count: int) -> None:
        self._planned, self._count = source.planned, count
        self._memory = BatchMemory(source.planned)
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        workers = [_Worker(source) for _ in range(count)]
        for worker in workers:
            self._idle.put(worker)
        weakref.finalize(self, _end, [worker.process for worker in workers])

    def __call__(self, number: int) -> Arrays:
        """Return a batch, waiting for a process that is free.

        Raises:
            InvalidInputError: the loader's own sentence.
            XttsbenchError: the process died.
        """
        worker = self._idle.get()
        try:
            numbers = worker.ask(number)
            mel, reference = self._memory.take(number)
            for ours, theirs in zip((mel, reference), _views(worker.shared, self._planned, number), strict=True):
                ours[:] = theirs
        except (EOFError, ConnectionError) as error:
            raise XttsbenchError(
                f"one of {self._count} processes that make batches died, for want of memory perhaps; take fewer, or "
                "smaller batches"
            ) from error
        finally:
            # Back in any case: a dead one says so again, whereas without any the next call would wait for ever.
            self._idle.put(worker)
        return Arrays(mel, reference, numbers)


def weakly(processes: InputProcesses) -> MakeBatch:
    """Return what makes batches in some processes as long as something else refers to them.

    TensorFlow keeps what a ``tf.numpy_function`` calls until this process ends, and they are to end with the dataset.
    """
    reference = weakref.ref(processes)

    def make(number: int) -> Arrays:
        found = reference()
        if found is None:
            raise XttsbenchError(
                "the dataset whose batches came from processes of its own is gone; keep it while it is used"
            )
        return found(number)

    return make


class _Worker(Server):
    """One process, and the memory that is shared with it."""

    def __init__(self, source: Source) -> None:
        self.shared = RawArray(ctypes.c_float, sum(source.planned.most_elements()))
        super().__init__(_filler, self.shared, source)


def _filler(shared: Any, source: Source) -> Callable[[int], Ints]:
    """Return what puts a batch into shared memory and returns its numbers; runs in the process."""
    fill = source.fill()
    return lambda number: fill_batch(source.planned, fill, number, *_views(shared, source.planned, number))


def _views(shared: Any, planned: Planned, number: int) -> tuple[Floats, Floats]:
    numbers = np.frombuffer(shared, np.float32)
    mel, reference = planned.shapes(number)
    end = math.prod(mel)
    return numbers[:end].reshape(mel), numbers[end : end + math.prod(reference)].reshape(reference)


def _end(processes: Sequence[BaseProcess]) -> None:
    """End processes that only read, at once, and wait until they are gone."""
    for process in processes:
        process.kill()
    for process in processes:
        process.join()
