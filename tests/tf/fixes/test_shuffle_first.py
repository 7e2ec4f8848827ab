"""A shuffle put before the maps in front of it: the same elements in the same order, and work when it is asked for."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph.apply import apply
from xttsbench.fixes.graph.hazards import hazards
from xttsbench.fixes.patch import propose
from xttsbench.pipeline import places
from xttsbench.pipeline.nodes import dataset_nodes
from xttsbench.pipeline.read import inspect, read_graph
from xttsbench.records.fix import FixSet

pytestmark = pytest.mark.tf

SEEN: list[int] = []


def load(x):
    return np.full([2], x, np.float32)


def counting(x):
    SEEN.append(int(x))
    return load(x)


def mapped(function=load, **options):
    made = tf.data.Dataset.range(20)
    return made.map(
        lambda x: (tf.ensure_shape(tf.numpy_function(function, [x], tf.float32), [2]), {"id": x}), **options
    )


PIPELINES = {
    "each epoch": lambda: mapped().shuffle(8, seed=3).batch(3),
    "one order": lambda: mapped().shuffle(8, seed=3, reshuffle_each_iteration=False).batch(3),
    "several maps": lambda: mapped().map(lambda row, name: (row * 2, name)).shuffle(50, seed=3).batch(4).repeat(2),
    "in parallel": lambda: mapped(num_parallel_calls=2).shuffle(8, seed=3),
}


def epochs(dataset, count=3):
    return [
        [tf.nest.map_structure(lambda part: np.asarray(part).tolist(), one) for one in dataset.as_numpy_iterator()]
        for _ in range(count)
    ]


def order(dataset):
    return [node.op for node in dataset_nodes(read_graph(dataset)) if node.op != "OptionsDataset"]


@pytest.mark.parametrize("name", PIPELINES)
def test_elements_and_their_order_stay_in_every_epoch(name):
    original, fixed = PIPELINES[name](), apply(PIPELINES[name](), "shuffle-first")
    assert epochs(original) == epochs(fixed)
    assert order(fixed)[1].startswith("Shuffle")
    assert fixed.element_spec == original.element_spec


def test_the_first_element_does_not_wait_for_a_buffer_full_of_them():
    SEEN.clear()
    next(iter(apply(mapped(counting).shuffle(20, seed=1), "shuffle-first")))
    assert len(SEEN) < 5


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.data.Dataset.range(9).shuffle(3).map(lambda x: x),
        lambda: mapped().filter(lambda row, name: name["id"] > 3).shuffle(3),
        lambda: mapped().repeat(2).shuffle(3),
    ],
)
def test_it_is_refused_where_no_map_is_right_before_a_shuffle(make):
    with pytest.raises(InvalidInputError, match="right behind a map"):
        apply(make(), "shuffle-first")


@pytest.mark.parametrize(("function", "told"), [(load, ""), (counting, "calls in another order would change")])
def test_a_map_that_counts_its_calls_is_left_behind_no_shuffle(function, told):
    dataset = mapped(function).shuffle(4)
    assert told in " ".join(found := hazards(dataset, read_graph(dataset), FixSet.parse("shuffle-first")))
    assert bool(found) == bool(told)


SOURCE = """import tensorflow as tf


def make():
    numbers = tf.data.Dataset.range(30)
    rows = numbers.map(lambda x: x * 3, num_parallel_calls=2)
    rows = rows.shuffle(16, seed=4)
    return rows.batch(4)
"""


def test_the_patched_source_makes_the_same_elements(tmp_path: Path):
    def made(text):
        file.write_text(text)
        spec = importlib.util.spec_from_file_location("shuffled_target", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.make()

    file = tmp_path / "shuffled_target.py"
    end = places.install()
    try:
        original = made(SOURCE)
        fixes = FixSet.parse("shuffle-first")
        patch = propose(
            fixes, inspect(original), lambda name: Path(name).read_text(), own=lambda name: name == str(file)
        )
        assert patch.unpatched == {}
        patched = made(patch.files[str(file)])
    finally:
        end()
    assert order(patched)[1:3] == ["ShuffleDatasetV3", "ParallelMapDatasetV2"]
    assert epochs(patched, 2) == epochs(original, 2)
