"""Generators in processes of their own: the same elements, ahead, whatever happens to either side."""

import itertools
import os
import random
import signal
import time

import keras
import numpy as np
import psutil
import pytest
import tensorflow as tf
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph import apply
from xttsbench.fixes.graph.hazards import hazards
from xttsbench.fixes.open_generator.rewrite import ends_of_epochs
from xttsbench.pipeline.read import inspect, read_graph
from xttsbench.records.fix import FixSet

SIGNATURE = (tf.TensorSpec([3], tf.float32), {"id": tf.TensorSpec([], tf.int64), "text": tf.TensorSpec([], tf.string)})


class Walk:
    """A generator that cannot be opened: each element builds on the one before."""

    def __init__(self):
        self.rng = np.random.default_rng(7)

    def __call__(self):
        place = np.zeros(3)
        for number in range(50):
            place = place + self.rng.normal(size=3) + random.random() + np.random.rand()
            yield place.astype("float32"), {"id": number, "text": f"{number} ö"}


def generated(generator, signature=SIGNATURE, **given):
    return tf.data.Dataset.from_generator(generator, output_signature=signature, **given)


def elements(dataset, count=None):
    return [tf.nest.map_structure(lambda one: one.numpy(), one) for one in itertools.islice(dataset, count)]


def numbers(count=100_000):
    number = 0
    while number < count:
        number = number * 1 + 1
        yield number


def test_elements_and_what_is_drawn_are_the_same_in_every_epoch():
    runs = []
    for fixes in ("", "run-ahead:4"):
        random.seed(3)
        np.random.seed(3)
        dataset = generated(Walk()).repeat(2)
        dataset = apply(dataset, fixes) if fixes else dataset
        runs.append(elements(dataset))
    assert len(runs[0]) == 100
    tf.nest.map_structure(np.testing.assert_array_equal, runs[0], runs[1])


def test_arguments_and_early_stops():
    dataset = apply(generated(numbers, tf.TensorSpec([], tf.int64), args=(7,)), "run-ahead:2")
    assert elements(dataset) == list(range(1, 8))
    for _ in range(5):
        assert elements(dataset, 3) == [1, 2, 3]


def fails():
    yield from range(20)
    raise ValueError("nothing after twenty")


def test_an_error_comes_after_the_elements_before_it():
    iterator = iter(apply(generated(fails, tf.TensorSpec([], tf.int64)), "run-ahead"))
    assert [next(iterator).numpy() for _ in range(20)] == list(range(20))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"nothing after twenty(.|\n)*in fails"):
        next(iterator)


def dies():
    yield 1
    os.kill(os.getpid(), signal.SIGKILL)
    yield 2


def test_a_process_that_dies_is_an_error_and_no_second_attempt():
    with pytest.raises(tf.errors.UnknownError, match=r"SIGKILL"):
        elements(apply(generated(dies, tf.TensorSpec([], tf.int64)), "run-ahead"))


def test_what_does_not_fit_the_signature_is_refused_as_it_was():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"did not match the expected structure|shape"):
        elements(apply(generated(numbers), "run-ahead"), 1)


def test_it_is_refused_what_another_process_cannot_have():
    file = open(__file__)  # noqa: SIM115 - held by the generator

    def lines():
        yield from file

    with pytest.raises(InvalidInputError, match=r"lines \(.*\) cannot run in another process: its variable 'file'"):
        apply(generated(lines, tf.TensorSpec([], tf.string)), "run-ahead")
    file.close()


class Told:
    """A generator that writes what others read."""

    def __init__(self):
        self.position = 0

    def __call__(self):
        for number in range(4):
            self.position = number
            yield number


class Rows(keras.utils.PyDataset):
    """Batches in an order that Keras has shuffled between epochs, here and not in another process."""

    def __init__(self):
        super().__init__()
        self.order = np.arange(4)
        self.on_epoch_end()  # as many do

    def __len__(self):
        return len(self.order)

    def __getitem__(self, index):
        return np.full(3, self.order[index], np.int64)

    def on_epoch_end(self):
        np.random.shuffle(self.order)


def test_hazards():
    one = tf.TensorSpec([], tf.int64)
    for generator, signature, told in ((Told(), one, "position"), (Walk(), SIGNATURE, "")):
        dataset = generated(generator, signature)
        found = hazards(dataset, read_graph(dataset), FixSet.parse("run-ahead"))
        assert bool(found) == bool(told)
        assert told in " ".join(found)


def test_what_keras_changes_between_epochs_is_seen_here_and_not_elsewhere():
    def told(dataset, fix):
        return " ".join(hazards(dataset, read_graph(dataset), FixSet.parse(fix)))

    dataset = PyDatasetAdapter(Rows()).get_tf_dataset()
    assert told(dataset, "open-generator:2") == ""
    for fix in ("run-ahead", f"cache@{[op.name for op in inspect(dataset).ops][-1]}"):
        assert "on_epoch_end" in told(dataset, fix)
    assert "on_epoch_end" in told(dataset.repeat(), "open-generator:2"), "the next epoch begins before this one ends"


@pytest.mark.parametrize("fixes", ["open-generator:2", "open-generator:2 + processes:2"])
def test_a_py_dataset_keeps_the_order_of_each_epoch(fixes):
    epochs = []
    for fix in ("", fixes):
        np.random.seed(5)
        dataset = PyDatasetAdapter(Rows()).get_tf_dataset()
        fixed = apply(dataset, fix) if fix else dataset
        (end,) = ends_of_epochs(read_graph(dataset))
        epochs.append([])
        for _ in range(3):
            epochs[-1].append([int(batch.numpy()[0]) for (batch,) in fixed])
            end()
    assert epochs[0] == epochs[1]
    assert len({tuple(epoch) for epoch in epochs[0]}) > 1


def test_it_works_on_while_nobody_asks_and_no_further_than_it_may(tmp_path):
    made = tmp_path / "made"

    def working():
        for number in range(200):
            with made.open("ab") as file:
                file.write(b".")
            yield number

    iterator = iter(apply(generated(working, tf.TensorSpec([], tf.int64)), "run-ahead:20"))
    next(iterator)
    until = time.monotonic() + 30
    while made.stat().st_size < 20 and time.monotonic() < until:  # 10 wait here, which alone would be 12 with this one
        time.sleep(0.01)
    time.sleep(0.2)
    assert 20 <= made.stat().st_size <= 34  # 10 in its process, 10 on their way, 10 here


LIVES_ON = """
import time
import tensorflow as tf
from xttsbench.fixes.graph import apply

def numbers():
    number = 0
    while True:
        number = number + 1
        yield number

dataset = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([], tf.int64))
iterator = iter(apply(dataset, "run-ahead"))
next(iterator)
print("ready", flush=True)
time.sleep(60)
"""


def test_the_process_ends_with_its_parent_however_that_dies(forks, tmp_path):
    script = tmp_path / "reads.py"
    script.write_text(LIVES_ON)
    with open(os.devnull, "w") as nothing, forks.start(script, errors=nothing.fileno()) as process:
        assert process.stdout.readline() == "ready\n"
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        gone, alive = psutil.wait_procs(children, timeout=2)
        assert not alive
        assert gone
