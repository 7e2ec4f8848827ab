"""Ops run by themselves: known waits, computations, ratios and sizes; and what must not be touched by it."""

from __future__ import annotations

import re
import time

import pytest
import tensorflow as tf

from xttsbench.pipeline.cut import Cut, bypassed, sequential, sequential_node
from xttsbench.pipeline.read import read_graph
from xttsbench.pipeline.stages import read_stages, sequential_run

pytestmark = pytest.mark.measured

WAIT_S = 0.004
SPIN_S = 0.002


def wait(x):
    time.sleep(WAIT_S)
    return x


def spin(x):
    end = time.thread_time() + SPIN_S
    while time.thread_time() < end:
        pass
    return x


def waiting(x):
    return tf.ensure_shape(tf.numpy_function(wait, [x], tf.int64), [])


def spinning(x):
    return tf.ensure_shape(tf.numpy_function(spin, [x], tf.int64), [])


def numbers(n=1000):
    return tf.data.Dataset.range(n)


def stages(dataset, max_s=2.0):
    return list(read_stages(read_graph(dataset), max_s=max_s).values())


def waited(stage, expected_s=WAIT_S):
    return 0.9 * expected_s <= stage.wall_s <= 6 * expected_s and stage.cpu_s < 0.9 * expected_s


def computed(stage, expected_s=SPIN_S):
    return 0.9 * expected_s <= stage.cpu_s <= 4 * expected_s and stage.wall_s >= 0.9 * expected_s


@pytest.mark.parametrize("calls", [None, 4, tf.data.AUTOTUNE])
def test_waiting_and_computing_are_told_apart_however_parallel_the_ops_are(calls):
    made = numbers().map(waiting, num_parallel_calls=calls).map(spinning, num_parallel_calls=calls).batch(8).prefetch(2)
    source, first, second, batch, prefetch = stages(made)
    assert waited(first)
    assert computed(second)
    assert max(source.wall_s, batch.wall_s / 8) < 0.5 * SPIN_S
    assert batch.consumed == {"ParallelMapDatasetV2/_7" if calls else "MapDataset/_5": 8.0}
    assert prefetch.wall_s is None
    assert prefetch.why_not == "it only hands elements on"
    assert 0 < prefetch.handed_on_s < 0.5 * SPIN_S


def test_a_shuffle_does_not_pay_for_what_fills_it():
    _, mapped, shuffled, after, _ = stages(numbers().map(waiting).shuffle(100_000).map(spinning).batch(4))
    assert waited(mapped)
    assert shuffled.wall_s < 0.5 * WAIT_S
    assert computed(after)


def test_an_interleave_costs_what_its_inner_datasets_do_whatever_runs_at_once_in_them():
    def inner(i):
        return numbers(50).map(waiting, num_parallel_calls=4).map(spinning, num_parallel_calls=2).prefetch(4)

    interleaved = stages(numbers().interleave(inner, cycle_length=4, num_parallel_calls=4).batch(8))[1]
    assert interleaved.wall_s >= 0.9 * (WAIT_S + SPIN_S)
    assert 0.9 * SPIN_S <= interleaved.cpu_s <= interleaved.wall_s


def test_a_generator_is_read():
    def generate():
        for i in range(10**6):
            yield int(wait(i))

    made = tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec((), tf.int64)).batch(4)
    assert waited(stages(made)[1])


def test_a_cache_is_neither_filled_nor_read():
    made = numbers(6).map(waiting).cache().map(spinning).batch(2)
    for _ in range(2):
        _, mapped, cached, after, _ = stages(made)
        assert waited(mapped)
        assert cached.wall_s is None
        assert computed(after)
    assert [batch.numpy().tolist() for batch in made] == [[0, 1], [2, 3], [4, 5]]


def test_ratios_sizes_and_cardinalities():
    made = numbers(64).filter(lambda x: x % 4 == 0).map(lambda x: tf.ones([10, 10])).batch(8).unbatch().repeat()
    source, kept, mapped, batched, *_, apart, repeated = stages(made)
    assert kept.consumed == {"RangeDataset/_3": pytest.approx(4.0)}
    assert (source.element_bytes, mapped.element_bytes, batched.element_bytes) == (8, 400, 3200)
    assert apart.element_bytes == 400
    assert (source.cardinality, kept.cardinality, repeated.cardinality) == (64, -2, -1)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: tf.RaggedTensor.from_row_lengths(tf.range(6), [1, 2, 3]),
        lambda x: tf.sparse.from_dense(tf.ones([4], tf.int64) * x),
        lambda x: {"a": x, "b": (tf.constant("text"), tf.ones([2]))},
        tf.data.Dataset.range,
        lambda x: tf.constant([], tf.float32),
    ],
    ids=["ragged", "sparse", "nested", "dataset", "nothing"],
)
def test_elements_of_any_structure_pass(make):
    _, mapped, shuffled = stages(numbers().map(make).shuffle(3))
    assert mapped.elements > 0
    assert shuffled.elements > 0


def test_state_is_captured_as_the_pipeline_has_it():
    variable = tf.Variable(2)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1, 2], [5, 6]), 0)
    generator = tf.random.Generator.from_seed(3)
    made = numbers().map(lambda x: (table.lookup(tf.cast(x, tf.int32) * variable), generator.uniform([])))
    assert stages(made)[1].elements > 0
    assert variable.numpy() == 2


def test_elements_that_raise_are_passed_over_as_ignore_errors_does():
    def checked(x):
        return tf.debugging.check_numerics(tf.where(x % 5 == 3, float("nan"), 1.0), "bad")

    _, mapped, kept, _ = stages(numbers().map(checked).ignore_errors().batch(4))
    assert mapped.elements > 0
    assert "InvalidArgumentError" in mapped.why_not
    assert kept.elements > 0


def test_what_lets_nothing_through_is_told_and_what_follows_has_no_figures():
    _, kept, batch = stages(numbers(10**9).filter(lambda x: x < 0).batch(4))
    assert re.fullmatch(r"none of \d+ elements passed", kept.why_not)
    assert batch.wall_s is None
    assert "no elements to run it on" in batch.why_not


def test_an_element_longer_than_the_time_limit_is_waited_for_once_or_twice():
    made = numbers().map(
        lambda x: tf.ensure_shape(tf.numpy_function(lambda v: (time.sleep(1), v)[1], [x], tf.int64), [])
    )
    began = time.perf_counter()
    mapped = stages(made, max_s=0.3)[1]
    assert time.perf_counter() - began < 8
    assert mapped.wall_s == pytest.approx(1, rel=0.5)


def test_large_data_in_memory_is_handed_over():
    made = tf.data.Dataset.from_tensor_slices(tf.ones([4000, 200])).map(lambda x: x * 2)
    assert stages(made)[1].element_bytes == 800


def test_the_whole_run_sequentially_takes_the_sum():
    made = numbers().map(waiting, num_parallel_calls=8).map(spinning, num_parallel_calls=8).batch(4).prefetch(2)
    batch_s, count = sequential_run(read_graph(made), max_s=0.5)
    assert 0.9 * 4 * (WAIT_S + SPIN_S) <= batch_s <= 6 * 4 * (WAIT_S + SPIN_S)
    assert count >= 1


def test_a_sequential_graph_yields_the_same_elements():
    made = (
        numbers(20)
        .interleave(lambda i: numbers(3).map(lambda x: x + i, num_parallel_calls=2).prefetch(1), cycle_length=2)
        .map(lambda x: x * 2, num_parallel_calls=4)
        .filter(lambda x: x > 4)
        .batch(3, num_parallel_calls=2)
    )
    edited = sequential(read_graph(made))
    assert not [n.op for n in edited.node if "Parallel" in n.op]
    assert not [n.op for f in edited.library.function for n in f.node_def if n.op.startswith(("Parallel", "Prefetch"))]
    cut = Cut(edited)
    found = [
        x.numpy().tolist() for x in tf.data.experimental.from_variant(cut.variant(cut.names[-1]), made.element_spec)
    ]
    assert found == [x.numpy().tolist() for x in made]


def test_bypassing_takes_ops_out():
    graph = bypassed(read_graph(numbers(9).shuffle(5).cache().batch(2)), re.compile("Cache|Shuffle"))
    assert [name.split("/")[0] for name in Cut(graph).names] == ["RangeDataset", "BatchDatasetV2"]


def test_a_node_that_is_sequential_already_stays():
    node = next(n for n in read_graph(numbers().map(lambda x: x)).node if n.op == "MapDataset")
    before = node.SerializeToString(deterministic=True)
    sequential_node(node)
    assert node.SerializeToString(deterministic=True) == before


def test_a_first_call_that_imports_or_compiles_is_no_cost_of_an_element():
    begun = []

    def load(x):
        if not begun:
            begun.append(time.sleep(1.0))
        return wait(x)

    def late(x):
        return tf.ensure_shape(tf.numpy_function(load, [x], tf.int64), [])

    source, mapped, batch = stages(numbers().map(late).batch(8), max_s=0.6)
    assert waited(mapped)
    assert 0.9 <= mapped.start_up_s <= 2
    assert batch.priced
    assert (source.start_up_s, batch.start_up_s) == (0.0, 0.0)
    always = stages(numbers().map(lambda x: tf.numpy_function(lambda y: (time.sleep(0.4), y)[1], [x], tf.int64)), 0.3)
    assert always[1].wall_s >= 0.4
    assert always[1].start_up_s == 0.0
