"""Samples of two pipelines compared one by one: what a fix that was asked to make other batches has to leave alone."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.pipeline.nodes import constant, dataset_nodes, named_inputs
from xttsbench.records.pipeline import OtherBatches

_MOST_ROWS: Final = 5000  # Samples of one pipeline that are compared


def padding_of(graph: Any) -> tuple[Any, ...]:
    """Padding value of each component in a graph's last padded batch; empty where that is not known."""
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
    same: bool | None = True
    sentence = (
        f"the same {total:,} samples of an epoch come in other batches, as asked for; padding takes {shares[1]:.0%} of "
        f"the values in place of {shares[0]:.0%}"
    )
    if (missing or new) and drawn:
        same, sentence = None, f"it is unknown whether the samples are the same: {drawn[0]}"
    elif missing or new:
        same = False
        sentence = f"the samples are not those of the original: {missing} of {total} are missing and {new} are new"
    return OtherBatches(same=same, sentence=sentence, samples=total, padding_share=shares)


class _Epoch:
    """The samples of one epoch, as digests, and how much of what was padded is padding."""

    def __init__(self, padding: Sequence[Any], max_s: float) -> None:
        self.samples: Counter[bytes] = Counter()
        self._padding, self._max_s = padding, max_s
        self._values = self._padded = 0

    @property
    def padding_share(self) -> float:
        """Share of padding in the values of components with two dimensions or more, 0..1."""
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
