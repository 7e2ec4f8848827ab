"""Rows of arrays in memory gathered by index: the same elements in the same order, with the row's own steps spared."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.tf.fixes.datasets import elements, ops
from xttsbench.errors import InvalidInputError
from xttsbench.fixes.gather.rewrite import gather
from xttsbench.fixes.graph import apply
from xttsbench.fixes.graph.edit import from_graph
from xttsbench.pipeline.altered import keep_last_batch, places_of, shortened
from xttsbench.pipeline.read import read_graph

ROWS = 23
X = np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3)
Y = np.arange(ROWS, dtype=np.int32)
Slices = tf.data.Dataset.from_tensor_slices


def twice(make):
    """Two epochs of the original and of the fixed one, each made anew with the same seed."""
    found = []
    for fix in (lambda one: one, lambda one: apply(one, "gather")):
        tf.random.set_seed(7)
        dataset = fix(make())
        found.append([elements(dataset), elements(dataset)])
    return found


PIPELINES = {
    "arrays": lambda: Slices((X, Y)).shuffle(ROWS).batch(4),
    "one array": lambda: Slices(X).batch(4),
    "a dictionary": lambda: Slices({"x": X, "rest": {"y": Y, "z": (X, Y)}}).shuffle(100).batch(4),
    "strings": lambda: Slices((Y.astype(str), Y)).shuffle(ROWS).batch(4),
    "other types": lambda: Slices((Y > 3, Y.astype(np.int8), X.astype(np.float16), X.astype(np.complex64))).batch(5),
    "bfloat16": lambda: Slices(tf.cast(X, tf.bfloat16)).batch(5),
    "a buffer that is smaller than the data": lambda: Slices(X).shuffle(5).batch(4),
    "a seed": lambda: Slices(X).shuffle(ROWS, seed=3).batch(4),
    "an order that stays": lambda: Slices(X).shuffle(ROWS, seed=3, reshuffle_each_iteration=False).batch(4),
    "a remainder that is dropped": lambda: Slices((X, Y)).shuffle(ROWS).batch(4, drop_remainder=True),
    "repeated before": lambda: Slices(X).repeat(2).shuffle(50).batch(4),
    "in order, repeated": lambda: Slices((X, Y)).repeat(2).batch(4),
    "in order, cached": lambda: Slices((X, Y)).cache().prefetch(2).batch(4, drop_remainder=True).repeat(2),
    "in order, for ever": lambda: Slices((X, Y)).repeat().batch(4).take(15),
    "in order, in parallel": lambda: Slices((X, Y)).batch(4, num_parallel_calls=2),
    "repeated between": lambda: Slices(X).shuffle(ROWS).repeat(2).batch(4),
    "repeated after": lambda: Slices(X).shuffle(ROWS).batch(4).repeat(2),
    "a part": lambda: Slices((X, Y)).skip(2).take(15).shard(2, 1).shuffle(9).batch(4),
    "cached": lambda: Slices((X, Y)).cache().shuffle(ROWS).batch(4),
    "an order that is cached": lambda: Slices((X, Y)).shuffle(ROWS).cache().batch(4),
    "prefetched, with options": lambda: Slices(X).prefetch(2).with_options(tf.data.Options()).batch(4).prefetch(1),
    "a parallel batch": lambda: Slices((X, Y)).shuffle(ROWS).batch(4, num_parallel_calls=2, deterministic=True),
    "maps of batches": lambda: Slices((X, Y)).shuffle(ROWS).batch(4).map(lambda x, y: (x * 2, y)).prefetch(2),
    "batches of two sources": lambda: tf.data.Dataset.zip((Slices(X).shuffle(9).batch(4), Slices(Y).batch(4))),
    "no rows": lambda: Slices(X[:0]).shuffle(4).batch(4),
    "batches of batches": lambda: Slices(X).batch(4, drop_remainder=True).batch(2),
}


@pytest.mark.parametrize("make", PIPELINES.values(), ids=PIPELINES)
def test_two_epochs_are_the_same_to_the_last_row_and_so_is_their_order(make):
    before, after = twice(make)
    assert after == before


def test_an_order_that_is_drawn_anew_in_each_epoch_still_is():
    _, (first, second) = twice(PIPELINES["arrays"])
    assert first != second
    _, (first, second) = twice(PIPELINES["an order that stays"])
    assert first == second


@pytest.mark.parametrize("make", PIPELINES.values(), ids=PIPELINES)
def test_spec_and_names_of_the_ops_stay_and_no_slice_is_cut(make):
    original = make()
    fixed = apply(original, "gather")
    assert fixed.element_spec == original.element_spec
    assert "TensorSliceDataset" not in ops(fixed)
    graph = read_graph(original)
    assert {node.name for node in graph.node} <= {node.name for node in gather(graph).node}


def test_a_cache_that_the_original_has_filled_is_not_read():
    original = Slices((X, Y)).cache().batch(4)
    expected = elements(original)
    fixed = apply(original, "gather")
    assert elements(fixed) == expected
    assert elements(original) == expected


def rows_of(epoch):
    return [int(y) for *_, ys in epoch for y in ys]


REFUSED = {
    "a map between": (lambda: Slices(X).map(lambda x: x + 1).batch(4), "MapDataset/.* is on the way"),
    "a filter between": (lambda: Slices(Y).filter(lambda y: y > 3).batch(4), "FilterDataset/.* is on the way"),
    "padded": (lambda: Slices(X).padded_batch(4), "makes no batches"),
    "ragged": (lambda: Slices(tf.RaggedTensor.from_row_lengths(tf.range(6), [1, 2, 3])).batch(2), "yields ragged"),
    "sparse": (lambda: Slices(tf.sparse.from_dense(X)).batch(2), "yields ragged, sparse"),
    "a range": (lambda: tf.data.Dataset.range(9).batch(2), "are no slices of arrays, as RangeDataset"),
    "pairs of slices": (lambda: tf.data.Dataset.zip((Slices(X), Slices(Y))).batch(2), "as ZipDataset"),
    "no batch": (lambda: Slices(X), "makes no batches"),
}


@pytest.mark.parametrize(("make", "why"), REFUSED.values(), ids=REFUSED)
def test_what_looks_at_rows_or_has_no_plain_ones_is_refused(make, why):
    with pytest.raises(InvalidInputError, match=f"does not apply: .*{why}"):
        apply(make(), "gather")


def test_a_cache_on_disk_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="keeps the rows on disk"):
        apply(Slices(X).cache(str(tmp_path / "rows")).batch(4), "gather")


def test_arrays_that_no_graph_has_room_for_are_refused(monkeypatch):
    from xttsbench.fixes.graph import edit

    def too_large(_):
        raise tf.errors.ResourceExhaustedError(None, None, "The graph with its embedded data is larger than 2 GB.")

    monkeypatch.setattr(edit, "read_graph", too_large)
    with pytest.raises(InvalidInputError, match="its embedded data is larger than 2 GB"):
        apply(PIPELINES["arrays"](), "gather")


def test_batches_that_come_first_for_a_map_are_gathered_then():
    def make():
        return Slices((X, Y)).shuffle(ROWS).map(lambda x, y: (x * 2, y + 1)).batch(4)

    tf.random.set_seed(7)
    before = elements(make())
    tf.random.set_seed(7)
    fixed = apply(make(), "batch-first + gather")
    assert elements(fixed) == before
    assert ops(fixed) == ["RangeDataset", "ShuffleDatasetV3", "BatchDatasetV2", "MapDataset", "MapDataset"]


def gathered_by_hand():
    arrays = tf.data.Dataset.from_tensors((X, Y)).get_single_element()
    rows = tf.data.Dataset.range(ROWS).shuffle(ROWS).batch(4, drop_remainder=True)
    return rows.map(lambda rows: tf.nest.map_structure(lambda array: tf.gather(array, rows), arrays))


@pytest.mark.parametrize(
    "make",
    [
        lambda: apply(PIPELINES["a remainder that is dropped"](), "gather"),
        gathered_by_hand,
    ],
)
def test_a_last_batch_that_is_dropped_is_kept_for_the_proof_on_both_sides(make):
    graph = shortened(read_graph(make()), 10)
    assert keep_last_batch(graph)
    spec = tuple(tf.TensorSpec([None, *one.shape[1:]], one.dtype) for one in make().element_spec)
    assert sorted(rows_of(elements(from_graph(graph, spec)))) == list(range(10))


@pytest.mark.parametrize(
    "function",
    [
        lambda rows: tf.gather(X, rows) + 1,
        lambda rows: tf.gather(rows, [0, 1]),
        lambda rows: (rows, tf.gather(X, rows)),
        lambda rows: tf.gather(X, rows[:2]),
    ],
)
def test_a_map_that_does_more_than_gather_is_not_looked_through(function):
    dataset = tf.data.Dataset.range(ROWS).shuffle(ROWS).batch(4, drop_remainder=True).map(function)
    assert not keep_last_batch(read_graph(dataset))


def test_indices_that_are_one_element_are_cut_as_the_rows_are():
    original = Slices((X, Y)).batch(4)
    graphs = read_graph(original), read_graph(apply(original, "gather"))
    spec = tuple(tf.TensorSpec([None, *one.shape[1:]], one.dtype) for one in original.element_spec)
    places = places_of(graphs[0], 9)
    first, second = (elements(from_graph(shortened(graph, 9, places), spec)) for graph in graphs)
    assert first == second
    assert len(rows_of(first)) == 9
