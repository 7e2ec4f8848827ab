"""Batches taken apart and put together again as one op: the same batches, and nothing for each element in between."""

from __future__ import annotations

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tf.fixes.datasets import elements, ops
from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph import apply


def numbers(count=23):
    return tf.data.Dataset.range(count).map(lambda i: {"x": tf.cast(i, tf.float32) * 0.5, "i": [i, i + 1]})


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    count=st.integers(1, 30),
    before=st.integers(1, 8),
    after=st.integers(1, 8),
    whole=st.booleans(),
    remainder=st.booleans(),
    calls=st.sampled_from([None, 2]),
)
def test_the_batches_stay_as_they_were(count, before, after, whole, remainder, calls):
    apart = numbers(count).batch(before, drop_remainder=whole).unbatch()
    original = apart.batch(after, drop_remainder=remainder, num_parallel_calls=calls)
    fixed = apply(original, "rebatch")
    assert "UnbatchDataset" not in ops(fixed)
    assert elements(fixed) == elements(original)
    assert fixed.element_spec == original.element_spec


def test_every_pair_is_one_op_and_other_batches_stay():
    original = numbers(24).batch(2).batch(2).unbatch().batch(3).unbatch().unbatch().batch(5).prefetch(1)
    fixed = apply(original, "rebatch")
    before, after = ops(original), ops(fixed)
    assert (before.count("UnbatchDataset"), after.count("UnbatchDataset")) == (3, 1)  # that of the other has no batch
    assert after.count("RebatchDatasetV2") == 2
    assert elements(fixed) == elements(original)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: numbers().batch(4), "no batch comes right after an unbatch"),
        (lambda: numbers().batch(4).unbatch(), "no batch comes right after an unbatch"),
        (lambda: numbers().batch(4).unbatch().map(lambda one: one["x"]).batch(3), "no batch comes right after"),
        (lambda: numbers().map(lambda one: tf.range(one["i"][0])).ragged_batch(2).unbatch().batch(1), "ragged"),
    ],
)
def test_where_there_is_nothing_to_cut_it_says_so(make, why):
    with pytest.raises(InvalidInputError, match=f"'rebatch' does not apply.*{why}"):
        apply(make(), "rebatch")
