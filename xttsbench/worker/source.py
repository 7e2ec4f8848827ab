"""Where the steps of a segment get their batches: the live dataset, epoch after epoch, or batches kept in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf


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
