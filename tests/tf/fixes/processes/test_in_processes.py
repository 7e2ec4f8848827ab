"""Python functions in a pool of processes: the same elements, errors that say what happened, and nothing left over."""

from __future__ import annotations

import collections
import functools
import gc
import os
import random
import signal
import threading
import time

import numpy as np
import psutil
import pytest
import tensorflow as tf

from tests.tf.equality import same_elements
from xttsbench.errors import InvalidInputError
from xttsbench.fixes.pool.packing import packed
from xttsbench.fixes.processes.rewrite import in_processes, why_immovable
from xttsbench.pipeline.read import inspect
from xttsbench.records.pipeline import Pipeline, PythonFunction

OFFSET = 7
Pair = collections.namedtuple("Pair", ["first", "second"])


def numbers(count=12):
    return tf.data.Dataset.range(count)


def mapped(function, *, calls=None, count=12, out=tf.int64):
    return numbers(count).map(lambda i: tf.numpy_function(function, [i], out), num_parallel_calls=calls)


def scaled(value):
    return value * 3 + OFFSET


@functools.lru_cache(maxsize=4)
def table(size):
    return np.arange(size)


def looked_up(value):
    return table(100)[value]


def large(value):
    return np.full(300_000 + 10_000 * (value % 3), value, np.float32)


def text(value):
    return [b"a\x00\x00" * int(value), np.array([b"", b"b\x00", str(value).encode()], object)]


def pair(value):
    return Pair(value, -value)


def closure(factor):
    def times(value):
        return value * factor

    return times


class Loader:
    def __init__(self, step):
        self.step = step

    def load(self, value):
        return value + self.step

    def __call__(self, value):
        return value - self.step

    @functools.cached_property
    def squares(self):
        return np.arange(100) ** self.step

    def square(self, value):
        return self.squares[value]


def nested(value):
    inner = tf.data.Dataset.range(value)
    return inner.map(lambda i: tf.numpy_function(scaled, [i], tf.int64))


def eager(value):
    return tf.py_function(lambda x: tf.repeat(x + 1, 3), [value], tf.int64)


def written_inside(value):
    def halved(x):  # AutoGraph converts what is written inside
        if x.numpy() % 2 == 0:
            return x.numpy() / 2
        return float(x.numpy())

    return tf.py_function(halved, [value], tf.float64)


def ragged(value):
    rows = tf.RaggedTensor.from_row_lengths(tf.range(value), [value])
    return tf.py_function(lambda r: r.to_tensor(), [rows], tf.TensorSpec(None, tf.int64))


NUMPY = {
    "global": lambda: mapped(scaled),
    "parallel": lambda: mapped(scaled, calls=3, count=60).batch(7).prefetch(2),
    "lambda": lambda: mapped(lambda i: i**2),
    "closure": lambda: mapped(closure(5)),
    "partial": lambda: mapped(functools.partial(np.add, 4)),
    "method": lambda: mapped(Loader(2).load),
    "cached_property": lambda: mapped(Loader(2).square),
    "object": lambda: mapped(Loader(2)),
    "lru_cache": lambda: mapped(looked_up),
    "large": lambda: mapped(large, out=tf.float32),
    "large_argument": lambda: mapped(large, out=tf.float32).map(
        lambda x: tf.numpy_function(lambda a: a.sum(), [x], tf.float32)
    ),
    "text": lambda: mapped(text, out=[tf.string, tf.string]),
    "named_tuple": lambda: mapped(pair, out=[tf.int64, tf.int64]),
    "inside_interleave": lambda: numbers(6).interleave(nested, cycle_length=3),
    "two_functions": lambda: mapped(scaled).filter(lambda i: tf.numpy_function(lambda v: v % 2 == 0, [i], tf.bool)),
}


@pytest.mark.parametrize("name", NUMPY)
def test_the_same_elements_in_the_same_order(name):
    dataset = NUMPY[name]()
    pooled = in_processes(dataset, 2)
    assert pooled.element_spec == dataset.element_spec
    assert same_elements(dataset, pooled, count=60) is True


def test_functions_of_tensors():
    dataset = numbers(6).map(lambda i: (eager(i), written_inside(i), ragged(i)))
    assert same_elements(dataset, in_processes(dataset, 1), count=60) is True


def test_a_mapped_file_is_mapped_and_not_copied(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(3_000_000.0).reshape(12, -1))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")

    def row(value):
        return rows[value]

    dataset = mapped(row, out=tf.float64)
    assert same_elements(dataset, in_processes(dataset, 2), count=12) is True
    assert len(packed([row])) < 10_000


def test_calls_run_in_other_processes_and_the_original_dataset_stays_in_this_one():
    dataset = mapped(lambda _: os.getpid(), calls=4, count=40)
    pooled = in_processes(dataset, 2)
    theirs = set(pooled.as_numpy_iterator())
    assert os.getpid() not in theirs
    assert len(theirs) <= 2
    assert set(dataset.as_numpy_iterator()) == {os.getpid()}
    assert theirs == set(pooled.as_numpy_iterator()) or len(theirs | set(pooled.as_numpy_iterator())) <= 2


def test_two_calls_wait_at_the_same_time(tmp_path):
    """Each call waits for the other's file, so one process for both would never come to an end."""

    def meet(value):
        (tmp_path / str(value)).touch()
        for _ in range(6000):
            if (tmp_path / str(1 - value)).exists():
                return value
            time.sleep(0.01)
        raise TimeoutError("the other call does not run")

    assert list(in_processes(mapped(meet, calls=2, count=2), 2).as_numpy_iterator()) == [0, 1]


def test_what_a_function_keeps_between_calls_is_kept_in_each_process():
    calls = []

    def count(value):
        calls.append(value)
        return len(calls)

    dataset = mapped(count, calls=1)
    pooled = list(in_processes(dataset, 2).as_numpy_iterator())
    assert calls == []  # it is the copies that count
    alone = list(dataset.as_numpy_iterator())
    assert alone == list(range(1, 13))
    assert pooled != alone  # which whoever accepts this fix must see
    assert sum(pooled) < sum(alone)


def test_random_numbers_of_two_processes_are_not_the_same():
    generator, old, python = np.random.default_rng(1), np.random.RandomState(1), random.Random(1)

    def draw(value):
        time.sleep(0.05)  # long enough for both processes to take part
        return np.array([np.random.random(), random.random(), generator.random(), old.random_sample(), python.random()])

    drawn = np.stack(list(in_processes(mapped(draw, calls=2, count=16, out=tf.float64), 2).as_numpy_iterator()))
    for column in drawn.T:
        assert len(set(column.tolist())) == 16


def test_an_exception_comes_back_as_it_was_with_its_traceback():
    def refuse(value):
        if value == 3:
            raise ValueError(f"no {value} please")
        return value

    pooled = in_processes(mapped(refuse), 2)
    with pytest.raises(tf.errors.InvalidArgumentError) as error:  # what TensorFlow makes of a ValueError
        list(pooled)
    assert "ValueError: no 3 please" in str(error.value)
    assert "in refuse" in str(error.value)  # a line of the traceback there
    assert list(pooled.take(3).as_numpy_iterator()) == [0, 1, 2]  # the processes are still there


def test_the_end_of_an_iterator_and_an_error_of_the_system_are_not_taken_for_a_death():
    def missing(value):
        with open(f"/nowhere/{value}", encoding="utf-8") as file:
            return file.read()

    pooled = in_processes(mapped(missing), 1)
    before = children()
    for _ in range(3):
        with pytest.raises(tf.errors.OpError, match=r"FileNotFoundError.*nowhere/0"):
            next(iter(pooled))
    assert children() == before


def children():
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_a_process_that_is_killed_once_is_replaced(tmp_path):
    marker = tmp_path / "killed"

    def die_once(value):
        if value == 5 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    pooled = in_processes(mapped(die_once, calls=2), 2)
    assert list(pooled.as_numpy_iterator()) == list(range(12))
    assert marker.exists()


@pytest.mark.parametrize(
    ("end", "said"),
    [(lambda: os.kill(os.getpid(), signal.SIGSEGV), "SIGSEGV"), (lambda: os._exit(3), "exit code 3")],
    ids=["signal", "exit"],
)
def test_a_function_that_ends_its_process_is_named_with_how(end, said):
    def deadly(value):
        if value == 2:
            end()
        return value

    pooled = in_processes(mapped(deadly), 1)
    with pytest.raises(tf.errors.OpError, match=rf"(?s)deadly \({__file__}:\d+\).*{said}.*{said}"):
        list(pooled)
    assert list(pooled.take(2).as_numpy_iterator()) == [0, 1]  # a fresh process has come


def lock_in_a_closure():
    guard = threading.Lock()

    def locked(value):
        with guard:
            return value

    return locked


def file_in_an_attribute():
    loader = Loader(1)
    loader.source = open(__file__, encoding="utf-8")  # noqa: SIM115
    return loader.load


class Slotted:
    __slots__ = ("guard",)

    def __init__(self):
        self.guard = threading.Lock()

    def load(self, value):
        return value


def lock_of_an_object_without_a_dictionary():
    return Slotted().load


def lock_beside_a_variable_that_is_not_set_yet():
    guard = threading.Lock()

    def locked(value):
        return value if guard.locked() else later

    if guard.locked():
        later = 1
    return locked


def variable_in_a_default():
    def added(value, weight=tf.Variable(2)):  # noqa: B008
        return value + weight.numpy()

    return added


def layer_in_a_list():
    layers = [tf.keras.layers.Dense(1)]

    def applied(value):
        return layers[0](value)

    return applied


def gains(gil):
    return Pipeline(python_functions=(PythonFunction(token="t", kind="numpy_function", name="f", gil=gil),))


def test_a_function_that_moves_is_seen_to_by_one_process_that_ends():
    before = children()
    assert why_immovable(mapped(scaled), gains("holds")) is None
    gc.collect()
    assert children() <= before


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lock_in_a_closure, r"locked.*its 'guard' is an object of type _thread\.lock"),
        (file_in_an_attribute, r"load.*its 'source' is an object of type _io\.TextIOWrapper"),
        (lock_of_an_object_without_a_dictionary, r"load.*cannot pickle '_thread\.lock'"),
        (lock_beside_a_variable_that_is_not_set_yet, r"locked.*its 'guard' is an object of type _thread\.lock"),
        (variable_in_a_default, r"added.*it belongs to TensorFlow in this process"),
        (layer_in_a_list, r"applied.*cannot run in another process"),
    ],
    ids=["lock", "file", "slots", "unset", "variable", "layer"],
)
def test_what_cannot_be_copied_is_named_before_anything_runs(make, said):
    function = make()
    before = children()
    with pytest.raises(InvalidInputError, match=said) as error:
        in_processes(mapped(function), 2)
    assert __file__ in str(error.value)
    assert children() == before
    assert why_immovable(mapped(function), gains("holds")) == str(error.value).rstrip(".")
    assert why_immovable(mapped(function), gains("blocks")) is None, "it would gain nothing, and is not tried"
    source = getattr(getattr(function, "__self__", None), "source", None)
    if source is not None:
        source.close()


def test_a_dataset_without_functions_to_move_is_refused():
    generated = tf.data.Dataset.from_generator(lambda: iter(range(3)), output_signature=tf.TensorSpec((), tf.int64))
    for dataset in (numbers(), generated, in_processes(mapped(scaled), 1)):
        with pytest.raises(InvalidInputError, match="no Python function in this process other than generators"):
            in_processes(dataset, 2)


def test_a_function_beside_a_generator_moves_alone():
    def generate():
        yield from range(5)

    generated = tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec((), tf.int64))
    dataset = generated.map(lambda i: tf.numpy_function(scaled, [i], tf.int64))
    pooled = in_processes(dataset, 1)
    assert list(pooled.as_numpy_iterator()) == [scaled(value) for value in range(5)]


def test_the_processes_end_with_the_dataset_and_not_before_its_iterators():
    before = children()
    iterator = iter(in_processes(mapped(scaled), 2).prefetch(1))
    gc.collect()
    assert len(children() - before) == 2
    assert [int(value) for value in iterator] == [scaled(value) for value in range(12)]
    del iterator
    gc.collect()
    assert children() <= before


def test_the_users_function_is_still_found_behind_the_new_token():
    pooled = in_processes(mapped(scaled), 1)
    (function,) = inspect(pooled).python_functions
    assert function.name == "scaled"
    assert function.location.file == __file__
