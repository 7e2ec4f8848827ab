"""Fixes by their names: in which order several are made, and what each refusal says."""

from __future__ import annotations

from pkgutil import resolve_name

import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes import graph as rewrite
from xttsbench.fixes.graph import apply
from xttsbench.fixes.parallel.rewrite import parallel_map
from xttsbench.fixes.registry import SPECS
from xttsbench.pipeline.read import inspect


def plus(x):
    return tf.numpy_function(lambda y: y + 1, [x], tf.int64)


def pipeline():
    mapped = tf.data.Dataset.range(24).map(plus).prefetch(1).map(plus, num_parallel_calls=2)
    return mapped.interleave(lambda x: tf.data.Dataset.range(x, x + 2), cycle_length=2).batch(4).prefetch(2)


def described(dataset):
    return [(op.op, op.parallelism) for op in inspect(dataset).ops]


def values(dataset):
    return [batch.numpy().tolist() for batch in dataset]


@pytest.mark.parametrize(
    "place",
    [place for spec in SPECS.values() for place in (spec.rewrite, spec.on_dataset, spec.hazards, spec.patch) if place],
)
def test_what_the_registry_names_is_there(place):
    assert callable(resolve_name(place))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "faster",
            r"no fix named 'faster'\. Use one of open-generator\[:<n>\], ",
        ),
        ("", "no fix named ''"),
        ("parallel-map + ", "no fix named ''"),
        ("parallel-map:0", "positive whole number up to 2147483647; received '0'"),
        ("parallel-map:-1", "received '-1'"),
        ("parallel-map:", "received ''"),
        ("parallel-map:2:3", "received '2:3'"),
        ("parallel-map:²", "received '²'"),
        ("prefetch:2147483648", "received '2147483648'"),
        ("thread-pool", "thread-pool:<n> needs a positive whole number"),
        ("buffer", "buffer:<n> needs"),
        ("gather:2", r"'gather' takes no number; received 'gather:2'\. Write gather\."),
        ("any-order", r"no fix named 'any-order'\. Use one of "),
        ("cache", "A fix is written cache@<op>; received 'cache'"),
        ("cache@", "A fix is written cache@<op>; received 'cache@'"),
        ("prefetch@MapDataset/_4", r"A fix is written prefetch\[:<n>\]; received"),
        ("step:graph", "one of the training step, not of the dataset"),
        ("cache-file@MapDataset/_4", "no fix named 'cache-file@MapDataset/_4'.* cache@<op>"),
        ("cache@NoDataset/_4", "cache@NoDataset/_4.* does not apply"),
        ("parallel-map + parallel-map", "'parallel-map' does not apply: the dataset has no sequential map"),
        ("prefetch:4", r"ends in a prefetch already"),
        ("thread-pool:4 + thread-pool:4", "a private pool of 4 threads already"),
    ],
)
def test_a_refusal_says_what_was_wrong_and_received(name, message):
    with pytest.raises(InvalidInputError, match=message):
        apply(pipeline(), name)


def test_several_fixes_are_made_on_one_reading_of_the_graph(monkeypatch):
    dataset, reads, made = pipeline(), [], []
    read, build = rewrite.graph_of, rewrite.from_graph
    monkeypatch.setattr(rewrite, "graph_of", lambda *args: reads.append(args) or read(*args))
    monkeypatch.setattr(rewrite, "from_graph", lambda *args, **more: made.append(args) or build(*args, **more))
    name = "parallel-map:3 + parallel-interleave:2 + buffer:6 + thread-pool:4"
    fixed = apply(dataset, name)
    assert (len(reads), len(made)) == (1, 1)
    assert described(fixed) == [
        ("RangeDataset", None),
        ("ParallelMapDatasetV2", 3),
        ("PrefetchDataset", None),
        ("ParallelMapDatasetV2", 2),
        ("ParallelInterleaveDatasetV4", 2),
        ("BatchDatasetV2", None),
        ("PrefetchDataset", None),
    ]
    assert inspect(fixed).threadpool_size == 4
    assert values(fixed) == values(fixed) == values(dataset)


def test_what_is_only_appended_is_appended_without_another_graph(monkeypatch):
    monkeypatch.setattr(rewrite, "from_graph", None)  # would raise if it were called
    dataset = tf.data.Dataset.range(9).map(plus)
    fixed = apply(dataset, "prefetch:3 + thread-pool:5")
    assert [op.op for op in inspect(fixed).ops][1:3] == ["MapDataset", "PrefetchDataset"]
    assert fixed.options().threading.private_threadpool_size == 5
    assert values(fixed) == values(dataset)


def test_a_graph_that_cannot_be_read_can_be_appended_to_and_not_edited():
    dataset = tf.data.Dataset.range(3).map(plus).apply(tf.data.experimental.copy_to_device("/cpu:0"))
    assert values(apply(dataset, "prefetch + thread-pool:2")) == [1, 2, 3]
    with pytest.raises(InvalidInputError, match="'parallel-map' does not apply: the dataset's graph cannot be read"):
        apply(dataset, "parallel-map")


def test_what_is_no_dataset_is_refused():
    with pytest.raises(InvalidInputError, match=r"needs a tf\.data\.Dataset; received list"):
        apply([1, 2], "prefetch")


def test_a_name_of_the_original_graph_holds_wherever_it_stands_among_fixes():
    calls = []

    def count(x):
        calls.append(int(x))
        return x

    dataset = tf.data.Dataset.range(6).map(lambda x: tf.numpy_function(count, [x], tf.int64)).batch(3)
    op = next(op.name for op in inspect(dataset).ops if op.op == "MapDataset")
    fixed = apply(dataset, f"parallel-map:2 + prefetch:2 + cache@{op}")
    assert [op.op for op in inspect(fixed).ops][:4] == [
        "RangeDataset",
        "ParallelMapDatasetV2",
        "CacheDatasetV2",
        "BatchDatasetV2",
    ]
    assert values(fixed) == values(fixed) == [[0, 1, 2], [3, 4, 5]]
    assert sorted(calls) == list(range(6))


def test_an_edit_that_tensorflow_refuses_is_told_in_its_first_line(monkeypatch):
    def broken(graph):
        edited = parallel_map(graph)
        next(node for node in edited.node if node.op == "ParallelMapDatasetV2").input[-1] = edited.node[-2].name
        for node in edited.node:
            if node.name.endswith("num_parallel_calls"):
                node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(-7, tf.int64))
        return edited

    monkeypatch.setattr(rewrite, "resolve_name", lambda _place: broken)
    with pytest.raises(
        InvalidInputError, match=r"TensorFlow refuses what the fix 'parallel-map' makes of the dataset: "
    ) as e:
        apply(pipeline(), "parallel-map")
    assert "\n" not in str(e.value)
    assert "function_node" not in str(e.value)
    assert str(e.value).endswith("Leave the fix out.")
