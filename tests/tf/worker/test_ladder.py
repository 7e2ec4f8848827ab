"""The kind of an arm: a step on each shape first, then the target as it is, and nothing else."""

from __future__ import annotations

import pytest
import tensorflow as tf

from xttsbench.probes.clock import EmulatedAccelerator
from xttsbench.records.trial import TrialSpec
from xttsbench.samedata.judge import compare_timed
from xttsbench.targets.load import classify
from xttsbench.worker import ladder as module
from xttsbench.worker.failure import ExhaustedError
from xttsbench.worker.ladder import one_of_each_shape, run_arm, warm_up


def spec(**changes):
    return TrialSpec(**{"trial_id": "0", "kind": "arm", "target": "t:t", "steps": 20, "window_s": 0.3} | changes)


def of_lengths(*lengths):
    """Batches of those lengths, in that order."""
    return tf.data.Dataset.from_generator(
        lambda: (tf.ones([2, length]) for length in lengths), output_signature=tf.TensorSpec([2, None])
    )


def test_every_shape_is_stepped_once_before_the_clock_starts(bench):
    @tf.function
    def step(batch):
        return tf.reduce_sum(batch)

    run_arm(spec(), classify((of_lengths(3, 4, 3, 5, 4).repeat(), step), "t"), step, bench)
    record = bench.channel.record()
    assert [segment.name for segment in record.segments] == ["warm_up", "as_is"]
    warm_up, as_is = record.segments
    assert warm_up.steps == 3
    assert sum(warm_up.columns["traces"]) >= 1
    assert as_is.warmup_steps == 1
    assert as_is.steps >= 20
    assert sum(as_is.columns["traces"]) == 0
    assert (record.anatomy, record.overhead, record.pipeline, record.batches, record.handoff_s) == (None,) * 5


def test_without_a_step_nothing_is_warmed_up(bench):
    bench.accelerator = EmulatedAccelerator([2.0])
    run_arm(spec(), classify(of_lengths(3).repeat(), "t"), None, bench)
    record = bench.channel.record()
    assert [segment.name for segment in record.segments] == ["as_is"]
    assert min(record.segments[0].columns["emulated_ns"]) >= 2_000_000


def test_behind_an_emulated_accelerator_handing_over_a_ready_batch_is_timed(bench):
    bench.accelerator = EmulatedAccelerator([2.0])
    run_arm(spec(emulated_ms=(2.0,)), classify(of_lengths(3).repeat(), "t"), None, bench)
    record = bench.channel.record()
    assert 0 < record.handoff_s < 0.1
    assert 0 < record.handoff_after_pause_s < 0.1
    assert [segment.name for segment in record.segments] == ["as_is"]


def test_the_accelerator_does_not_wait_while_the_step_warms_up(bench):
    bench.accelerator = EmulatedAccelerator([2.0])
    step = tf.reduce_sum
    run_arm(spec(), classify((of_lengths(3, 4).repeat(), step), "t"), step, bench)
    warm_up, as_is = bench.channel.record().segments
    assert sum(warm_up.columns["emulated_ns"]) == 0
    assert min(as_is.columns["emulated_ns"]) >= 2_000_000


@pytest.mark.parametrize("wrong", [None, 7])
def test_the_batches_of_a_timed_run_are_compared_by_their_digests(bench, wrong):
    found = []
    for place in (None, wrong):
        dataset = tf.data.Dataset.range(50).map(lambda i: i + tf.cast(i == (place or -1), tf.int64)).batch(2)  # noqa: B023
        run_arm(spec(hashed=True), classify(dataset.repeat(), "t"), None, bench)
        found.append(bench.channel.record().contents)
    assert found[0].seen >= len(found[0].digests) >= 20
    said = compare_timed({0: [found[0], found[0]]}, {0: [found[1]]}, bits=True)
    assert (said.same, said.compared >= 20) == (wrong is None, True)
    run_arm(spec(), classify(dataset.repeat(), "t"), None, bench)
    assert bench.contents is None


def test_shapes_are_looked_for_until_they_stop_being_new():
    taken = [0]

    def counted():
        while True:
            taken[0] += 1
            yield tf.ones([2, min(taken[0], 5)])

    dataset = tf.data.Dataset.from_generator(counted, output_signature=tf.TensorSpec([2, None]))
    found = [*one_of_each_shape(dataset)]
    assert [batch.shape[1] for batch in found] == [1, 2, 3, 4, 5]
    assert 5 + 10 <= taken[0] <= 5 + 10 + 8  # twice the shapes without a new one, and what was read ahead


@pytest.mark.parametrize(
    ("reduce_retracing", "stepped"),
    [(False, [1, 2, 3, 4, 5, 6]), (True, [1, 2, 3, 4])],
    ids=["each", "two"],
)
def test_shapes_are_stepped_on_until_they_cost_nothing_more(bench, reduce_retracing, stepped):
    step, seen = tf.function(tf.reduce_sum, reduce_retracing=reduce_retracing), []

    def recording(batch):
        seen.append(batch.shape[1])
        return step(batch)

    warm_up(recording, of_lengths(1, 2, 3, 4, 5, 6), bench)
    assert seen == stepped
    assert bench.channel.record().segment("warm_up").steps == len(stepped)


def test_a_step_that_compiles_each_shape_is_not_warmed_up_for_long(bench, monkeypatch):
    monkeypatch.setattr(module, "_WARM_UP_S", 0.0)
    warm_up(tf.function(tf.reduce_sum), of_lengths(1, 2, 3), bench)
    assert bench.channel.record().segment("warm_up").steps == 1


def test_a_shape_that_comes_late_in_a_short_dataset_is_found():
    assert [batch.shape[1] for batch in one_of_each_shape(of_lengths(3, 3, 3, 9))] == [3, 9]


@pytest.mark.parametrize(("name", "value"), [("_MOST", 3), ("MOST_BYTES", 2 * 4 * (1 + 2 + 3) - 1)])
def test_looking_for_shapes_is_bounded(monkeypatch, name, value):
    monkeypatch.setattr(module, name, value)
    assert len([*one_of_each_shape(of_lengths(1, 2, 3, 4, 5))]) == 3


def test_a_slow_dataset_is_not_read_for_long(monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 0.0)
    assert len([*one_of_each_shape(of_lengths(1, 2, 3))]) == 1


def test_batches_of_several_parts_differ_in_any_of_them():
    dataset = tf.data.Dataset.from_tensor_slices([2, 3, 2]).map(lambda n: {"x": tf.ones([4]), "y": tf.ones([n])})
    assert len([*one_of_each_shape(dataset)]) == 2


def test_sparse_and_ragged_batches_have_shapes_too():
    ragged = tf.data.Dataset.from_tensors(tf.ragged.constant([[1], [2, 3]])).repeat(3)
    sparse = tf.data.Dataset.from_tensors(tf.sparse.from_dense([[1, 0]])).repeat(3)
    assert len([*one_of_each_shape(ragged)]) == len([*one_of_each_shape(sparse)]) == 1


def test_an_empty_dataset_is_told():
    with pytest.raises(ExhaustedError, match="no element"):
        [*one_of_each_shape(of_lengths())]
