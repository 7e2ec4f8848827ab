"""Batches: where a segment's steps get theirs, what they look like, and whether others hold the same samples."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.pipeline.nodes import constant, dataset_nodes, named_inputs
from xttsbench.records.elements import OtherBatches
from xttsbench.records.trial import Batches


class ExhaustedError(Exception):
    """The dataset yields nothing (more), even when it is begun again."""


class LiveBatches:
    """Iterates a dataset; at its end it begins again, as training does, and the wait for that counts.

    Attributes:
        epoch: how often it was begun again.
        batch: index of the batch that was handed out last, in the order of its epoch; -1 before the first.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self.epoch = 0
        self.batch = -1
        self._dataset = dataset
        self._iterator: Iterator[Any] = iter(dataset)

    def close(self) -> None:
        """End the iterator and the threads that fill its buffers, so that they take nothing from what runs next."""
        self._iterator = iter(())

    def next(self) -> Any:
        """The next batch.

        Raises:
            ExhaustedError: a new epoch has no element.
        """
        try:
            batch = next(self._iterator)
            self.batch += 1
            return batch
        except StopIteration:
            pass
        self.epoch += 1
        self.batch = 0
        self._iterator = iter(self._dataset)
        try:
            return next(self._iterator)
        except StopIteration:
            raise ExhaustedError from None


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


_COUNT: Final = 8
MOST_BYTES: Final = 512 * 1024**2
"""Of batches that are kept in memory."""
_SECONDS: Final = 4.0


def first_pass(source: LiveBatches, most: int, seconds: float) -> Iterator[Any]:
    """Batches of the first pass over a dataset: so many at most, within so many seconds, but at least one.

    Raises:
        ExhaustedError: the dataset yields nothing at all.
    """
    began = time.perf_counter()
    for number in range(most):
        if number and time.perf_counter() - began >= seconds:
            return
        try:
            batch = source.next()
        except ExhaustedError:
            if number:
                return
            raise ExhaustedError("the dataset yields no element: next() ended at once") from None
        if source.epoch and number:  # a short dataset, begun again: every batch is seen once
            return
        yield batch


def take_batches(source: LiveBatches) -> list[Any]:
    """Up to eight batches, within half a gibibyte and four seconds; at least one.

    Raises:
        ExhaustedError: the dataset yields nothing at all.
    """
    batches: list[Any] = []
    held = 0
    for batch in first_pass(source, _COUNT, _SECONDS):
        batches.append(batch)
        held += size_bytes(batch)
        if held >= MOST_BYTES:
            break
    return batches


def describe(batches: list[Any], dataset: tf.data.Dataset) -> Batches:
    """What the batches look like, with the padding measured on the batches themselves."""
    padding, component = _padding(batches)
    return Batches(
        cached=len(batches),
        bytes=sum(size_bytes(batch) for batch in batches),
        shapes=(),
        static_signature=str(dataset.element_spec)[:500],
        padding_share=padding,
        padding_component=component,
        nonfinite=tuple(_nonfinite(batches)),
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


def _nonfinite(batches: list[Any]) -> list[str]:
    found = set()
    for batch in batches:
        for name, values in _components(batch):
            # bfloat16 and float8 are NumPy extension types, narrower than float32: isfinite knows them through it.
            known = values.astype(np.float32) if values.dtype.kind == "V" else values
            if known.dtype.kind == "f" and not np.isfinite(known).all():
                found.add(name)
    return sorted(found)


def _padding(batches: list[Any]) -> tuple[float | None, str | None]:
    """Share of trailing padding in the component that has most elements among those that vary in length.

    A component counts as padded where rows of one batch end in a run of one repeated value of different length, that
    value being the same for all rows. ``None`` where no component does.
    """
    largest: tuple[int, float, str] | None = None
    by_name: dict[str, list[tuple[int, int, int]]] = {}
    for batch in batches:
        for name, values in _components(batch):
            if values.ndim < 2 or values.shape[0] < 2 or values.shape[1] < 4:
                continue
            lengths = _row_lengths(values)
            if lengths is not None:
                by_name.setdefault(name, []).append(
                    (int(lengths.sum()), values.shape[0] * values.shape[1], values.size)
                )
    for name, pairs in by_name.items():
        if len(pairs) < max(1, len(batches) // 2):
            continue
        share = 1 - sum(real for real, _, _ in pairs) / sum(total for _, total, _ in pairs)
        size = sum(numbers for _, _, numbers in pairs)
        if largest is None or size > largest[0]:
            largest = (size, share, name)
    return (largest[1], largest[2]) if largest else (None, None)


def _row_lengths(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Length of each row before its trailing padding, or ``None`` where the batch does not look padded."""
    rows = values.reshape(*values.shape[:2], -1)
    pad = rows[:, -1, 0].astype(np.float64)
    value = float(np.bincount(np.unique(pad, return_inverse=True)[1]).argmax())
    value = float(np.unique(pad)[int(value)])
    is_pad = (rows == value).all(axis=2)
    # The last position that is not padding; a row that is all padding has length 0.
    lengths = np.where(is_pad.all(axis=1), 0, values.shape[1] - np.argmin(is_pad[:, ::-1], axis=1))
    trailing = values.shape[1] - lengths
    # A row that ends in a run of a few positions, after something else, and one that does not: otherwise it is data.
    if not ((trailing >= 2) & (lengths > 0)).any() or len(np.unique(lengths)) < 2:
        return None
    return np.asarray(lengths)


_MOST_ROWS: Final = 5000
"""Samples of one pipeline that are compared."""


def padding_of(graph: Any) -> tuple[Any, ...]:
    """What a graph's last padded batch pads each component with; empty where that is not known."""
    by_name = {node.name: node for node in graph.node}
    last = next((node for node in reversed(dataset_nodes(graph)) if node.op.startswith("PaddedBatch")), None)
    if last is None:
        return ()
    found = [constant(reference, by_name) for name, reference in named_inputs(last) if name == "padding_values"]
    return () if any(one is None for one in found) else tuple(one.item() for one in found if one is not None)


def compare_apart(
    original: tf.data.Dataset, fixed: tf.data.Dataset, padding: Sequence[Any], *, drawn: Sequence[str], max_s: float
) -> OtherBatches:
    """Compare the samples of an epoch of each one by one, without the padding and whatever batch they are in.

    For a fix that makes other batches, which were asked for: each sample has to be there as often as before.

    Args:
        original: ends after some elements.
        fixed: the same with other batches.
        padding: the value that each component is padded with.
        drawn: ops that draw random values, in words: then samples that differ tell nothing.
        max_s: seconds for each.
    """
    ours, theirs = (_Epoch(padding, max_s) for _ in range(2))
    for epoch, dataset in ((ours, original), (theirs, fixed)):
        why = epoch.read(dataset)
        if why is not None:
            return OtherBatches(same=None, sentence=f"it is unknown whether the samples are the same: {why}")
    missing, new = (ours.samples - theirs.samples).total(), (theirs.samples - ours.samples).total()
    shares = (ours.padding_share, theirs.padding_share)
    total = ours.samples.total()
    if (missing or new) and drawn:
        sentence = f"it is unknown whether the samples are the same: {drawn[0]}"
        return OtherBatches(same=None, sentence=sentence, samples=total, padding_share=shares)
    if missing or new:
        sentence = f"the samples are not those of the original: {missing} of {total} are missing and {new} are new"
        return OtherBatches(same=False, sentence=sentence, samples=total, padding_share=shares)
    sentence = (
        f"the same {total:,} samples of an epoch come in other batches, as asked for; padding takes {shares[1]:.0%} of "
        f"the values in place of {shares[0]:.0%}"
    )
    return OtherBatches(same=True, sentence=sentence, samples=total, padding_share=shares)


class _Epoch:
    """The samples of one epoch, as digests, and how much of what was padded is padding."""

    def __init__(self, padding: Sequence[Any], max_s: float) -> None:
        self.samples: Counter[bytes] = Counter()
        self._padding, self._max_s = padding, max_s
        self._values = self._padded = 0

    @property
    def padding_share(self) -> float:
        """Of the values of components with two dimensions or more, 0..1."""
        return self._padded / self._values if self._values else 0.0

    def read(self, dataset: tf.data.Dataset) -> str | None:
        """Read it to its end; why that was not possible, where it was not."""
        end_s = time.perf_counter() + self._max_s
        for batch in dataset:
            parts = [np.asarray(part) for part in tf.nest.flatten(batch)]
            if len(parts) != len(self._padding):
                return "what is done after padding makes other components of it"
            for row in range(len(parts[0])):
                self._add([np.asarray(part[row], part.dtype) for part in parts])
            if self.samples.total() > _MOST_ROWS or time.perf_counter() > end_s:
                return "an epoch does not end within the time for it"
        return None

    def _add(self, parts: Sequence[np.ndarray[Any, Any]]) -> None:
        digest = hashlib.blake2b(digest_size=16)
        for part, value in zip(parts, self._padding, strict=True):
            own = _without(part, value)
            if part.ndim:
                self._values += part.size
                self._padded += part.size - own.size
            text = repr(own.tolist()).encode() if own.dtype == object else np.ascontiguousarray(own).tobytes()
            digest.update(f"{own.dtype}{own.shape}".encode() + text)
        self.samples[digest.digest()] += 1


def _without(values: np.ndarray[Any, Any], padding: Any) -> np.ndarray[Any, Any]:
    """The values up to the last one, in each dimension, that is no padding."""
    if not values.ndim:
        return values
    kept = np.argwhere(values != padding)
    return values[tuple(slice(0, stop) for stop in (kept.max(axis=0) + 1 if len(kept) else [0] * values.ndim))]
