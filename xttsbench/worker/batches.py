"""Batches: where a segment's steps get theirs, what they look like, and caches that are filled before any is timed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import tensorflow as tf

from xttsbench.pipeline.caches import Cache, caches_of
from xttsbench.records.trial import Batches, TrialSpec
from xttsbench.worker.channel import Channel
from xttsbench.worker.failure import ExhaustedError

Live = TypeVar("Live", bound="LiveBatches")

_WINDOWS: Final = 1.5  # Windows of the trial that filling may take, where the trial does not say how long it may


def fill_caches(spec: TrialSpec, dataset: tf.data.Dataset, channel: Channel) -> None:
    """Draw one epoch of a dataset that has a cache, where that is possible in time; what was done is told."""
    caches = caches_of(dataset, fixed=spec.fix is not None or spec.source_limit is not None)
    if not caches or any(cache.size == tf.data.INFINITE_CARDINALITY for cache in caches):
        return  # a cache that is never full is a finding
    channel.phase("filling caches")
    began = time.perf_counter()
    full = _fill(dataset, caches, began + (spec.fill_s or _WINDOWS * spec.window_s))
    channel.part("cache_filled", full)
    if full and spec.source_limit is not None:
        return  # the fix that it is measured for says so
    took = f"{time.perf_counter() - began:.1f} s"
    channel.note(
        f"the cache was filled before anything was measured, which took {took}: the numbers are of later epochs"
        if full
        else f"the cache was not full after {took}: what was measured is the first epoch, and others are quicker"
    )


def _fill(dataset: Any, caches: Sequence[Cache], deadline: float) -> bool:
    """Whether one pass of every cache was drawn: the dataset ended, or gave as many elements as the caches take."""
    sizes = [cache.size for cache in caches]
    wanted = max(sizes) if tf.data.UNKNOWN_CARDINALITY not in sizes else None
    in_batches = all(cache.batches_follow for cache in caches)
    drawn = 0
    for batch in dataset:
        drawn += _samples(batch) if in_batches else 1
        # One more than it holds: the pass is over when the next element is asked for.
        if wanted is not None and drawn > wanted:
            return True
        if time.perf_counter() > deadline:
            return False
    return True


def _samples(batch: Any) -> int:
    shapes = [tensor.shape for tensor in tf.nest.flatten(batch, expand_composites=True)]
    return next((int(shape[0]) for shape in shapes if shape.rank), 1)


_NONE: Final = object()  # No batch: one may be None


class LiveBatches:
    """Iterates a dataset; at its end it begins again, as training does, and the wait for that counts.

    Closing an iterator waits now and then for tf.data's tuner, the longer the longer it has lived: seconds in a process
    that stands still between its turns, which no training pays. There the first ones are left open.

    Args:
        dataset: what is iterated.
        left_open: how many iterators are not closed at their end.

    Attributes:
        epoch: how often it was begun again.
        batch: index of the batch that was handed out last, in the order of its epoch; -1 before the first.
    """

    def __init__(self, dataset: tf.data.Dataset, *, left_open: int = 0) -> None:
        self.epoch = 0
        self.batch = -1
        self._dataset = dataset
        self._left_open = left_open
        self._ended: list[Iterator[Any]] = []
        self._iterator: Iterator[Any] = iter(dataset)

    def close(self) -> None:
        """End the iterator and the threads that fill its buffers, so that they take nothing from what runs next."""
        self._iterator = iter(())

    def next(self) -> Any:
        """The next batch.

        Raises:
            ExhaustedError: a new epoch has no element.
        """
        batch = next(self._iterator, _NONE)
        if batch is _NONE:
            if len(self._ended) < self._left_open:
                self._ended.append(self._iterator)
            self.epoch, self.batch, self._iterator = self.epoch + 1, -1, iter(self._dataset)
            if (batch := next(self._iterator, _NONE)) is _NONE:
                raise ExhaustedError
        self.batch += 1
        return batch


class CachedBatches:
    """Hands out batches that are in memory already, round and round: the step without its input.

    Args:
        batches: at least one.
        indices: the index of each in the order of the pass that it was taken from, where that is known.

    Attributes:
        epoch: how often all were handed out.
        batch: index of the batch that was handed out last; -1 where it is not known.
    """

    def __init__(self, batches: Sequence[Any], indices: Sequence[int] | None = None) -> None:
        self.epoch = 0
        self.batch = -1
        self._batches = batches
        self._indices = (-1,) * len(batches) if indices is None else tuple(indices)
        self._at = 0

    def next(self) -> Any:
        """The next batch."""
        if self._at == len(self._batches):
            self._at = 0
            self.epoch += 1
        self.batch = self._indices[self._at]
        self._at += 1
        return self._batches[self._at - 1]


Source = LiveBatches | CachedBatches

_LEFT_OPEN: Final[list[LiveBatches]] = []


@contextlib.contextmanager
def opened(source: Live, channel: Channel) -> Iterator[Live]:
    """A source whose iterator is closed in the end, but not in a process that ends anyway.

    Closing it waits for tf.data's tuner, which sleeps ever longer, and for Python functions of the pipeline: many
    seconds.
    """
    try:
        yield source
    finally:
        if channel.process_ends:
            _LEFT_OPEN.append(source)
        else:
            source.close()


_COUNT: Final = 8
MOST_BYTES: Final = 512 * 1024**2
"""Most bytes of batches that are kept in memory."""
_SECONDS: Final = 4.0


def first_pass(source: LiveBatches, most: int, seconds: float) -> Iterator[Any]:
    """Batches of the first pass over a dataset: so many at most, at least one, while taking them took so many seconds.

    Raises:
        ExhaustedError: the dataset yields nothing at all.
    """
    taking_s = 0.0
    for number in range(most):
        if number and taking_s >= seconds:
            return
        try:
            began = time.perf_counter()
            batch = source.next()
            taking_s += time.perf_counter() - began
        except ExhaustedError:
            if number:
                return
            raise ExhaustedError("the dataset yields no element: next() ended at once") from None
        if source.epoch and number:  # a short dataset, begun again: every batch is seen once
            return
        yield batch


def take_batches(source: LiveBatches, most: int = _COUNT, seconds: float = _SECONDS) -> list[Any]:
    """So many batches at most, within half a gibibyte and so many seconds; at least one.

    Raises:
        ExhaustedError: the dataset yields nothing at all.
    """
    batches: list[Any] = []
    for batch in first_pass(source, most, seconds):
        batches.append(batch)
        if sum(map(size_bytes, batches)) >= MOST_BYTES:
            break
    return batches


def describe(batches: list[Any]) -> Batches:
    """Description of the batches, with the padding measured on the batches themselves."""
    padding, component = _padding(batches)
    return Batches(
        cached=len(batches),
        bytes=sum(size_bytes(batch) for batch in batches),
        shapes=(),
        padding_share=padding,
        padding_component=component,
        nonfinite=tuple(
            sorted({name for batch in batches for name, values in _components(batch) if _nonfinite(values)})
        ),
    )


def size_bytes(batch: Any) -> int:
    """Bytes of the tensors of a batch, as far as their type has a size."""
    tensors = tf.nest.flatten(batch, expand_composites=True)
    return sum(int(np.prod(one.shape)) * (one.dtype.size or 0) for one in tensors if isinstance(one, tf.Tensor))


def _components(batch: Any) -> list[tuple[str, np.ndarray[Any, Any]]]:
    """The dense numeric tensors of a batch with their names: the key in a dictionary, else the position."""
    flat = tf.nest.flatten(batch, expand_composites=True)
    keys = sorted(batch) if isinstance(batch, dict) and len(batch) == len(flat) else range(len(flat))
    return [
        (f"component {key}" if isinstance(key, int) else f"{key!r}", tensor.numpy())
        for key, tensor in zip(keys, flat, strict=True)
        if isinstance(tensor, tf.Tensor) and (tensor.dtype.is_floating or tensor.dtype.is_integer)
    ]


def _nonfinite(values: np.ndarray[Any, Any]) -> bool:
    # bfloat16 and float8 are NumPy extension types, narrower than float32: isfinite knows them through it.
    known = values.astype(np.float32) if values.dtype.kind == "V" else values
    return known.dtype.kind == "f" and not np.isfinite(known).all()


def _padding(batches: list[Any]) -> tuple[float | None, str | None]:
    """Share of trailing padding in the component that has most elements among those that vary in length.

    A component counts as padded where rows of one batch end in a run of one repeated value of different length, that
    value being the same for all rows. ``None`` where no component does.
    """
    by_name: dict[str, list[tuple[int, int, int]]] = {}  # of each batch: real positions, positions, numbers
    for batch in batches:
        for name, values in _components(batch):
            if values.ndim >= 2 and values.shape[0] >= 2 and values.shape[1] >= 4:
                lengths = _row_lengths(values)
                if lengths is not None:
                    sizes = int(lengths.sum()), values.shape[0] * values.shape[1], values.size
                    by_name.setdefault(name, []).append(sizes)
    sums = {name: np.sum(own, axis=0) for name, own in by_name.items() if len(own) >= max(1, len(batches) // 2)}
    if not sums:
        return None, None
    name = max(sums, key=lambda name: sums[name][2])
    real, total, _ = sums[name]
    return float(1 - real / total), name


def _row_lengths(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Length of each row before its trailing padding, or ``None`` where the batch does not look padded."""
    rows = values.reshape(*values.shape[:2], -1)
    ends, counts = np.unique(rows[:, -1, 0].astype(np.float64), return_counts=True)
    is_pad = (rows == ends[counts.argmax()]).all(axis=2)
    # The last position that is not padding; a row that is all padding has length 0.
    lengths = np.where(is_pad.all(axis=1), 0, values.shape[1] - np.argmin(is_pad[:, ::-1], axis=1))
    trailing = values.shape[1] - lengths
    # A row that ends in a run of a few positions, after something else, and one that does not: otherwise it is data.
    if not ((trailing >= 2) & (lengths > 0)).any() or len(np.unique(lengths)) < 2:
        return None
    return np.asarray(lengths)
