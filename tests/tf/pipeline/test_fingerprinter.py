"""Fingerprints: the same bits the same hash, close floats close sketches, rows apart from their batch."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from xttsbench.pipeline.fingerprinter import (
    PROJECTIONS,
    SEGMENTS,
    Batching,
    Fingerprinter,
    batching,
    leaves_of,
    sketch_of,
    sketches,
)
from xttsbench.pipeline.read import read_graph

pytestmark = pytest.mark.tf


def whole(value):
    """The only row of an element that is no batch."""
    (row,) = Fingerprinter().element(value).rows
    return row


def rows(value, **how):
    return Fingerprinter(Batching(True, **how)).element(value).rows


def test_bits_dtype_and_shape_make_the_hash():
    base = np.arange(6, dtype=np.int32)
    same = whole(tf.constant(base)).hashes
    assert whole(tf.constant(base.copy())).hashes == same
    others = [base.astype(np.int64), base.reshape(2, 3), base[::-1].copy(), base.astype(np.float32)]
    assert len({whole(tf.constant(other)).hashes for other in others} | {same}) == 5


def test_payloads_of_nan_and_the_sign_of_zero_are_bits():
    quiet = np.array([0x7FC00000, 0], np.uint32).view(np.float32)
    other = np.array([0x7FC00001, 0], np.uint32).view(np.float32)
    signed = np.array([0x7FC00000, 0x80000000], np.uint32).view(np.float32)
    assert len({whole(tf.constant(array)).hashes for array in (quiet, other, signed)}) == 3


def test_strings_are_told_apart_where_they_end():
    assert whole(tf.constant(["ab", "c"])).hashes != whole(tf.constant(["a", "bc"])).hashes
    assert whole(tf.constant(["ab", "c"])).sketches == ((),)


def test_paths_are_in_the_order_of_the_structure():
    element = {"b": (tf.constant(1), tf.constant(2.0)), "a": {"mel": tf.constant(3)}}
    assert [path for path, _ in leaves_of(element)] == ["a.mel", "b[0]", "b[1]"]
    assert [int(leaf) for _, leaf in leaves_of(element)] == [int(leaf) for leaf in tf.nest.flatten(element)]


def test_a_row_has_the_same_fingerprint_in_any_batch():
    values = np.random.default_rng(0).normal(size=(6, 4, 3)).astype(np.float32)
    cut = rows({"x": tf.constant(values[:4]), "y": tf.constant([1, 2, 3, 4])})
    other = rows({"x": tf.constant(values[2:]), "y": tf.constant([3, 4, 5, 6])})
    assert cut[2:] == other[:2]
    assert len(set(cut + other)) == 6


def test_components_of_unequal_length_are_one_sample():
    assert len(rows((tf.zeros([3, 2]), tf.zeros([4])))) == 1
    assert len(rows((tf.zeros([3, 2]), tf.zeros([])))) == 1
    assert len(rows((tf.zeros([3, 2]), tf.zeros([3])))) == 3
    assert len(rows(tf.zeros([9, 2]), size=8)) == 1  # more than a batch has: the first dimension is another


def test_rows_of_ragged_and_sparse_tensors():
    lists = [[[1, 2], [3]], [], [[4]], [[5], [6, 7, 8]]]
    ragged = tf.ragged.constant(lists, ragged_rank=2, dtype=tf.int64)
    first = rows(ragged)
    again = rows(tf.ragged.constant(lists[2:] + lists[:2], ragged_rank=2, dtype=tf.int64))
    assert len(first) == 4
    assert first[2:] + first[:2] == again
    assert whole(tf.ragged.constant([[1], [2, 3]])).hashes != whole(tf.ragged.constant([[1, 2], [3]])).hashes
    sparse = [tf.sparse.from_dense(x) for x in ([[0, 1], [2, 0], [0, 0]], [[2, 0], [0, 1], [0, 0]])]
    one, two = (rows(x) for x in sparse)
    assert (one[0], one[1], one[2]) == (two[1], two[0], two[2])


def test_padding_is_no_part_of_a_row():
    short = tf.constant([[1, 2, 0], [3, 0, 0]])
    long = tf.constant([[3, 0, 0, 0], [1, 2, 0, 0]])
    assert rows(short, padding=()) == rows(long, padding=())[::-1]
    assert rows(short) != rows(long)[::-1]
    minus = [tf.constant([[1, 0, -1]]), tf.constant([[1, 0, -1, -1]]), tf.constant([[1, -1, -1, -1]])]
    hashes = [rows(x, padding=(-1,))[0].hashes for x in minus]
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize("wrong", [1e-30, -0.0, np.nan])
def test_a_wrong_value_in_padding_is_part_of_a_row(wrong):
    for dtype in (tf.float32, tf.bfloat16, tf.complex64):
        right, changed = tf.constant([[1.0, 2.0, 0.0, 0.0]]), tf.constant([[1.0, 2.0, 0.0, wrong]])
        first, second = (rows(tf.cast(x, dtype), padding=(0.0,))[0] for x in (right, changed))
        assert first.hashes != second.hashes


def test_padding_that_is_no_number_is_no_part_of_a_row():
    short, long = tf.constant([[1.0, np.nan]]), tf.constant([[1.0, np.nan, np.nan]])
    assert rows(short, padding=(np.nan,)) == rows(long, padding=(np.nan,))


def test_what_has_no_bits_is_named():
    prints = Fingerprinter()
    element = prints.element({"inner": tf.data.Dataset.range(3), "x": tf.constant(1)})
    assert prints.unknown == {"inner": "a _RangeDataset has no bits to compare"}
    assert element.rows[0].hashes[0] == ""
    assert element.shapes == ("unknown", "int32[]")


def test_only_floats_and_complex_numbers_are_sketched():
    kinds = [tf.float16, tf.bfloat16, tf.float64, tf.complex64, tf.int32, tf.bool, tf.uint8]
    lengths = [len(whole(tf.cast(tf.constant([1, 0, 1]), kind)).sketches[0]) for kind in kinds]
    assert lengths == [3 + PROJECTIONS + SEGMENTS] * 2 + [3 + PROJECTIONS] * 2 + [0] * 3


def test_a_sketch_is_finite_whatever_the_values_are():
    odd = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 0.0])
    assert np.isfinite(sketch_of(odd)).all()
    assert sketch_of(odd) != sketch_of(odd[::-1].copy())
    assert np.isfinite(sketch_of(np.zeros(0))).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5000), st.floats(1e-3, 1e3))
def test_rounding_moves_a_sketch_little_and_one_large_change_moves_it_much(seed, size, scale):
    draw = np.random.default_rng(seed)
    values = draw.normal(size=size) * scale
    rounded = values * (1 + draw.uniform(-1, 1, size) * 1e-6)
    changed = values.copy()
    changed[draw.integers(size)] += scale
    base, near, far = (np.asarray(sketch_of(x)[3:]) for x in (values, rounded, changed))
    assert np.abs(near - base).max() < 2e-5 * scale
    assert np.abs(far - base).min() == pytest.approx(scale / np.sqrt(size), rel=1e-4)


def test_long_rows_are_projected_in_parts_as_in_one():
    values = np.random.default_rng(1).normal(size=150_000)
    alone, together = sketch_of(values), sketches([values, values * 2])
    assert alone == together[0]
    assert np.allclose(np.asarray(together[1]), 2 * np.asarray(alone), atol=1e-6)


def numbers(count=12):
    return tf.data.Dataset.range(count)


def fill(x):
    return tf.fill([x + 1], x)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (numbers, Batching()),
        (lambda: numbers().batch(3), Batching(True, 3)),
        (lambda: numbers().batch(3, num_parallel_calls=2).prefetch(2), Batching(True, 3)),
        (lambda: numbers().batch(3).map(lambda x: x + 1).repeat().take(2), Batching(True, 3)),
        (lambda: numbers().batch(3).unbatch(), Batching()),
        (lambda: numbers().batch(3).flat_map(tf.data.Dataset.from_tensor_slices), Batching()),
        (lambda: numbers().map(fill).padded_batch(4), Batching(True, 4, (0,))),
        (
            lambda: numbers().map(fill).padded_batch(4, padding_values=tf.constant(-1, tf.int64)),
            Batching(True, 4, (-1,)),
        ),
        (lambda: numbers().map(fill).padded_batch(4).map(lambda x: x * 2), Batching(True, 4, ())),
        (lambda: numbers().map(fill).ragged_batch(4), Batching(True, 4)),
        (
            lambda: numbers().map(fill).bucket_by_sequence_length(lambda x: tf.shape(x)[0], [4], [2, 2]),
            Batching(True, None, (0,)),
        ),
        (lambda: tf.data.Dataset.zip(numbers().batch(3), numbers().batch(3)), Batching(True, 3)),
        (lambda: tf.data.Dataset.zip(numbers().batch(3), numbers()), Batching()),
        (lambda: numbers().map(tf.strings.as_string).padded_batch(4), Batching(True, 4, (b"",))),
    ],
)
def test_whether_elements_are_batches_is_read_from_the_graph(make, expected):
    assert batching(read_graph(make())) == expected
