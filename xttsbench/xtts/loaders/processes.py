"""Batches made in processes of their own, which import no TensorFlow: Python's lock is then no limit, nor our memory.

Each process has one batch under way, in memory that it shares with us, so that what a batch costs here is one copy of
it. They are spawned, for a fork would copy TensorFlow's threads in whatever state they are.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Sequence
from importlib import import_module
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawArray
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

import numpy as np

from xttsbench.errors import InvalidInputError, XttsbenchError
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.pool import Server
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.features import FeatureSettings
from xttsbench.xtts.loaders import IN_PYTHON, LOADERS
from xttsbench.xtts.loaders.numpy_loaders import Arrays, BatchMemory, Fill, Floats, Ints, MakeBatch, Planned, fill_batch

_MOST: Final = 256  # processes of a dataset: more is a slip


class Source(NamedTuple):
    """What a loader reads, and how: everything that a process needs to make any batch of a plan."""

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
        module, _, function = LOADERS[self.loader].partition(":")
        fill: Fill = getattr(import_module(module), function)(
            self.planned, self.data, self.cache, self.features, **chosen
        )
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
    """Return a batch's mels and references within shared memory."""
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
