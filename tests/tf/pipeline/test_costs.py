"""Costs of real pipelines with a known slow op."""

from __future__ import annotations

import time

import pytest
import tensorflow as tf

from xttsbench.pipeline.costs import read_costs
from xttsbench.pipeline.limits import limiting_op

pytestmark = pytest.mark.tf

SLEEP_S = 0.005


def slow(x):
    time.sleep(SLEEP_S)
    return x


def call(x):
    return tf.numpy_function(slow, [x], tf.int64)


def numbers(n=1000):
    return tf.data.Dataset.range(n)


def generate():
    for i in range(1000):
        yield int(slow(i))


PIPELINES = {
    "sequential": (lambda: numbers().map(call).batch(4).prefetch(2), "MapDataset"),
    "parallel": (
        lambda: numbers().map(call, num_parallel_calls=tf.data.AUTOTUNE).batch(4).prefetch(tf.data.AUTOTUNE),
        "ParallelMapDatasetV2",
    ),
    "repeat": (lambda: numbers(6).map(call).repeat().batch(4), "MapDataset"),
    "shuffle": (lambda: numbers().map(call).shuffle(20).batch(4), "MapDataset"),
    "interleave": (
        lambda: numbers().interleave(lambda i: numbers(3).map(call), cycle_length=4, num_parallel_calls=2).batch(4),
        "ParallelInterleaveDatasetV4",
    ),
    "flat_map": (lambda: numbers().flat_map(lambda i: numbers(3).map(call)).batch(4), "FlatMapDataset"),
    "generator": (
        lambda: tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec((), tf.int64)).batch(4),
        "FlatMapDataset",
    ),
    "zip": (
        lambda: (
            tf.data.Dataset.zip((numbers().map(call), numbers().map(lambda x: x + 1))).map(lambda a, b: a + b).batch(4)
        ),
        "MapDataset",
    ),
    "cache": (lambda: numbers().map(call).batch(4).cache(), "MapDataset"),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_four_slow_elements_per_batch_cost_four_waits_at_the_op_that_waits(name):
    make, kind = PIPELINES[name]
    pipeline = read_costs(make(), batches=8, max_s=5)
    limit = limiting_op(pipeline, allowed_cpus=2)
    assert limit.op == kind
    # A wait is never shorter than asked; how much longer depends on the machine.
    assert 0.9 * 4 * SLEEP_S <= limit.cost_s <= 3 * 4 * SLEEP_S
    assert "performance model over 8 batches" in pipeline.costs_from
    others = [op.cost_s for op in pipeline.ops if op.cost_s is not None and op.name != limit.name]
    assert all(cost < limit.cost_s for cost in others)


def test_a_filter_that_drops_half_doubles_what_a_batch_needs():
    pipeline = read_costs(numbers().map(call).filter(lambda x: x % 2 == 0).batch(4), batches=6, max_s=5)
    cost_s = next(op.cost_s for op in pipeline.ops if op.op == "MapDataset")
    assert 0.9 * 8 * SLEEP_S <= cost_s <= 3 * 8 * SLEEP_S


def test_what_autotune_chose_is_read():
    pipeline = read_costs(PIPELINES["parallel"][0](), batches=20, max_s=5)
    parallel, prefetch = pipeline.ops[1], pipeline.ops[-1]
    assert parallel.parallelism == prefetch.buffer_size == -1
    assert parallel.chosen_parallelism >= 1
    assert prefetch.chosen_buffer_size >= 1
    assert parallel.elements >= 60


def test_choices_are_not_read_where_the_user_turned_autotune_off():
    options = tf.data.Options()
    options.autotune.enabled = False
    pipeline = read_costs(PIPELINES["parallel"][0]().with_options(options), batches=4, max_s=5)
    assert pipeline.ops[1].chosen_parallelism is None
    assert pipeline.ops[1].cost_s > 0


def test_an_empty_dataset_has_no_costs_and_the_reason():
    pipeline = read_costs(numbers(0).map(call), batches=4, max_s=5)
    assert all(op.cost_s is None for op in pipeline.ops)
    assert pipeline.costs_from == "no costs: the dataset is empty"


def test_an_unserialisable_dataset_has_no_costs_and_the_reason():
    pipeline = read_costs(numbers().apply(tf.data.experimental.copy_to_device("/cpu:0")), batches=2, max_s=5)
    assert pipeline.costs_from.startswith("no costs")


def test_the_time_limit_ends_the_run():
    pipeline = read_costs(PIPELINES["sequential"][0](), batches=10_000, max_s=0.2)
    assert pipeline.ops[1].elements < 1000
    assert pipeline.ops[1].cost_s > 0


def test_the_pipelines_own_error_is_not_swallowed():
    missing = tf.data.Dataset.from_tensors("does-not-exist").map(tf.io.read_file)
    with pytest.raises(tf.errors.NotFoundError):
        read_costs(missing, batches=2, max_s=5)
