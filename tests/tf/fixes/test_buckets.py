"""Elements of similar length in one batch: the same samples, less padding; refused where samples would be lost."""

from __future__ import annotations

from collections import Counter

import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.buckets.samples import compare_apart, padding_of
from xttsbench.fixes.graph import apply
from xttsbench.pipeline.read import read_graph


def speech(count=61, **batch):
    """Texts and frames of very different lengths, with a name each."""
    lengths = tf.data.Dataset.range(count).map(lambda i: 5 + 300 * (i % 7 // 6) + i % 3)

    def clip(length):
        return {
            "frames": tf.random.stateless_normal([length, 4], [length, 1]),
            "name": tf.strings.as_string(length),
            "text": tf.fill([length // 4 + 1], length),
        }

    values = {"frames": -1.0, "name": "", "text": tf.constant(-7, tf.int64)}
    return lengths.map(clip).padded_batch(8, padding_values=values, **batch).prefetch(2)


def names(dataset):
    return Counter(name for batch in dataset.as_numpy_iterator() for name in batch["name"].tolist())


def apart(original, fixed, drawn=()):
    return compare_apart(original, fixed, padding_of(read_graph(original)), drawn=drawn, max_s=20.0)


def test_the_same_samples_come_with_less_padding():
    original = speech()
    fixed = apply(original, "buckets")
    assert names(fixed) == names(original)
    assert fixed.element_spec == original.element_spec
    assert max(len(batch["name"]) for batch in fixed) == 8
    found = apart(original, fixed)
    assert (found.same, found.samples) == (True, 61)
    before, after = found.padding_share
    assert before > 0.5
    assert after < 0.1
    widths = [batch["frames"].shape[1] for batch in fixed.as_numpy_iterator()]
    assert min(widths) < 10
    assert max(widths) > 300


def test_a_tuple_and_a_single_component_are_bucketed_too():
    pairs = tf.data.Dataset.range(20).map(lambda i: (tf.fill([1 + 20 * (i % 2)], i + 1), i)).padded_batch(4)
    assert apart(pairs, apply(pairs, "buckets")).same
    single = tf.data.Dataset.range(20).map(lambda i: tf.fill([1 + 20 * (i % 2)], i + 1)).padded_batch(4, ([None]))
    assert apart(single, apply(single, "buckets")).same


def test_samples_that_are_lost_or_changed_are_seen():
    original = speech()
    assert apart(original, speech(60)).same is False
    changed = original.map(lambda batch: batch | {"text": batch["text"] + 1})
    assert "61 of 61 are missing" in apart(original, changed).sentence
    assert apart(original, changed, drawn=["Map draws random numbers"]).same is None
    assert apart(original, original.map(lambda batch: batch["text"])).same is None


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: tf.data.Dataset.range(9).batch(2), "no op of the dataset pads"),
        (lambda: speech(drop_remainder=True), "drops a last, smaller batch"),
        (lambda: tf.data.Dataset.range(9).map(lambda i: tf.fill([3], i)).padded_batch(2), "pads no first dimension"),
        (
            lambda: tf.data.Dataset.range(9).map(lambda i: tf.fill([i], i)).padded_batch(2, [10]),
            "pads no first dimension",
        ),
    ],
)
def test_where_there_is_nothing_to_gain_or_something_to_lose_it_says_so(make, why):
    with pytest.raises(InvalidInputError, match=f"'buckets' does not apply.*{why}"):
        apply(make(), "buckets")


def test_of_an_endless_dataset_nothing_is_left_over():
    lengths = tf.data.Dataset.range(10).repeat().map(lambda i: tf.fill([1 + 20 * (i % 2)], i))
    fixed = apply(lengths.padded_batch(4, drop_remainder=True), "buckets")
    assert {batch.shape[0] for batch in fixed.take(12)} == {4}
