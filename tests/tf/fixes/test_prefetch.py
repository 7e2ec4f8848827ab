"""Prefetches appended, and given another size."""

from __future__ import annotations

import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.cache.rewrite import cached
from xttsbench.fixes.prefetch.rewrite import last_buffer, prefetched
from xttsbench.pipeline.nodes import constant_input, dataset_nodes
from xttsbench.pipeline.read import inspect, read_graph


def numbers(**options):
    dataset = tf.data.Dataset.range(20).map(lambda x: {"x": x, "row": tf.fill([2], x)}).batch(3)
    if options:
        chosen = tf.data.Options()
        chosen.threading.private_threadpool_size = options["threads"]
        dataset = dataset.with_options(chosen)
    return dataset


def ops(graph):
    return [node.op for node in dataset_nodes(graph)]


@pytest.mark.parametrize("elements", [-1, 4])
def test_the_prefetch_comes_last_with_its_buffer(elements, yielded):
    fixed = prefetched(numbers(), elements=elements)
    last = inspect(fixed).ops[-1]
    assert (last.op, last.buffer_size) == ("PrefetchDataset", elements)
    assert yielded(fixed) == yielded(numbers())


def test_a_pipeline_that_ends_in_a_prefetch_gets_no_other():
    for dataset in (prefetched(numbers(threads=2)), numbers().prefetch(1).with_options(tf.data.Options())):
        with pytest.raises(InvalidInputError, match=r"'prefetch' does not apply: .* ends in a prefetch already"):
            prefetched(dataset)


def test_lines_of_a_file_have_a_type_that_the_node_does_not_name(tmp_path, built):
    path = tmp_path / "lines.txt"
    path.write_text("one\ntwo\n")
    dataset = tf.data.TextLineDataset(str(path))
    graph = without_flat_map(read_graph(dataset), str(path))
    assert ops(graph) == ["TextLineDataset"]
    edited = cached(graph, dataset_nodes(graph)[0].name)
    assert [line.numpy() for line in built(edited, dataset)] == [b"one", b"two"]


def without_flat_map(graph, path):
    """The reader of one file as the outer op, as a graph that nobody's Python made may have it."""
    made = tf.compat.v1.GraphDef()
    with tf.Graph().as_default() as inner:
        variant = tf.raw_ops.TextLineDataset(filenames=path, compression_type="", buffer_size=0)
        tf.raw_ops.Identity(input=variant, name="unused")
        made.CopyFrom(inner.as_graph_def())
    made.versions.CopyFrom(graph.versions)
    result = made.node.add(name="dataset", op="_Retval", input=[variant.op.name])
    result.attr["T"].type = tf.variant.as_datatype_enum
    result.attr["index"].i = 0
    return made


def sizes(graph):
    by_name = {node.name: node for node in graph.node}
    return [
        constant_input(node, "buffer_size", by_name) for node in dataset_nodes(graph) if node.op == "PrefetchDataset"
    ]


@pytest.mark.parametrize("size", [1, 2, 100, tf.data.AUTOTUNE])
def test_only_the_last_prefetch_gets_the_size(size, keeps):
    dataset = tf.data.Dataset.range(12).prefetch(7).batch(2).prefetch(size).map(lambda x: x + 1)
    graph = read_graph(dataset)
    edited, _ = keeps(dataset, last_buffer, elements=3)
    assert (sizes(graph), sizes(edited)) == ([7, size], [7, 3])
    assert [node.name for node in dataset_nodes(edited)] == [node.name for node in dataset_nodes(graph)]
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
