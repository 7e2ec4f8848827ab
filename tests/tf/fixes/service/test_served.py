"""Datasets of which a part runs on two workers of the tf.data service: the same samples, or a refusal with the line."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from tests.tf.fixes.service.made import doubled, in_python, numbers, table
from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph import apply
from xttsbench.fixes.graph.edit import from_graph
from xttsbench.fixes.service.rewrite import listed
from xttsbench.pipeline.altered import shortened
from xttsbench.pipeline.nodes import dataset_nodes
from xttsbench.pipeline.read import read_graph

FIX = "service:2"


def samples(dataset) -> Counter[int]:
    return Counter(int(one) for batch in dataset for one in np.ravel(batch))


def lines(folder):
    files = [folder / f"{number}.txt" for number in range(4)]
    for number, file in enumerate(files):
        file.write_text("".join(f"{number * 10 + line}\n" for line in range(10)))
    names = tf.data.Dataset.from_tensor_slices([str(file) for file in files])
    opened = names.shuffle(4).interleave(tf.data.TextLineDataset, num_parallel_calls=2)
    return opened.map(lambda line: tf.strings.to_number(line, tf.int64)).batch(8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "remote"),
    [
        (lambda _: numbers().shuffle(20).map(doubled).batch(4).prefetch(2), 1),
        (lambda _: numbers().map(doubled).map(in_python(tf.py_function)).batch(4), 1),
        (lambda _: numbers().map(table().lookup).batch(4), 1),
        (lambda _: numbers().map(doubled).batch(4).repeat(2), 1),
        (lambda _: numbers().map(doubled).cache().map(doubled), 1),
        (lambda _: tf.data.Dataset.from_tensor_slices(np.arange(20)).map(doubled).concatenate(numbers()), 1),
        (lines, 1),
    ],
)
def test_the_samples_of_each_epoch_are_those_of_one_process(build, remote, tmp_path):
    dataset = build(tmp_path)
    served = apply(dataset, FIX)
    assert [node.op for node in dataset_nodes(read_graph(served))].count("DataServiceDatasetV4") == remote
    assert served.element_spec == dataset.element_spec
    assert samples(served) == samples(dataset)
    assert samples(served) == samples(dataset)  # another epoch


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda: numbers().map(in_python(tf.py_function)), "doubled, which is in this process alone"),
        (lambda: numbers().map(doubled).take(3), "counts elements"),
        (lambda: numbers().map(lambda x: tf.RaggedTensor.from_row_lengths(tf.range(x), [x])), "plain tensors"),
    ],
)
def test_what_cannot_leave_is_refused_before_a_worker_is_started(build, why):
    with pytest.raises(InvalidInputError, match=why):
        apply(build(), FIX)


def test_what_a_cut_source_yields_is_listed_so_that_no_worker_cuts_its_share():
    pairs = tf.data.Dataset.from_tensor_slices((np.arange(100), np.arange(100.0)))
    for dataset in (numbers(10**9).map(doubled), pairs.shuffle(9, seed=1, reshuffle_each_iteration=False)):
        cut = shortened(read_graph(dataset), 12, {10**9: ((0, 6), (500, 6)), 100: ((0, 6), (50, 6))})
        graph = listed(cut)
        ops = [node.op for node in dataset_nodes(graph)]
        assert len(ops) == 2
        assert ops[0] == "TensorSliceDataset"
        both = [from_graph(one, dataset.element_spec, source=dataset) for one in (cut, graph)]
        first, second = ([tf.nest.map_structure(np.asarray, one) for one in each] for each in both)
        assert first == second
        assert len(first) == 12
