"""``open-generator`` with ``native``: a loop's items are tensors and its body ops; what must stay Python is refused."""

from __future__ import annotations

import inspect
import random

import numpy as np
import pytest
import tensorflow as tf

from tests.tf.fixes.native.test_rewrite import assert_close
from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph import apply
from xttsbench.fixes.graph.edit import from_graph
from xttsbench.fixes.native.examine import examine
from xttsbench.pipeline import read
from xttsbench.pipeline.altered import shortened
from xttsbench.pipeline.nodes import FunctionLibrary
from xttsbench.pipeline.python_functions import classify
from xttsbench.pipeline.source import lookup

pytestmark = pytest.mark.tf

WORDS = ["a", "of", "the", "with", "speech", "recorded", "in", "rooms", "and", "cars", "on", "streets"]
BOTH = (tf.TensorSpec([None, 9], tf.float32), tf.TensorSpec([], tf.string))
NUMBERS = tf.TensorSpec([None], tf.float32)
COUNT = 11


def features(audio):
    count = 1 + (len(audio) - 16) // 8
    frames = audio[np.arange(count)[:, None] * 8 + np.arange(16)]
    return np.abs(np.fft.rfft(frames * np.hanning(16), axis=1))


def row(number, scale=1.0):
    return np.arange(3 + number % 4, dtype=np.float32) * scale + number


CLIPS = [
    (np.random.default_rng(number).normal(size=50 + 7 * number).astype(np.float32), WORDS[number])
    for number in range(COUNT)
]


def generated(generator, signature, **given):
    return tf.data.Dataset.from_generator(generator, output_signature=signature, **given)


def bodies(dataset):
    """What the Python functions of a dataset are that are no part of a generator."""
    found = FunctionLibrary(read.read_graph(dataset).library.function).all_tokens()
    return [one.user for one in map(lookup, found) if one.kind != "generator"]


def assert_traced(dataset, fixes="open-generator:4 + native"):
    fixed = apply(dataset, fixes)
    assert fixed.element_spec == dataset.element_spec
    assert not bodies(fixed)
    for _ in range(2):
        assert_close(dataset, fixed)
    return fixed


@pytest.mark.parametrize("more", ["", " + thread-pool:2 + prefetch:2"])
def test_arrays_of_a_list_become_ops_and_text_is_handed_on(more):
    def samples():
        for audio, text in CLIPS:
            yield features(audio), text

    dataset = generated(samples, BOTH).repeat(2).batch(1)
    fixed = apply(dataset, f"open-generator:4 + native{more}")
    assert not bodies(fixed)
    for (one, text), (other, same) in zip(dataset, fixed, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
        assert (text == same).numpy().all()
    assert "ParallelMapDatasetV2" in [op.op for op in read.inspect(fixed).ops]


def test_structures_of_elements():
    rows = [(audio, text, number, 0.5) for number, (audio, text) in enumerate(CLIPS)]

    def samples():
        for number, (audio, text, speaker, scale) in enumerate(rows):
            yield {"mel": features(audio) * scale, "who": (speaker, text), "at": number}

    signature = {
        "mel": tf.TensorSpec([None, 9], tf.float32),
        "who": (tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.string)),
        "at": tf.TensorSpec([], tf.int64),
    }
    fixed = apply(generated(samples, signature), "open-generator:2 + native")
    assert not bodies(fixed)
    for one, other in zip(generated(samples, signature), fixed, strict=True):
        for a, b in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
            assert tf.reduce_all(abs(a - b) < 1e-4 if a.dtype == tf.float32 else a == b)


def test_truth_values():
    rows = [(number % 2 == 0, number) for number in range(9)]

    def samples():
        for is_long, at in rows:
            yield row(at) * one_long if is_long else row(at)

    assert_traced(generated(samples, NUMBERS))


one_long = np.float32(3.0)


class Data:
    def __init__(self, count):
        self.count, self.scale = count, np.float32(0.5)

    def samples(self):
        offset, window = 2.0, np.hanning(3).astype(np.float32)
        for number in range(self.count):
            yield row(number)[:3] * self.scale * window + offset


def test_what_all_items_have_in_common_is_found_by_the_ops():
    assert_traced(generated(Data(9).samples, NUMBERS))


def test_what_changes_from_epoch_to_epoch_is_handed_on_too():
    def samples():
        for epoch in range(3):
            for number in range(4):
                yield row(number) * np.float32(epoch)

    assert_traced(generated(samples, NUMBERS))


def test_the_order_that_is_drawn_stays_with_the_items():
    def samples(count):
        rng = np.random.default_rng(4)
        for number in rng.permutation(int(count)):
            yield np.tanh(row(int(number)))

    assert_traced(generated(samples, NUMBERS, args=(12,)))


def test_looking_at_items_draws_nothing_from_the_generators_of_the_process():
    def samples():
        order = list(range(9))
        random.shuffle(order)
        for number in order:
            yield row(number)

    random.seed(3)
    before = random.getstate()
    examined(generated(samples, NUMBERS))
    expected = [one.numpy() for one in generated(samples, NUMBERS)]
    random.setstate(before)
    assert len(expected) == 9


def test_one_item_after_another_where_arrays_are_handed_on():
    def samples():
        for values in ROWS:
            yield np.tanh(np.outer(values, values))

    assert_traced(generated(samples, tf.TensorSpec([None, None], tf.float32)))


ROWS = [row(number) for number in range(9)]


@pytest.mark.parametrize("items", ["numbers", "arrays"])
def test_a_part_of_the_data_is_the_same_part_of_both(items):
    values = ROWS if items == "arrays" else [3, 1, 4, 1, 5, 9, 2, 6]

    def samples():
        for value in values:
            yield np.tanh(np.atleast_1d(value) * np.float32(0.5))

    original = generated(samples, NUMBERS)
    both = (original, apply(original, "open-generator:2 + native"))
    parts = [from_graph(shortened(read.read_graph(one), 4), one.element_spec, source=one) for one in both]
    assert len(list(parts[0])) == 4
    assert_close(*parts)


def mixed(number):
    return f"{number}" if number == 5 else number


def changing():
    for number in [mixed(one) for one in range(8)]:
        yield row(len(str(number)))


def with_none():
    for number, text in [(1, None), (2, None)]:
        yield row(number) if text is None else row(0)


def sorts():
    for number in range(5):
        found = row(number)
        yield np.unique(found)


def odd_type():
    for number in range(5):
        yield np.arange(3) * 1.5 + number


REFUSED = {
    changing: "has a str for number where others have an int",
    with_none: "has a NoneType for text, which is no number, text or array",
    sorts: r"calls numpy.unique, which has no equal among TensorFlow's ops \(.*test_generators.py:\d+\)",
}


@pytest.mark.parametrize("generator", REFUSED)
def test_what_must_stay_python_is_refused_with_file_and_line(generator):
    with pytest.raises(InvalidInputError, match=REFUSED[generator]) as caught:
        apply(generated(generator, NUMBERS), "open-generator:2 + native")
    lines, first = inspect.getsourcelines(generator)
    assert any(f"test_generators.py:{first + number}" in str(caught.value) for number in range(len(lines)))
    assert generator.__name__ in str(caught.value)


def test_floats_are_not_cut_to_whole_numbers():
    with pytest.raises(InvalidInputError, match="gives float64 where int32 is expected"):
        apply(generated(odd_type, tf.TensorSpec([None], tf.int32)), "open-generator:2 + native")


def test_other_values_as_ops_are_refused(monkeypatch):
    from xttsbench.fixes.native import names

    def samples():
        for number in range(5):
            yield np.tanh(row(number))

    monkeypatch.setitem(names.UFUNCS, np.tanh, "1.001 * tnp.tanh")
    with pytest.raises(InvalidInputError, match=r"gives other values as ops: result 0 at \[\d+\] is"):
        apply(generated(samples, NUMBERS), "open-generator:2 + native")


def test_an_item_unlike_those_that_were_seen_is_an_error_that_names_it():
    items = [1, 2, 3]

    def samples():
        for number in items:
            yield row(number)

    fixed = apply(generated(samples, NUMBERS), "open-generator:2 + native")
    items[1] = "two"
    with pytest.raises(tf.errors.UnknownError, match=r"Item 1 of samples\(\) has a str for number"):
        list(fixed)


def test_an_error_of_the_body_comes_at_its_element():
    def samples():
        for number in range(40):
            found = row(number)
            if number == 30:
                raise ValueError("no sound")
            yield found

    fixed = apply(generated(samples, NUMBERS), "open-generator:2 + native")
    assert len(list(fixed.take(30))) == 30
    with pytest.raises(tf.errors.InvalidArgumentError, match="no sound"):
        list(fixed)


def test_a_generator_that_is_not_opened_stays_and_other_functions_become_ops():
    dataset = generated(changing, NUMBERS).map(lambda x: tf.numpy_function(lambda y: y * y, [x], tf.float32))
    fixed = apply(dataset, "native")
    assert (len(bodies(dataset)), len(bodies(fixed))) == (1, 0)
    fixed = apply(dataset, "open-generator:2 + native")
    assert [one.__name__ for one in bodies(fixed)] == ["changing"]
    assert_close(dataset, fixed)


def examined(dataset):
    return examine(dataset, classify(dataset, read.inspect(dataset))).python_functions


def test_a_diagnosis_prices_the_body_as_ops_and_writes_it():
    def samples():
        for audio, text in CLIPS:
            yield features(audio), text

    (found,) = examined(generated(samples, BOTH))
    native = found.native
    assert (found.kind, native.refused, native.why_no_text) == ("generator", None, None)
    assert native.call_time_s > 0
    assert [(one.value, one.dtype, one.rank) for one in native.items] == [
        ("audio", "float32", 1),
        ("text", "string", 0),
    ]
    assert "def samples_native(audio, text):\n" in native.text
    assert "tf.signal.rfft(" in native.text


def test_a_diagnosis_says_why_the_body_stays_python():
    (found,) = examined(generated(changing, NUMBERS))
    assert found.native.refused == (
        "makes elements of items that stay in Python: has a str for number where others have an int "
        f"({__file__}:{inspect.getsourcelines(changing)[1]})"
    )
