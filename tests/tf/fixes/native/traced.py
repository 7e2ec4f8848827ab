"""Traces a function with calls as they would be recorded, and compares it with Python on each of them."""

from __future__ import annotations

import inspect
import os
import re

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.fixes.native.observe import RefusedError
from xttsbench.fixes.native.trace import trace


def same(function, *calls, tolerance=1e-6, tensors=False):
    """Trace a function, its shapes left open, and compare it on each of the calls that were recorded."""
    given = [tuple(one if isinstance(one, bytes) else np.asarray(one)[()] for one in call) for call in calls]
    specs = [
        tf.TensorSpec([None] * np.ndim(one), tf.string if isinstance(one, bytes) else one.dtype) for one in given[0]
    ]
    results = [function(*(map(tf.constant, call) if tensors else call)) for call in given]
    results = [list(one) if isinstance(one, list | tuple) else [one] for one in results]
    kinds = [tf.string if isinstance(one, str | bytes) else tf.as_dtype(np.asarray(one).dtype) for one in results[0]]
    seen = [tuple(map(tf.constant, call)) for call in given] if tensors else given
    traced = trace(function, specs, kinds, tensors=tensors, seen=seen)
    for call, expected in zip(given, results, strict=True):
        for one, found in zip(expected, traced(*map(tf.constant, call)), strict=True):
            if isinstance(one, str | bytes):
                assert found.numpy() == (one.encode() if isinstance(one, str) else one)
                continue
            ours, other = np.asarray(one), found.numpy()
            assert (ours.shape, ours.dtype) == (other.shape, other.dtype)
            size = np.abs(ours[np.isfinite(ours)]).max(initial=0.0) if ours.dtype.kind in "fc" else 0
            np.testing.assert_allclose(other, ours, rtol=0, atol=tolerance * size, equal_nan=True)
    return traced


def refused(function, reason):
    """Trace a function of an array; it is refused at a line of its file."""
    specs, seen = [tf.TensorSpec([None], tf.float32)], [(np.float32([1, 2, 4]),)]
    with pytest.raises(
        RefusedError, match=rf"{reason}.*{re.escape(os.path.basename(inspect.getfile(function)))}:\d+\)"
    ) as caught:
        trace(function, specs, [tf.float32], seen=seen)
    return caught.value
