"""Generators opened in real pipelines: the same elements, several at a time; what cannot be opened is refused."""

import functools
import random
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.tf import equality
from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph import apply
from xttsbench.fixes.graph.hazards import hazards
from xttsbench.fixes.open_generator import rewrite
from xttsbench.pipeline.read import inspect, read_graph
from xttsbench.records.fix import FixSet

SIGNATURE, NUMBER = tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.int32)


def same_elements(original, fixed):
    assert equality.same_elements(original, fixed, count=60)


def load(number):
    return np.full(number % 4, number, np.float32)


def samples(count=20):
    for number in range(count):
        yield load(number)


def of_parts():
    for number in range(12):
        rows = load(number)
        yield {"rows": rows, "label": (number, str(number))}


PARTS = {"rows": SIGNATURE, "label": (tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.string))}


def by_name(names):
    for number, name in enumerate(names):
        row = load(number + 1)
        yield {"id": name, "row": row}


def in_drawn_order():
    rng = np.random.default_rng(4)
    for epoch in range(2):
        for number in rng.permutation(8):
            yield np.tanh(load(number)) + epoch, int(number)


def generated(generator=samples, signature=SIGNATURE, **given):
    return tf.data.Dataset.from_generator(generator, output_signature=signature, **given)


PIPELINES = {
    "plain": lambda: generated().padded_batch(3),
    "repeated": lambda: generated().repeat(3).padded_batch(4),
    "shuffled behind": lambda: generated().shuffle(5, seed=1, reshuffle_each_iteration=False).padded_batch(4),
    "mapped and with options": lambda: generated().map(lambda x: x + 1).with_options(tf.data.Options()),
    "arguments": lambda: generated(args=(7,)),
    "names": lambda: generated(by_name, {"id": tf.TensorSpec([], tf.string), "row": SIGNATURE}, args=(["a", "ö"],)),
    "partial": lambda: generated(functools.partial(samples, 5)),
    "lambda": lambda: generated(lambda: samples(6)),
    "structure": lambda: generated(of_parts, PARTS),
    "types alone": lambda: tf.data.Dataset.from_generator(samples, tf.float32, [None]),
    "drawn": lambda: generated(in_drawn_order, (SIGNATURE, tf.TensorSpec([], tf.int32))).repeat(2),
    "two generators": lambda: tf.data.Dataset.zip((generated(), generated(in_drawn_order, (SIGNATURE, NUMBER)))),
}


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("fixes", ["open-generator:4", "open-generator:4 + thread-pool:4 + prefetch:2"])
def test_the_opened_pipeline_yields_the_same_in_every_epoch(name, fixes):
    original, fixed = PIPELINES[name](), apply(PIPELINES[name](), fixes)
    assert fixed.element_spec == original.element_spec
    for _ in range(2):
        same_elements(original, fixed)
    ops = [op.op for op in inspect(fixed).ops]
    assert "ParallelMapDatasetV2" in ops


def test_other_fixes_find_the_generator_by_its_name():
    original = generated().padded_batch(4)
    name = next(op.name for op in inspect(original).ops if op.op == "FlatMapDataset")
    fixed = apply(original, f"cache@{name} + open-generator:2")
    same_elements(original, fixed)
    assert "ParallelMapDatasetV2" in [op.op for op in inspect(fixed).ops]


def test_bodies_that_wait_run_beside_one_another():
    def slow():
        for number in range(60):
            time.sleep(0.02)
            yield load(number)

    fixed = apply(generated(slow), "open-generator:8 + thread-pool:16")
    iterator = iter(fixed)
    next(iterator)
    began = time.perf_counter()
    for _ in range(40):
        next(iterator)
    assert time.perf_counter() - began < 0.4  # 0.8 s in turn


def spun(number):
    end = time.thread_time() + 0.005
    while time.thread_time() < end:
        pass
    return load(number)


def test_bodies_move_into_processes():
    def spinning(scale=2.0):
        more = [0, 0.5]
        for number in range(30):
            row = spun(number)
            yield row * scale + more[1], (number, {"x": [1, number]})

    signature = (SIGNATURE, (tf.TensorSpec([], tf.int64), {"x": tf.TensorSpec([2], tf.int32)}))
    original = generated(spinning, signature)
    fixed = apply(original, "open-generator:2 + processes:2")
    for _ in range(2):
        same_elements(original, fixed)


def test_an_error_comes_at_its_element_and_with_its_message():
    def fails():
        for number in range(10):
            if number == 5:
                raise ValueError("the sixth is bad")
            yield load(number)

    for fixes in ("open-generator:3", "open-generator:3 + processes:1"):
        iterator = iter(apply(generated(fails), fixes))
        for number in range(5):
            np.testing.assert_array_equal(next(iterator), load(number))
        with pytest.raises(tf.errors.InvalidArgumentError, match="the sixth is bad"):
            next(iterator)


def test_what_does_not_fit_the_signature_is_refused_as_it_was():
    def wrong():
        for number in range(4):
            yield load(number).reshape(1, -1)

    with pytest.raises(tf.errors.InvalidArgumentError, match="element of shape"):
        list(apply(generated(wrong), "open-generator"))


def running():
    total = np.zeros(2, np.float32)
    for number in range(4):
        total = total * 0.9 + load(number).sum()
        yield total


def ragged():
    for number in range(8):
        yield tf.ragged.constant([[number] * (number % 3 + 1), [1]], dtype=tf.int32)


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        (lambda: generated(running), rf"running \(.*{__file__}:\d+\) cannot be opened: line \d+: 'total' is carried"),
        (lambda: generated(ragged, tf.RaggedTensorSpec([2, None], tf.int32)), "parts that are no plain tensors"),
        (lambda: tf.data.Dataset.range(3), "no generator"),
    ],
)
def test_what_cannot_be_opened_is_refused_with_the_line(dataset, why):
    with pytest.raises(InvalidInputError, match=why):
        apply(dataset(), "open-generator")


def test_items_of_epochs_that_were_given_up_are_dropped(monkeypatch):
    monkeypatch.setattr(rewrite, "_MOST_WAITING", 8)
    dataset = apply(generated(), "open-generator:2")
    for _ in range(9):
        next(iter(dataset))
    same_elements(generated(), dataset)


def over_a_generator():
    for number in (one for one in range(3)):
        yield load(number)


def test_what_shows_only_when_it_runs_is_an_error_that_says_what_to_do():
    with pytest.raises(tf.errors.UnknownError, match=r"that is a generator: .* make a list of it"):
        list(apply(generated(over_a_generator), "open-generator"))


def test_the_end_of_an_iterator_in_the_body_is_an_error_as_in_a_generator():
    def fails():
        for number in range(4):
            yield load(next(iter([])) if number == 2 else number)

    for dataset in (generated(fails), apply(generated(fails), "open-generator:2")):
        with pytest.raises(tf.errors.OpError, match="generator raised StopIteration"):
            list(dataset)


class Epochs:
    """A data set whose body reads what a callback changes."""

    def __init__(self):
        self.epoch = 0

    def on_epoch_end(self):
        self.epoch += 1

    def samples(self):
        for number in range(6):
            yield load(number) + self.epoch

    def counts(self):
        for number in range(6):
            yield load(number)
        self.epoch += 1


class Shuffled(tf.keras.utils.PyDataset):
    """A ``PyDataset`` whose order is changed by a method that Keras calls between epochs, and its generator, too."""

    def __init__(self):
        super().__init__()
        self.order = list(range(6))

    def __getitem__(self, index):
        return load(self.order[index])

    def on_epoch_end(self):
        random.shuffle(self.order)

    def samples(self):
        for index in range(6):
            yield self[index]

    def for_ever(self):
        while True:
            for index in range(6):
                yield self[index]
            self.on_epoch_end()


ORDER = list(range(6))


def shuffles_what_it_reads():
    random.shuffle(ORDER)
    for index in range(6):
        yield load(ORDER[index])


def again():
    while True:
        for number in np.random.permutation(6):
            yield load(number)


@pytest.mark.parametrize(
    ("make", "fixes", "told"),
    [
        (lambda: generated(Epochs().samples), "", "on_epoch_end"),
        (lambda: generated(Epochs().samples), " + processes:2", "each process would have a copy of its own"),
        (lambda: generated(Shuffled().samples), "", ""),
        (lambda: generated(Shuffled().samples).repeat(), "", "find something else"),
        (lambda: generated(Shuffled().for_ever), "", "find something else"),
        (lambda: generated(shuffles_what_it_reads), "", "find something else"),
        (lambda: generated(Epochs().counts), "", "has run ahead: counts"),
        (lambda: generated(again).take(8), "", "may end an epoch of it early, and it has run ahead then: again"),
        (lambda: generated(again), "", ""),
        (lambda: generated().apply(tf.data.Dataset.ignore_errors), "", "passes over errors"),
        (generated, " + processes:2", ""),
    ],
)
def test_hazards(make, fixes, told):
    dataset = make()
    found = hazards(dataset, read_graph(dataset), FixSet.parse(f"open-generator:2{fixes}"))
    assert bool(found) == bool(told)
    assert told in " ".join(found)
