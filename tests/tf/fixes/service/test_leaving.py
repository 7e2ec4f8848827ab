"""What can leave a pipeline, and what keeps the rest, of real datasets."""

from __future__ import annotations

import inspect as python
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.tf.fixes.service.made import doubled, in_python, numbers, table
from xttsbench.fixes.service.leaving import leaving
from xttsbench.pipeline import places
from xttsbench.pipeline.read import inspect


@pytest.fixture(autouse=True)
def lines():
    """The lines of calls are noted."""
    end = places.install()
    yield
    end()


def counted():
    yield from range(20)


def pinned_of(dataset):
    """The only pin, with the line that it names."""
    found = leaving(inspect(dataset))
    (pin,) = found.pins
    line = Path(pin.location.file).read_text().splitlines()[pin.location.line - 1]
    return found, pin, line


def test_a_pipeline_of_ops_can_leave_but_for_its_last_prefetch():
    found = leaving(inspect(numbers().shuffle(20).map(doubled).batch(4).prefetch(2)))
    assert (found.pins, found.refused, found.copied) == ((), None, ())
    assert found.after.startswith("BatchDatasetV2")
    assert {one.policy: one.once for one in found.shardings} == {
        "OFF": False,
        "DYNAMIC": True,
        "FILE": False,  # there are none
        "DATA": False,  # the shuffles of two workers differ
    }


@pytest.mark.parametrize("function", [tf.py_function, tf.numpy_function], ids=lambda one: one.__name__)
def test_a_python_function_stays_and_what_comes_before_it_leaves(function):
    found, pin, line = pinned_of(numbers().map(doubled).map(in_python(function)))
    assert "doubled, which is in this process alone" in pin.why
    assert line == python.getsource(doubled).splitlines()[0]
    assert found.after.startswith("MapDataset")
    assert found.refused is None


def test_a_generator_keeps_everything_here():
    dataset = tf.data.Dataset.from_generator(counted, output_signature=tf.TensorSpec([], tf.int64))
    found, pin, line = pinned_of(dataset.map(doubled))
    assert "generator counted" in pin.why
    assert line == "def counted():"
    assert "counted" in found.refused
    assert found.after is None


def test_a_table_travels_with_its_entries():
    found = leaving(inspect(numbers().map(table().lookup)))
    assert found.pins == ()
    assert "reads a table" in found.copied[0]


def reads_a_variable():
    variable = tf.Variable(np.int64(3))
    return numbers().map(lambda x: x + variable)


def reads_an_iterator():
    other = iter(numbers())
    return numbers().map(lambda x: x + next(other))


def draws_from_a_generator():
    generator = tf.random.Generator.from_seed(1)
    return numbers().map(lambda x: x + generator.uniform([], 0, 5, tf.int64))


KEPT = {
    reads_a_variable: "reads a variable",
    reads_an_iterator: "iterator of this process",
    draws_from_a_generator: "draw the same",
    lambda: numbers().map(lambda x: x + tf.random.uniform([], 0, 5, tf.int64)): "draw the same",
    lambda: numbers().map(lambda x: (tf.print(x), x)[1]): "prints, writes",
    lambda: numbers().map(doubled).take(3): "counts elements",
    lambda: numbers().map(doubled).enumerate(): "pairs them by their order",
}


@pytest.mark.parametrize(("build", "why"), KEPT.items())
def test_what_workers_would_do_otherwise_is_refused_with_its_line(build, why):
    found, pin, line = pinned_of(build())
    assert why in pin.why
    assert why in found.refused
    assert f":{pin.location.line}" in found.refused
    assert line


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda: numbers().map(doubled).batch(8, drop_remainder=True), "drop one of its own"),
        (lambda: numbers().map(doubled).repeat(), "without end"),
        (lambda: numbers().map(doubled).cache(), "kept by each worker"),
        (lambda: numbers().map(doubled).apply(tf.data.experimental.copy_to_device("/cpu:0")), "is not known"),
    ],
)
def test_what_stays_behind_the_costly_part_does_not_keep_that(build, why):
    found, pin, _ = pinned_of(build())
    assert why in pin.why
    assert (found.after[:3], found.refused) == ("Map", None)


def test_files_of_this_machine_are_for_workers_on_it_alone(tmp_path):
    files = [str(tmp_path / f"{number}.txt") for number in range(3)]
    for file in files:
        Path(file).write_text("one\ntwo\n")
    found, pin, _ = pinned_of(tf.data.TextLineDataset(files).map(tf.strings.length))
    assert pin.only_other_hosts
    assert "on this machine" in pin.why
    assert found.refused is None
    assert [one.policy for one in found.shardings if one.once] == ["DYNAMIC", "FILE", "DATA"]


def test_files_under_a_url_can_be_read_anywhere():
    found = leaving(
        inspect(tf.data.Dataset.from_tensor_slices(["gs://b/1", "gs://b/2"]).flat_map(tf.data.TextLineDataset))
    )
    assert found.pins == ()


def test_a_sequential_interleave_behind_a_shuffle_is_refused_and_a_parallel_one_is_not():
    files = tf.data.Dataset.from_tensor_slices(["gs://b/1", "gs://b/2"]).shuffle(2)
    found, pin, _ = pinned_of(files.interleave(tf.data.TextLineDataset))
    assert "parallel-interleave" in pin.frees
    assert found.after.startswith("Shuffle")
    assert leaving(inspect(files.interleave(tf.data.TextLineDataset, num_parallel_calls=2))).pins == ()


@pytest.mark.parametrize("captured", [True, False])
def test_data_in_memory_travel_and_their_size_is_said(captured):
    rows = np.zeros((1000, 1000), np.float32)
    dataset = numbers().map(lambda x: tf.constant(rows)[x]) if captured else tf.data.Dataset.from_tensor_slices(rows)
    found = leaving(inspect(dataset.map(tf.identity)))
    assert found.carried_bytes == pytest.approx(rows.nbytes, rel=0.01)
    assert found.copied == ("3.81 MiB of data in memory travel with the graph to each worker",)
