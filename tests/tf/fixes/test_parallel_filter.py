"""Filters made parallel by TensorFlow's own option: the elements and their order stay."""

from __future__ import annotations

import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph.apply import apply
from xttsbench.fixes.graph.hazards import hazards
from xttsbench.pipeline.read import read_graph
from xttsbench.records.fix import FixSet


def pipeline():
    least = tf.constant(5, tf.int64)
    return tf.data.Dataset.range(40).map(lambda x: {"x": x}).filter(lambda one: one["x"] > least).batch(4)


def stages(dataset):
    iterator = iter(dataset)
    next(iterator)
    return {node.name for node in tf.data.experimental.get_model_proto(iterator).nodes.values()}


@pytest.mark.parametrize("fix", ["parallel-filter", "parallel-map:2 + parallel-filter"])
def test_filters_run_in_parallel_and_the_elements_stay(fix, yielded):
    dataset = pipeline()
    fixed = apply(dataset, fix)
    assert fixed.options().experimental_optimization.filter_parallelization
    assert yielded(fixed) == yielded(dataset)
    assert not any("ParallelFilter" in name for name in stages(dataset))
    assert any("ParallelFilter" in name for name in stages(fixed))


def test_it_is_refused_where_it_would_change_nothing():
    with pytest.raises(InvalidInputError, match="the dataset has no sequential filter"):
        apply(tf.data.Dataset.range(3).map(lambda x: x), "parallel-map + parallel-filter")
    with pytest.raises(InvalidInputError, match="asks for parallel filters already"):
        apply(apply(pipeline(), "parallel-filter"), "parallel-filter")


def test_a_variable_that_is_read_ahead_of_the_step_is_an_objection():
    least = tf.Variable(3, dtype=tf.int64)
    dataset = tf.data.Dataset.range(9).filter(lambda x: x > least)
    assert "reads a variable" in " ".join(hazards(dataset, read_graph(dataset), FixSet.parse("parallel-filter")))
    assert hazards(pipeline(), read_graph(pipeline()), FixSet.parse("parallel-filter")) == ()
