"""Costs of real pipelines with a known slow op."""

from __future__ import annotations

import time

import pytest
import tensorflow as tf

from xttsbench.pipeline.costs import read_costs
from xttsbench.throughput.threads import limiting_op

pytestmark = pytest.mark.measured

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
    pipeline = read_costs(make(), batches=8, max_s=5, stages_s=1)
    limit = limiting_op(pipeline, allowed_cpus=2)
    assert limit.op == kind
    # A wait is never shorter than asked; how much longer depends on the machine.
    assert 0.9 * 4 * SLEEP_S <= limit.cost_s <= 6 * 4 * SLEEP_S
    assert "performance model over 8 batches" in pipeline.costs_from
    others = [op.cost_s for op in pipeline.ops if op.cost_s is not None and op.name != limit.name]
    assert all(cost < limit.cost_s for cost in others)


def read(dataset, **settings):
    return read_costs(dataset, **({"batches": 8, "max_s": 3, "stages_s": 1} | settings))


def test_a_filter_that_drops_half_doubles_what_a_batch_needs():
    pipeline = read(numbers().map(call).filter(lambda x: x % 2 == 0).batch(4))
    mapped = next(op for op in pipeline.ops if op.op == "MapDataset")
    assert 0.9 * 8 * SLEEP_S <= mapped.cost_s <= 6 * 8 * SLEEP_S
    assert mapped.elements_per_batch == pytest.approx(8, rel=0.2)


def test_what_autotune_chose_is_read_from_a_run_with_the_rewrites_on():
    pipeline = read(PIPELINES["parallel"][0]())
    parallel, prefetch = pipeline.ops[1], pipeline.ops[-1]
    assert parallel.parallelism == prefetch.buffer_size == -1
    assert parallel.chosen_parallelism >= 1
    assert prefetch.chosen_buffer_size >= 1
    assert pipeline.injected_buffer_size is None
    assert pipeline.cpus >= 1


def test_a_plain_map_that_tensorflow_makes_parallel_and_the_prefetch_that_it_appends_are_seen():
    pipeline = read(numbers(10**9).map(lambda x: tf.reduce_sum(tf.ones([100, 100]) * tf.cast(x, tf.float32))).repeat())
    assert pipeline.ops[1].op == "MapDataset"
    assert pipeline.ops[1].parallelism is None
    assert pipeline.ops[1].chosen_parallelism >= 1
    assert pipeline.injected_buffer_size >= 1


def test_choices_are_not_read_where_the_user_turned_autotune_off():
    options = tf.data.Options()
    options.autotune.enabled = False
    pipeline = read(PIPELINES["parallel"][0]().with_options(options))
    assert pipeline.ops[1].chosen_parallelism is None
    assert pipeline.ops[1].cost_s > 0


def test_processor_time_sizes_and_cardinalities_are_there_whichever_reading_the_cost_is_from():
    pipeline = read(numbers().map(call).batch(4).prefetch(2))
    source, mapped, batch, prefetch = pipeline.ops
    assert [op.cardinality for op in pipeline.ops] == [1000, 1000, 250, 250]
    assert [op.element_bytes for op in pipeline.ops] == [8, 8, 32, 32]
    assert [op.elements_per_batch for op in pipeline.ops] == [4, 4, 1, 1]
    assert mapped.cpu_s < 0.9 * mapped.cost_s  # it sleeps
    assert source.cost_s < 0.5 * mapped.cost_s
    assert {op.cost_from for op in (source, mapped, batch)} <= {"model", "prefix"}
    assert prefetch.cpu_s is None  # it is stepped over
    assert "ops as measured where they run by themselves" in pipeline.costs_from


def test_an_empty_dataset_has_no_costs_and_the_reason():
    pipeline = read(numbers(0).map(call))
    assert all(op.cost_s is None for op in pipeline.ops)
    assert pipeline.costs_from.startswith("no costs: the dataset is empty")


def test_what_cannot_be_written_into_a_graph_is_left_out_and_the_rest_is_read():
    pipeline = read(numbers().map(call).batch(4).apply(tf.data.experimental.copy_to_device("/cpu:0")))
    assert pipeline.unserialisable is not None
    assert [op.op for op in pipeline.ops] == ["RangeDataset", "MapDataset", "BatchDatasetV2", "CopyToDeviceDataset"]
    assert pipeline.ops[3].inputs == (pipeline.ops[2].name,)
    assert 0.9 * 4 * SLEEP_S <= pipeline.ops[1].cost_s <= 6 * 4 * SLEEP_S
    assert "without the last ops" in pipeline.costs_from


def test_a_filter_that_lets_nothing_through_does_not_hang():
    pipeline = read(numbers(10**12).map(lambda x: x * 2).filter(lambda x: x < 0).batch(4))
    assert pipeline.costs_from.startswith("no costs: the pipeline was not run as a whole: at FilterDataset")
    assert all(op.cost_s is None for op in pipeline.ops)


def test_a_buffer_that_would_take_minutes_to_fill_is_not_waited_for():
    began = time.perf_counter()
    pipeline = read(numbers(10**9).map(call).shuffle(20_000).batch(4))
    assert time.perf_counter() - began < 30
    assert "to fill the buffer of Shuffle" in pipeline.costs_from
    assert 0.9 * 4 * SLEEP_S <= pipeline.ops[1].cost_s <= 6 * 4 * SLEEP_S
    assert pipeline.ops[1].cost_from == "prefix"


def test_an_error_after_some_batches_ends_the_reading_and_is_told():
    def checked(x):
        return tf.debugging.check_numerics(tf.where(x < 20, 1.0, float("nan")), "too far")

    pipeline = read(numbers().map(call).map(checked).batch(4))
    assert "then the pipeline raised InvalidArgumentError" in pipeline.costs_from
    assert pipeline.ops[1].cost_s > 0


def test_without_the_runs_of_single_ops_the_model_is_all_there_is():
    pipeline = read(PIPELINES["sequential"][0](), stages_s=0)
    assert {op.cost_from for op in pipeline.ops} == {"model"}
    assert pipeline.ops[1].cpu_s is None


def test_the_time_limit_ends_the_run():
    pipeline = read(PIPELINES["sequential"][0](), batches=10_000, max_s=0.2, stages_s=0)
    assert pipeline.ops[1].elements < 1000
    assert pipeline.ops[1].cost_s > 0


def test_the_pipelines_own_error_is_not_swallowed():
    missing = tf.data.Dataset.from_tensors("does-not-exist").map(tf.io.read_file)
    with pytest.raises(tf.errors.NotFoundError):
        read(missing)
