"""What speaks against a fix, read from the graph and the code, whatever a run shows."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph.hazards import hazards, random_ops
from xttsbench.pipeline.nodes import dataset_nodes
from xttsbench.pipeline.read import read_graph
from xttsbench.records.fix import FixSet

SEEN = []
VARIABLE = tf.Variable(0, dtype=tf.int64)
GENERATOR = np.random.default_rng(0)


def counting(i):
    SEEN.append(i)
    return i


def drawing(i):
    return i + np.int64(np.random.rand() > 2)


def plain(i):
    return i * 2


def python(function, **how):
    return tf.data.Dataset.range(20).map(lambda i: tf.numpy_function(function, [i], tf.int64), **how)


def ask(dataset, *fixes):
    return hazards(dataset, read_graph(dataset), FixSet.parse(" + ".join(fixes)))


def node(dataset, op):
    return next(node.name for node in dataset_nodes(read_graph(dataset)) if node.op.startswith(op))


def test_state_in_python_speaks_against_what_calls_in_another_way():
    dataset = python(counting).batch(4)
    (told,) = ask(dataset, "parallel-map")
    assert told.startswith("calls that run at once would share state: counting() at test_hazards.py:")
    assert "calls append() of the captured list 'SEEN'; make the function depend" in told
    for fix in ("processes:2", "batch-first", f"cache@{node(dataset, 'MapDataset')}", "parallel-map:4 + prefetch"):
        assert len(ask(dataset, fix)) == 1, fix
    for fix in ("prefetch", "thread-pool:8", "buffer:2", "step:xla"):
        assert ask(dataset, fix) == (), fix


def test_a_fix_that_there_is_not_is_refused_and_not_passed_over():
    with pytest.raises(InvalidInputError, match="There is no fix named 'gone'"):
        ask(python(counting), "prefetch", "gone")


def calling(i):
    return counting(i)


def test_the_users_word_clears_a_function_by_its_module_or_its_file_and_no_other():
    fixes = FixSet.parse("parallel-map")
    for function in (counting, calling):
        dataset = python(function)
        graph = read_graph(dataset)
        for name in ("test_hazards.counting", f"{counting.__module__}.counting"):
            assert hazards(dataset, graph, fixes, assumed=(name,)) == (), name
        assert len(hazards(dataset, graph, fixes, assumed=("counting", "test_hazards.plain"))) == 1


def test_nothing_speaks_against_a_function_of_its_argument():
    dataset = python(plain).filter(lambda i: i > 2).batch(4)
    fixes = (
        "parallel-map",
        "processes:2",
        "batch-first",
        f"cache@{node(dataset, 'Batch')}",
        "prefetch",
    )
    assert ask(dataset, *fixes) == ()


def test_only_the_maps_that_a_fix_touches_count():
    parallel = python(counting, num_parallel_calls=2)
    assert ask(parallel, "parallel-map") == ()
    apart = python(counting).map(lambda i: i + 1).batch(2).map(lambda x: x)
    assert len(ask(apart, "batch-first")) == 1


def test_random_numbers_speak_against_a_cache_and_nothing_else():
    for dataset in (
        python(drawing),
        tf.data.Dataset.range(9).map(lambda i: i + tf.random.uniform([], 0, 9, tf.int64)),
        tf.data.Dataset.range(9).shuffle(4).batch(2).map(plain),
        tf.data.Dataset.range(9).flat_map(
            lambda i: tf.data.Dataset.range(3).map(lambda j: j + tf.random.shuffle([i])[0])
        ),
    ):
        last = dataset_nodes(read_graph(dataset))[-1].name
        (told,) = ask(dataset, f"cache@{last}")
        assert "a cache would repeat the first pass" in told
        assert ask(dataset, "parallel-map", "processes:2", "prefetch", "parallel-interleave") == ()
        assert len(random_ops(dataset, read_graph(dataset))) == 1


def test_a_cache_before_the_random_numbers_keeps_none_of_them():
    dataset = python(plain).map(lambda i: i + tf.random.uniform([], 0, 9, tf.int64)).shuffle(3)
    assert ask(dataset, f"cache@{node(dataset, 'MapDataset')}") == ()
    frozen = tf.data.Dataset.range(9).shuffle(4).cache().map(plain)
    assert ask(frozen, f"cache@{node(frozen, 'MapDataset')}") == ()  # the cache that is there has frozen it already
    moved = tf.data.Dataset.range(9).shuffle(4).repeat().map(plain)
    assert ask(moved, f"cache@{node(moved, 'MapDataset')}") == ()  # the fix has it shuffle after the cache


def test_a_captured_generator_is_state_and_random():
    dataset = python(lambda i: i + GENERATOR.integers(3))
    assert len(ask(dataset, "parallel-map")) == 1
    assert len(ask(dataset, f"cache@{node(dataset, 'MapDataset')}")) == 2


def test_state_in_tensorflow():
    def assigned(i):
        return VARIABLE.assign_add(i)

    dataset = tf.data.Dataset.range(5).map(assigned)
    told = ask(dataset, "parallel-map")
    assert any("runs AssignAddVariableOp" in one for one in told)
    following = iter(tf.data.Dataset.range(9))
    assert any(
        "IteratorGetNext" in one for one in ask(tf.data.Dataset.range(5).map(lambda i: next(following)), "parallel-map")
    )
    assert ask(dataset, "thread-pool:2") == ()


def test_running_ahead_of_a_step_that_writes_what_the_dataset_reads():
    dataset = tf.data.Dataset.range(5).map(lambda i: i + VARIABLE)
    for fix in ("prefetch", "parallel-map", "buffer:4"):
        assert any("reads of a variable" in one for one in ask(dataset, fix)), fix
    assert ask(dataset, "thread-pool:4") == ()


def test_generators():
    taken = iter(range(100))
    shared = tf.data.Dataset.from_generator(
        lambda: (next(taken) for _ in range(3)), output_signature=tf.TensorSpec([], tf.int64)
    )
    assert len(ask(shared, f"cache@{node(shared, 'FlatMap')}")) == 1
    assert ask(shared, "parallel-map", "processes:2") == ()
    own = tf.data.Dataset.from_generator(lambda: iter(range(3)), output_signature=tf.TensorSpec([], tf.int64))
    assert ask(own, f"cache@{node(own, 'FlatMap')}", "parallel-interleave") == ()


def test_functions_inside_functions_that_autograph_has_rewritten():
    def load(i):
        def read(x):
            SEEN.append(x)
            return x

        if i > 3:
            i = i + 0
        return tf.numpy_function(read, [i], tf.int64)

    def load_plainly(i):
        def read(x):
            own = []
            own.append(x)
            return own[0]

        if i > 3:
            i = i + 0
        return tf.numpy_function(read, [i], tf.int64)

    (told,) = ask(tf.data.Dataset.range(9).map(load), "parallel-map")
    assert "read() at test_hazards.py:" in told
    assert "append() of the captured list 'SEEN'" in told
    assert ask(tf.data.Dataset.range(9).map(load_plainly), "parallel-map") == ()
