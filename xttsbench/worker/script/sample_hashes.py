"""Hashes of samples, so that ranks of a job can tell whether they train on the same ones.

A sample is known by some 250 of its numbers at fixed places of each of its tensors: padding with zeros changes nothing.
Sums of products wrap around in 64 bits, in a graph as in NumPy, so the order of additions does not matter.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from xttsbench.worker.script.graph_clock import tensors_of

BITS: Final = 52
"""A hash is exact as a float64."""
_LEAVES: Final = 4
_PLACES: Final = np.unique(np.r_[np.arange(32), np.arange(0, 13 * 160, 13), np.arange(0, 997 * 64, 997)])
_WEIGHTS: Final = np.random.default_rng(20585).integers(1, 1 << 62, (_LEAVES, len(_PLACES)), dtype=np.int64) | 1
_AS_INTEGERS: Final = {2: (np.int16, tf.int16), 4: (np.int32, tf.int32), 8: (np.int64, tf.int64)}


def leaves_of(batch: Any) -> list[Any]:
    """The tensors of a batch by whose numbers its samples are told apart: those with a first dimension."""
    return [one for one in tensors_of(batch) if one.shape.rank and (one.dtype.is_floating or one.dtype.is_integer)][
        :_LEAVES
    ]


def hashes(leaves: list[Any]) -> npt.NDArray[np.int64]:
    """A hash for each sample of a batch whose tensors are on the processor."""
    total = np.zeros(int(leaves[0].shape[0]), dtype=np.int64)
    for leaf, weights in zip(leaves, _WEIGHTS, strict=False):
        values = leaf._numpy_internal()
        if len(values) == len(total):
            values = values.reshape(len(values), int(np.prod(values.shape[1:])))
            values = values[:, _PLACES[: np.searchsorted(_PLACES, values.shape[1])]]
            if leaf.dtype.is_floating:
                values = values.view(_AS_INTEGERS[leaf.dtype.size][0])
            total += (values.astype(np.int64) * weights[: values.shape[1]]).sum(axis=1)
    return (total >> 11) & ((1 << BITS) - 1)


def hashes_in_graph(leaves: list[Any]) -> Any:
    """The same as ops of the graph that is being traced; the first dimension may be 0."""
    size = tf.shape(leaves[0])[0]
    total = tf.zeros([size], tf.int64)
    for leaf, weights in zip(leaves, _WEIGHTS, strict=False):
        integers = tf.bitcast(leaf, _AS_INTEGERS[leaf.dtype.size][1]) if leaf.dtype.is_floating else leaf
        width = tf.reduce_prod(tf.shape(leaf)[1:])
        places = tf.constant(_PLACES, tf.int32)
        known = tf.searchsorted(places, [width])[0]
        values = tf.gather(tf.reshape(integers, [tf.shape(leaf)[0], width]), places[:known], axis=1)
        sums = tf.reduce_sum(tf.cast(values, tf.int64) * tf.constant(weights)[:known], axis=1)
        same = tf.cast(tf.shape(sums)[0] == size, tf.int64)  # of a ragged or sparse tensor some parts have other rows
        total += same * tf.concat([sums, tf.zeros([size], tf.int64)], axis=0)[:size]
    return tf.bitwise.bitwise_and(tf.bitwise.right_shift(total, tf.constant(11, tf.int64)), (1 << BITS) - 1)
