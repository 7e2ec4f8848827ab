"""Generators opened in real pipelines: the same elements, several at a time; what cannot be opened is refused."""

import functools
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.tf import equality
from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph import apply
from xttsbench.fixes.graph.hazards import hazards
from xttsbench.pipeline.read import inspect, read_graph
from xttsbench.records.fix import FixSet

SIGNATURE = tf.TensorSpec([None], tf.float32)


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


def ragged():
    for number in range(8):
        yield tf.ragged.constant([[number] * (number % 3 + 1), [1]], dtype=tf.int32)


def by_name(names):
    for number, name in enumerate(names):
        row = load(number + 1)
        yield {"id": name, "row": row}


def several():
    for number in range(10):
        for row in load(number):
            yield np.array([row], np.float32)


def drawn():
    rng = np.random.default_rng(4)
    for number in rng.permutation(16):
        noise = rng.normal(size=3)
        yield np.tanh(noise).astype("float32") + load(number).sum(), int(rng.integers(5))


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
    "ragged": lambda: generated(ragged, tf.RaggedTensorSpec([2, None], tf.int32)),
    "several": lambda: generated(several),
    "drawn": lambda: generated(drawn, (tf.TensorSpec([3], tf.float32), tf.TensorSpec([], tf.int32))).repeat(2),
    "two generators": lambda: tf.data.Dataset.zip((generated(), generated(several))),
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
        for number in range(30):
            row = spun(number)
            yield row * scale, (number, {"x": [1, number]})

    signature = (SIGNATURE, (tf.TensorSpec([], tf.int64), {"x": tf.TensorSpec([2], tf.int32)}))
    original = generated(spinning, signature)
    fixed = apply(original, "open-generator:2 + processes:2")
    for _ in range(2):
        same_elements(original, fixed)


def test_bodies_that_give_several_move_into_processes():
    original = generated(several)
    same_elements(original, apply(original, "open-generator:2 + processes:2"))


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


def test_a_generator_that_cannot_be_opened_is_refused_with_the_line():
    with pytest.raises(
        InvalidInputError, match=rf"running \(.*{__file__}:\d+\) cannot be opened: .*'total' is carried"
    ):
        apply(generated(running), "open-generator")
    with pytest.raises(InvalidInputError, match="no generator"):
        apply(tf.data.Dataset.range(3), "open-generator")


class Epochs:
    """A data set whose body reads what a callback changes."""

    def __init__(self):
        self.epoch = 0

    def on_epoch_end(self):
        self.epoch += 1

    def samples(self):
        for number in range(6):
            yield load(number) + self.epoch


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: generated(Epochs().samples), "on_epoch_end"),
        (lambda: generated().apply(tf.data.Dataset.ignore_errors), "passes over errors"),
        (generated, ""),
    ],
)
def test_hazards(make, told):
    dataset = make()
    found = hazards(dataset, read_graph(dataset), FixSet.parse("open-generator:2"))
    assert bool(found) == bool(told)
    assert told in " ".join(found)
