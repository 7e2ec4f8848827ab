"""The last prefetch given another size."""

from __future__ import annotations

import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.prefetch.rewrite import last_buffer
from xttsbench.pipeline.nodes import constant_input, dataset_nodes
from xttsbench.pipeline.read import read_graph


def sizes(graph):
    by_name = {node.name: node for node in graph.node}
    return [
        constant_input(node, "buffer_size", by_name) for node in dataset_nodes(graph) if node.op == "PrefetchDataset"
    ]


@pytest.mark.parametrize("size", [1, 2, 100, tf.data.AUTOTUNE])
def test_only_the_last_prefetch_gets_the_size(size, yielded, built):
    dataset = tf.data.Dataset.range(12).prefetch(7).batch(2).prefetch(size).map(lambda x: x + 1)
    graph = read_graph(dataset)
    edited = last_buffer(graph, elements=3)
    assert (sizes(graph), sizes(edited)) == ([7, size], [7, 3])
    assert [node.name for node in dataset_nodes(edited)] == [node.name for node in dataset_nodes(graph)]
    assert yielded(built(edited, dataset)) == yielded(dataset)
    with pytest.raises(
        InvalidInputError, match="'buffer:3' does not apply: the last prefetch holds 3 elements already"
    ):
        last_buffer(edited, elements=3)


def test_a_buffer_given_twice_has_the_size_given_last(built):
    dataset = tf.data.Dataset.range(12).prefetch(7)
    edited = last_buffer(last_buffer(read_graph(dataset), elements=3), elements=5)
    assert sizes(edited) == [5]
    assert len({node.name for node in edited.node}) == len(edited.node)
    assert [int(x) for x in built(edited, dataset)] == list(range(12))


def test_a_pipeline_without_a_prefetch_has_no_buffer_to_change():
    with pytest.raises(InvalidInputError, match=r"no prefetch \(prefetch:3 appends one\)"):
        last_buffer(read_graph(tf.data.Dataset.range(3)), elements=3)
