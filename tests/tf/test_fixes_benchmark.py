"""The versions that the benchmark of fixes measures: AUTOTUNE with default options, and the case of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.pipeline.nodes import graph_options, set_options
from xttsbench.pipeline.read import read_graph

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "fixes"))

import faulty
import processor_bound
import versions
import yielded


def ops(dataset):
    return [node.op for node in read_graph(dataset).node if node.op.endswith(("Dataset", "DatasetV2", "DatasetV4"))]


def bare():
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = 3
    options.deterministic = False
    return options


def test_autotune_makes_what_it_can_parallel_and_sets_no_option():
    files = tf.data.Dataset.range(4)
    read = files.interleave(lambda i: tf.data.Dataset.range(2).map(lambda j: i * 10 + j), cycle_length=2)
    original = read.map(lambda value: value + 1).batch(2).with_options(bare())
    found = versions.autotuned(original)
    assert [op for op in ops(found) if op != "OptionsDataset"] == [
        "RangeDataset",
        "ParallelInterleaveDatasetV4",
        "ParallelMapDatasetV2",
        "BatchDatasetV2",
        "PrefetchDataset",
    ]
    assert set_options(graph_options(read_graph(found))) == {}
    assert found.options().threading.private_threadpool_size is None
    np.testing.assert_array_equal(list(found.as_numpy_iterator()), list(original.as_numpy_iterator()))
    assert original.options().threading.private_threadpool_size == 3


def test_what_is_parallel_and_prefetched_already_stays_as_it_is():
    original = tf.data.Dataset.range(4).map(lambda value: value + 1, num_parallel_calls=7).prefetch(1)
    assert [op for op in ops(versions.autotuned(original)) if op != "OptionsDataset"] == ops(original)


def test_a_case_s_step_comes_along():
    case = faulty.chosen(["waits_before_a_real_step"])[0]
    for version in (versions.ORIGINAL, versions.AUTOTUNE):
        dataset, step = versions.make(case.target, version=version)
        step(next(iter(dataset)))
    assert isinstance(versions.make(faulty.chosen(["blocking_map"])[0].target, tuned=True), tf.data.Dataset)


@pytest.fixture
def small(monkeypatch):
    for name, value in {"IMAGES": 4, "SIDE": 64, "BATCH": 2}.items():
        monkeypatch.setattr(processor_bound, name, value)


def test_the_processor_bound_case_and_its_tuned_version_yield_the_same(small, tmp_path):
    def read(tuned):
        dataset = processor_bound.decoded_every_epoch(tuned=tuned, folder=str(tmp_path))
        return [[batch.numpy()] for batch in dataset.take(6)]

    found = yielded.same(read(False), read(True))
    assert found == {"same": True, "how": "identical", "elements": 6}
    assert len({batch[0].tobytes() for batch in read(False)}) == 2, "two batches an epoch, and no two images are alike"


def test_a_fixed_dataset_is_read_beside_the_original():
    case = faulty.chosen(["late_filter"])[0]
    original, fixed = (yielded.read(case.target, {}, fix) for fix in (None, "step:xla + parallel-map"))
    assert len(original) > 2
    assert yielded.same(original, fixed)["how"] == "identical"
