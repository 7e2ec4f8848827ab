"""The identity of a pipeline: the same in another process, other for other code, and data apart from it."""

from __future__ import annotations

import json
import sys

import pytest
import tensorflow as tf

from tests.by_file import load
from xttsbench.pipeline.identity import identity
from xttsbench.pipeline.read import read_graph

pytestmark = pytest.mark.tf

TARGET = """
import numpy as np
import tensorflow as tf

TABLE = np.arange(5.0)


class Scale:
    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return np.float32(x * self.by + helper(x))


def helper(x):
    return x + TABLE[0]


def make(files=("a", "b"), batch=4, scale=2.0, add=1, seed=None, unseeded=True, kind="a"):
    variable = tf.Variable(3.0)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), -1)
    names = tf.data.Dataset.from_tensor_slices(list(files)).shuffle(4, seed=seed)
    lengths = names.map(lambda s: tf.cast(tf.strings.length(s), tf.float32) + add)
    if kind == "b":
        lengths = lengths.map(lambda x: x * 3)
    drawn = lengths.map(lambda x: x + tf.random.uniform([]) + variable)
    scaled = drawn.map(lambda x: tf.numpy_function(Scale(scale), [x], tf.float32), num_parallel_calls=2)
    looked = scaled.map(lambda x: (x, table.lookup(tf.constant("a"))))
    inner = looked.flat_map(lambda x, y: tf.data.Dataset.range(2).shuffle(2).map(lambda z: (x, z)))
    return inner.batch(batch).prefetch(2)
"""
SAY = """
import json, sys
import tensorflow as tf
sys.path.insert(0, sys.argv[1])
from identity_target import make
seed = json.loads(sys.argv[2])
if seed is not None:
    tf.keras.utils.set_random_seed(seed)
for _ in range(3):
    tf.data.Dataset.range(3).map(lambda x: tf.numpy_function(lambda y: y, [x], tf.int64))
dataset = make()
from xttsbench.pipeline.read import read_graph
from xttsbench.pipeline.identity import identity
found = identity(dataset, read_graph(dataset))
print("IDENTITY", found.model_dump_json())
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("identity")
    (folder / "identity_target.py").write_text(TARGET)
    (folder / "say.py").write_text(SAY)
    return folder


@pytest.fixture(scope="module")
def make(target):
    yield load(target / "identity_target.py", "identity_target").make
    del sys.modules["identity_target"]


def of(dataset):
    return identity(dataset, read_graph(dataset))


@pytest.mark.parametrize("seed", [7, pytest.param(None, marks=pytest.mark.slow)])
def test_the_same_in_other_processes_whatever_their_seed(forks, target, make, seed):
    tf.keras.utils.set_random_seed(1)
    here = of(make()).model_dump()
    with forks.start(target / "say.py", str(target), json.dumps(seed)) as other:
        (line,) = [one for one in other.succeed().splitlines() if one.startswith("IDENTITY")]
    assert json.loads(line.removeprefix("IDENTITY ")) == here


def test_what_is_another_pipeline(make):
    base = of(make())
    assert of(make()) == base
    for change in ({"batch": 5}, {"scale": 3.0}, {"add": 2}, {"seed": 5}, {"kind": "b"}):
        assert of(make(**change)).graph != base.graph, change
    assert of(make(seed=5)).graph != of(make(seed=6)).graph
    assert of(make(seed=5)) == of(make(seed=5))


def test_other_files_are_other_data_only(make):
    base, other = of(make()), of(make(files=("a", "c", "d")))
    assert other.graph == base.graph
    assert other.data != base.data


def test_a_changed_body_of_a_python_function():
    def of_function(function):
        return of(tf.data.Dataset.range(3).map(lambda x: tf.numpy_function(function, [x], tf.int64)))

    assert of_function(lambda y: y + 1) == of_function(lambda y: y + 1)
    assert of_function(lambda y: y + 1).graph != of_function(lambda y: y + 2).graph
    assert of_function(lambda y: y + 1).graph != of_function(lambda y: y - 1).graph


def test_what_the_run_drew_before_does_not_count():
    tf.keras.utils.set_random_seed(3)
    first = of(tf.data.Dataset.range(9).shuffle(3))
    for _ in range(20):
        tf.random.uniform([])
    assert of(tf.data.Dataset.range(9).shuffle(3)) == first
    assert of(tf.data.Dataset.range(9).shuffle(3, seed=1)) != first
