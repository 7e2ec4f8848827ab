"""Real functions in real pipelines: counted, timed, and put in their class."""

from __future__ import annotations

import hashlib
import itertools
import time
import types

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.pipeline import python_functions
from xttsbench.pipeline.python_functions import classify
from xttsbench.pipeline.read import inspect

pytestmark = pytest.mark.measured

LARGE = bytes(16_000_000)


def waits(x):
    time.sleep(0.01)
    return x


def holds(x):
    total = 0
    for i in range(250_000):
        total += i
    return x


def releases(x):
    hashlib.sha256(LARGE).digest()
    return x


def matmul(x):
    big = np.ones((350, 350), np.float32)
    for _ in range(3):
        big @ big
    return x


def mapped(function, make=tf.numpy_function, **options):
    return tf.data.Dataset.range(200).map(lambda x: make(function, [x], tf.int64), **options).batch(2)


@pytest.mark.parametrize(("answers", "expected"), [(["blocks", "holds"], "holds"), (["blocks"] * 3, "unknown")])
def test_what_computed_in_the_run_does_not_wait_whatever_an_experiment_among_neighbours_says(
    answers, expected, monkeypatch
):
    left = [*answers]
    monkeypatch.setattr(python_functions, "_majority", lambda *_: left.pop(0))
    monkeypatch.setattr(python_functions._Recorder, "computes", lambda _: True)  # as its clocks say beside nobody
    (found,) = classified(mapped(holds), batches=2)
    assert (found.gil, left) == (expected, [])


@pytest.mark.parametrize(("cpu_s", "computes"), [(0.009, True), (0.001, False)])
def test_a_call_computes_where_the_processor_s_clock_goes_on_with_the_other(cpu_s, computes, monkeypatch):
    walls, cpus = (itertools.count(0.0, step) for step in (0.01, cpu_s))
    clocks = types.SimpleNamespace(perf_counter=lambda: next(walls), thread_time=lambda: next(cpus))
    monkeypatch.setattr(python_functions, "time", clocks)
    recorder = python_functions._Recorder(kept=1)
    for _ in range(3):
        recorder.wrap(lambda x: x)(1)
    assert recorder.computes() is computes
    assert recorder.mean_s() == pytest.approx((0.01, cpu_s))


def names(count):
    yield from range(count)


def rows(count):
    for number in range(count):
        yield waits(number)


def in_two_loops(count):
    for number in range(count):
        for row in range(2):
            yield waits(number + row)


def counting(count, seen=[]):  # noqa: B006 - the state
    for number in range(count):
        seen.append(number)
        yield number


@pytest.mark.parametrize(
    ("generate", "count", "counted"),
    [
        (names, 3000, 3000),
        (names, 10**8, None),
        (rows, 3000, 3000),
        (in_two_loops, 30, 60),
        (counting, 30, None),
    ],
)
def test_the_elements_of_a_generator_are_counted_where_that_is_soon_done(generate, count, counted):
    spec = tf.TensorSpec((), tf.int64)
    (found,) = classified(tf.data.Dataset.from_generator(generate, args=(count,), output_signature=spec), batches=2)
    assert found.elements == counted
    assert (found.parts is None) == (generate in (names, counting))


class Rows(tf.keras.utils.PyDataset):
    """Four batches, whose order another method sets."""

    def __init__(self):
        super().__init__()
        self.order = [3, 1, 0, 2]

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return np.full([2], self.order[index], np.float32), np.ones([2], np.float32)


class Shuffled(Rows):
    def on_epoch_begin(self):
        self.order = self.order[::-1]


CHANGED = "which on_epoch_begin() at test_python_functions.py:"


@pytest.mark.parametrize(("kind", "told"), [(Rows, None), (Shuffled, CHANGED)])
def test_what_keras_has_changed_between_epochs_is_told_with_its_line(kind, told):
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    (found,) = classified(PyDatasetAdapter(kind()).get_tf_dataset(), batches=2)
    assert found.parts is not None, found.whole_because
    assert (found.parts.reads is None) == (told is None)
    assert told is None or told in found.parts.reads


def ops_one_by_one(item):
    total = tf.zeros([])
    for number in range(200):
        total += tf.sin(float(number)) * item
    return total


def words(item):
    found = sum(len(str(number)) for number in range(100_000))
    time.sleep(0.0002)  # which leaves the interpreter lock, and takes no time
    return found + item


@pytest.mark.parametrize(("made", "of_ops"), [(ops_one_by_one, True), (words, False)])
def test_a_generator_that_stays_whole_tells_the_line_that_takes_its_time(made, of_ops):
    def generate():
        last = 0.0
        for item in range(10_000):
            last = float(made(float(item))) + 0 * last
            yield last

    (found,) = classified(tf.data.Dataset.from_generator(generate, output_types=tf.float32).batch(16), batches=2)
    assert found.whole_because is not None
    assert found.slow_line.share > 0.6
    assert "test_python_functions.py" in found.slow_line.location.file
    assert (found.slow_line.ops_share > 0.5) == of_ops
    assert "sleep" not in found.slow_line.text


def classified(dataset, **options):
    return classify(dataset, inspect(dataset), **options).python_functions


@pytest.mark.parametrize(
    ("function", "expected"), [(waits, "blocks"), (holds, "holds"), (releases, "releases"), (matmul, "releases")]
)
def test_numpy_functions_land_in_their_class_five_times_of_five(function, expected):
    dataset = mapped(function)
    pipeline = inspect(dataset)
    found = [classify(dataset, pipeline, batches=4).python_functions[0] for _ in range(5)]
    assert [f.gil for f in found] == [expected] * 5
    assert 1.5 <= found[0].calls_per_batch <= 4  # two, and what an injected prefetch runs ahead
    assert 5e-6 < found[0].around_call_s < 1e-3


@pytest.mark.parametrize(("function", "expected"), [(waits, "blocks"), (holds, "holds"), (releases, "releases")])
def test_py_functions_in_a_parallel_map_land_in_their_class(function, expected):
    (found,) = classified(mapped(function, tf.py_function, num_parallel_calls=2))
    assert (found.kind, found.gil) == ("py_function", expected)


@pytest.mark.parametrize(("function", "expected"), [(waits, "blocks"), (holds, "holds")])
def test_generators_land_in_their_class_and_are_opened_with_their_arguments(function, expected):
    opened = []

    def generate(start):
        opened.append(int(start))
        for i in range(start, start + 6):
            yield function(i)

    dataset = tf.data.Dataset.from_generator(generate, args=(3,), output_signature=tf.TensorSpec((), tf.int64))
    (found,) = classified(dataset.repeat().batch(2))
    assert (found.kind, found.gil) == ("generator", expected)
    assert set(opened) == {3}


def test_times_are_those_of_a_call():
    (found,) = classified(mapped(waits), calls=0)
    assert found.gil == "unknown"
    assert found.call_time_s >= 0.01
    assert found.call_cpu_s < 0.5 * found.call_time_s


def test_without_the_experiment_a_function_is_called_only_by_the_pipeline():
    calls = []

    def seen(x):
        calls.append(int(x))
        return x

    dataset = tf.data.Dataset.range(6).map(lambda x: tf.numpy_function(seen, [x], tf.int64))
    (found,) = classified(dataset, batches=10, calls=0)
    assert calls == [0, 1, 2, 3, 4, 5]
    assert found.calls == 6


def test_the_experiment_is_bounded_and_uses_recorded_arguments():
    calls = []

    def seen(x):
        calls.append(int(x))
        time.sleep(0.001)
        return x

    dataset = tf.data.Dataset.range(3).map(lambda x: tf.numpy_function(seen, [x], tf.int64))
    classified(dataset, batches=10, calls=5)
    assert calls == [0, 1, 2, 0, 1, 2, 0, 1]


def test_a_function_that_fails_outside_the_pipeline_stays_unknown():
    calls = []

    def once(x):
        calls.append(x)
        if len(calls) > 4:
            raise ValueError("consumed")
        return x

    dataset = tf.data.Dataset.range(4).map(lambda x: tf.numpy_function(once, [x], tf.int64))
    (found,) = classified(dataset, batches=10)
    assert found.gil == "unknown"
    assert found.calls == 4


def test_a_pipeline_that_raises_says_so_and_still_works_afterwards():
    fail = [True]

    def broken(x):
        if fail[0]:
            raise ValueError("bad file")
        return x

    dataset = tf.data.Dataset.range(2).map(lambda x: tf.numpy_function(broken, [x], tf.int64))
    with pytest.raises(tf.errors.OpError, match="bad file"):
        classified(dataset)
    fail[0] = False
    assert [int(x) for x in dataset] == [0, 1]


def test_behind_a_full_cache_nothing_is_called_and_nothing_claimed():
    dataset = mapped(waits).take(3).cache()
    list(dataset)
    (found,) = classified(dataset)
    assert (found.calls, found.call_time_s, found.gil) == (0, None, "unknown")


def drawn(number):
    return number + np.random.uniform()


@pytest.mark.parametrize("assumed", [(), (f"{drawn.__module__}.drawn",)])
def test_what_draws_at_random_is_told_unless_it_is_assumed_to_be_pure(assumed):
    dataset = tf.data.Dataset.range(20).map(lambda number: tf.numpy_function(drawn, [number], tf.float64))
    (found,) = classify(dataset, inspect(dataset), assumed=assumed).python_functions
    assert found.random is None if assumed else "np.random.uniform" in found.random


def test_no_python_function_no_run():
    dataset = tf.data.Dataset.range(3)
    pipeline = inspect(dataset)
    assert classify(dataset, pipeline) is pipeline
