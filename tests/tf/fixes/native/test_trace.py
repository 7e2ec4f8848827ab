"""Functions that compute with NumPy traced into TensorFlow's ops: the same values for any input, or refused by line."""

from __future__ import annotations

import functools
import inspect
import os
import random
import re
import time

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.tf.fixes.native.traced import refused, same
from xttsbench.fixes.native.trace import RefusedError, trace

pytestmark = pytest.mark.tf

WINDOW = np.hanning(64).astype(np.float32)
FILTERS = np.abs(np.random.default_rng(0).normal(size=(33, 8))).astype(np.float32)
SHARES = {"low": 0.25, "high": 2.0}
COUNT = [0]
FLOATS = st.integers(-6400, 6400).map(lambda number: number / 64)
"""No subnormal numbers: TensorFlow takes them for zero."""


def same_of(function, *arguments, tolerance=1e-5):
    same(function, arguments, tolerance=tolerance)


def frames_of(audio, length=64, hop=16):
    count = 1 + (len(audio) - length) // hop
    return audio[np.arange(count)[:, None] * hop + np.arange(length)[None, :]]


def log_mel(audio):
    spectrum = np.abs(np.fft.rfft(frames_of(audio) * WINDOW, axis=-1)) ** 2
    mel = np.log(np.maximum(spectrum.astype(np.float32) @ FILTERS, 1e-5))
    return ((mel - mel.mean(axis=0)) / (mel.std(axis=0) + 1e-3)).astype(np.float32)


class Scaled:
    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return self.scale(x)

    def scale(self, x):
        return x * self.by


def test_features_of_any_length_are_those_of_numpy():
    for length in (64, 100, 777):
        audio = np.random.default_rng(length).normal(size=length).astype(np.float32)
        same_of(log_mel, audio, tolerance=1e-4)


def mixed(a, b):
    low, high = np.float32(SHARES["low"]), SHARES["high"]
    c = np.where(a > b, a * low, b / 3) + high
    return np.clip(c, -5, 5), np.sum(a, axis=0), a.mean(), (a // 3).astype(np.int32), a % 7, a.astype(np.int16) // 4


def shapes(a, b):
    c = np.concatenate([a, b[::-1]], axis=0)
    d = np.stack([a, b], axis=-1)
    padded = np.pad(a, ((0, 3), (1, 0)), mode="constant", constant_values=-1.0)
    halves = a.reshape(-1, 1).squeeze(-1).copy()
    moved = np.roll(a, 2), np.roll(a, -1, axis=1), np.moveaxis(d, 0, -1), np.moveaxis(d, (0, 1), (2, 0)), np.flip(d, 1)
    turned = np.swapaxes(a, 0, 1), np.expand_dims(a, axis=1), np.pad(a, (1, 2)), np.pad(b, ((0, len(a)), (1, 0)))
    more = np.tile(a, (2, 1)), np.repeat(a, 2, axis=1), np.append(a, b), np.sort(a, axis=None), np.hstack([a, b])
    return (
        *moved,
        *turned,
        *more,
        c.T,
        d.transpose(2, 0, 1),
        padded,
        halves[::2],
        np.pad(b, 1, mode="edge"),
        a[..., -1],
        a[:, None, :-1],
        a[1:],
    )


def statistics(a, b):
    spread = a - a.mean(axis=1, keepdims=True)
    return (
        *(spread.std(), np.var(b, axis=0, ddof=0), np.median(a), np.argmax(b, axis=1), np.cumsum(a, axis=1)),
        *(np.diff(b, axis=0), np.linalg.norm(a, axis=1), np.sort(a, axis=1), a.max(), b.min(axis=0), np.any(a > 3)),
        *(np.round(a, 2), np.sign(b), np.hypot(a, b), np.log1p(np.abs(a)), np.einsum("ij,kj->ik", a, b)),
    )


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([mixed, shapes, statistics]),
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=6).flatmap(
        lambda shape: st.tuples(*[hnp.arrays(np.float32, shape, elements=FLOATS)] * 2)
    ),
)
def test_whatever_the_values_they_are_those_of_numpy(function, arrays):
    same_of(function, *arrays, tolerance=3e-4)


WHOLE = st.integers(-50, 50)


def whole(a, b):
    return (
        a // b,
        a % b,
        a / 4,
        a * 2 + 1,
        np.float32(0.5) * a,
        a > b,
        a**2,
        abs(a),
        -a,
        a & b,
        np.minimum(a, b),
        a.sum(),
    )


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([np.int16, np.int32, np.int64]).flatmap(
        lambda kind: st.tuples(hnp.arrays(kind, 5, elements=WHOLE), hnp.arrays(kind, 5, elements=WHOLE))
    )
)
def test_whole_numbers_divide_and_promote_as_numpys_do(arrays):
    with np.errstate(divide="ignore"):
        same_of(whole, *arrays)


def test_dtypes_of_two_kinds_are_promoted_by_numpys_rules():
    kinds = (np.bool_, np.uint8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64, np.complex64)
    for first in kinds:
        for second in kinds:
            a, b = np.array([1, 0, 3]).astype(first), np.array([2, 5, 1]).astype(second)
            same_of(
                lambda x, y: (
                    np.concatenate([x, y]),
                    np.where(x != 1, x, 2),
                    x + y,
                    x * y,
                    x * 3,
                    y + 1.5,
                    x.mean(),
                    np.sum(y),
                ),
                a,
                b,
                tolerance=1e-3,
            )


def row(index):
    return np.arange(16, dtype=np.float32) + np.float32(index)


def in_loops(x):
    total = np.zeros(3, np.float32)
    for number in range(4):
        total = total + x * number if number % 2 else total - x
    parts = [total[i : i + 2] * scale for i, scale in enumerate((1.0, 2.0))]
    return np.stack(parts).astype(np.float32), sum(parts)


def in_place(x):
    y = x * 2
    y += 1.5
    y -= y.mean()
    return y


def lengths(x):
    n = len(x)
    half = int(n * 0.5)
    best = max(n, 10) - min(n, 3)
    return np.zeros((n, 2), np.float32), np.full(half, 7), np.arange(best), x[: n // 2], np.float32(n), x[-1], n


def masked(x):
    loud = x[np.abs(x) > 1.0]
    return loud, np.int64(loud.size)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (row, [np.int64(7)]),
        (in_loops, [np.float32([1, 2, 3])]),
        (in_place, [np.float32([1, 2, 3])]),
        (lengths, [np.float32(range(9))]),
        (masked, [np.float32([0.5, -3, 2, 0])]),
        (functools.partial(lambda x, by: x * by, by=3), [np.float32([1, 2])]),
        (Scaled(np.float32(2)), [np.float32([1, 2])]),
        (Scaled(2.0).scale, [np.int32([1, 2])]),
        (lambda ids: FILTERS[ids].sum(axis=1), [np.int64([0, 3, -1])]),
        (lambda x: np.fft.irfft(np.fft.rfft(x, 16) * 2), [np.float64(range(10))]),
    ],
)
def test_python_around_the_arrays_runs_as_it_stands(function, arguments):
    same_of(function, *arguments)


def test_a_function_of_tensors_is_traced_and_their_arrays_too():
    def half(x):
        y = tf.cast(x, tf.float32) * 2.0
        return np.log1p(np.abs(y.numpy())) + 1.0

    traced = trace(half, [tf.TensorSpec([None], tf.int32)], [tf.float32], tensors=True)
    np.testing.assert_allclose(traced(tf.constant([1, 2]))[0], np.log1p(np.float32([2, 4])) + 1, rtol=1e-6)


def draws(x):
    scale = 2.0
    return x * np.float32(np.random.normal() * scale)  # refused: random


def draws_by_python(x):
    return x * np.float32(random.random())  # refused: random


def tells_the_time(x):
    begin = time.time()  # refused: time
    return x * np.float32(begin)


def reads(x):
    names = os.listdir("/dev")  # refused: listdir
    return x * np.float32(len(names))


def unknown(x):
    y = x + 1
    return np.unwrap(y)  # refused: unwrap


def helped(x):
    return decides(x) + 1


def decides(x):
    while True:
        if x.sum() < 1e9:  # refused: decides by the value
            return x
        x = x / 2


def assigns(x):
    y = np.zeros_like(x)
    y[[0, 1]] = 1  # refused: assigns
    return y


def swallows(x):
    try:
        return np.unwrap(x)  # refused: unwrap
    except Exception:
        return x


def in_views(x):
    y = x * 2
    z = y[1:]
    y += 1  # refused: in place
    return z


def goes_through(x):
    return np.float32(len({one: 2 for one in x}))  # refused: length


def another_dtype(x):
    return x.astype(np.float64)


@pytest.mark.parametrize(
    "function",
    [draws, draws_by_python, tells_the_time, reads, unknown, decides, assigns, swallows, in_views, goes_through],
)
def test_what_is_refused_names_its_line_and_reason(function):
    lines, first = inspect.getsourcelines(function)
    line, word = next(
        (first + n, one.split("# refused: ")[1].strip()) for n, one in enumerate(lines) if "refused" in one
    )
    assert refused(function, re.escape(word)).line == line


def test_a_helper_is_refused_at_its_own_line():
    caught = refused(helped, "decides by the value of an array")
    assert caught.line == inspect.getsourcelines(decides)[1] + 2


def test_results_that_the_graph_does_not_expect_are_refused():
    spec = [tf.TensorSpec([None], tf.float32)]
    with pytest.raises(RefusedError, match="returns float64, and the graph expects float32"):
        trace(another_dtype, spec, [tf.float32], scalars=[False])
    with pytest.raises(RefusedError, match="returns 2 results, and the graph expects 1"):
        trace(lambda x: (x, x), spec, [tf.float32], scalars=[False])
    with pytest.raises(RefusedError, match="RandomStandardNormal, which holds state"):
        trace(lambda x: x + tf.random.normal([]), spec, [tf.float32], tensors=True)
