"""What a function reads and other code changes: told where it is so, and silent about what only sets things up."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.fixes.graph.hazards import hazards
from xttsbench.pipeline.python.state import python_state
from xttsbench.pipeline.read import read_graph
from xttsbench.records.fix import FixSet

pytestmark = pytest.mark.tf

SCALE = 1.0
TABLE = {"a": 1}
TABLE["b"] = 2  # as the module is imported


def set_scale(value):
    global SCALE  # noqa: PLW0603 the fault
    SCALE = value


def another_table():
    TABLE = {}  # noqa: N806 - a local of the same name
    TABLE["c"] = 3
    return TABLE


def scaled(x):
    return x * SCALE


def looked_up(x):
    return x + TABLE["a"]


class Rows:
    """Shuffles its indices between epochs, as a Keras dataset does."""

    def __init__(self, count):
        self._open(count)

    def _open(self, count):
        self.count = count
        self.indices = list(range(count))

    def on_epoch_end(self):
        self.indices = self.indices[::-1]

    def by_index(self, x):
        return self.indices[int(x)]

    def number(self, x):
        return x + self.count


class Lazy:
    """Opens what it reads with the first call."""

    def __init__(self):
        self.table = None

    def load(self, x):
        if self.table is None:
            self.open()
        return self.table[int(x)]

    def open(self):
        self.table = list(range(100))


def test_a_global_that_another_function_sets():
    assert "reads 'SCALE', which set_scale() at test_external_mutation.py" in python_state(scaled).reads


def test_a_local_of_another_function_with_the_same_name_is_not_the_same_variable():
    assert python_state(looked_up).reads is None


def test_an_attribute_that_another_method_sets():
    assert "reads 'indices', which on_epoch_end()" in python_state(Rows(9).by_index).reads


def test_what_the_constructor_and_its_helpers_set_is_no_change():
    assert python_state(Rows(9).number).reads is None


def test_what_the_function_itself_changes_is_state_and_nobody_elses():
    found = python_state(Lazy().load)
    assert found.reads is None
    assert "sets 'table'" in found.state


def test_a_captured_variable_that_a_sibling_changes():
    epoch, other = [0], [0]

    def advance():
        epoch[0] += 1

    def load(x):
        return x + epoch[0]

    assert advance is not None
    assert "reads 'epoch', which advance()" in python_state(load).reads
    assert python_state(lambda x: x + other[0]).reads is None


def test_copies_and_caches_of_it_are_objected_to():
    rows = Rows(9)
    dataset = tf.data.Dataset.range(9).map(
        lambda x: tf.numpy_function(lambda i: np.int64(rows.by_index(i)), [x], tf.int64)
    )
    graph = read_graph(dataset)
    op = next(node.name for node in graph.node if node.op == "MapDataset")
    for fix in (f"cache@{op}", "processes:2", "parallel-map"):
        found = hazards(dataset, graph, FixSet.of([fix]))
        assert found
        assert all("on_epoch_end" in one for one in found)
    assert hazards(dataset, graph, FixSet.of(["thread-pool:4"])) == ()
    above = next(node.name for node in graph.node if node.op == "RangeDataset")
    assert hazards(dataset, graph, FixSet.of([f"cache@{above}"])) == ()


def test_a_cache_that_is_never_full_keeps_nothing():
    """TensorFlow drops what was cached where the reader stops early, so that each epoch draws anew."""

    def random_rows():
        return tf.data.Dataset.range(9).map(lambda x: x + tf.random.uniform([], 0, 99, tf.int64)).cache()

    for dataset, kept in (
        (random_rows().map(lambda x: -x), True),
        (random_rows().enumerate().map(lambda _, x: -x), True),
        (random_rows().take(5).map(lambda x: -x), False),
        (tf.data.Dataset.zip((random_rows(), tf.data.Dataset.range(5))).map(lambda x, _: -x), False),
    ):
        graph = read_graph(dataset)
        last = [node.name for node in graph.node if node.op == "MapDataset"][-1]
        assert (hazards(dataset, graph, FixSet.of([f"cache@{last}"])) == ()) is kept
