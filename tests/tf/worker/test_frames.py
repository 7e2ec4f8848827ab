"""Frames of a batch: padded ones from the shape, true ones fetched where no step is timed."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.errors import TargetError
from xttsbench.records.rows import StepRow
from xttsbench.targets.load import classify
from xttsbench.targets.spec import Workload
from xttsbench.worker.batches import CachedBatches
from xttsbench.worker.bench import Limit
from xttsbench.worker.frames import FrameKeys, HeldLengths, frame_keys

LIMIT = Limit(steps=6, window_s=60.0, min_steps=6, fair_s=0.0)


def batch(*lengths, padded=8):
    return {"mel": tf.zeros([len(lengths), padded, 3]), "mel_length": tf.constant(lengths)}


def keys(workload):
    return frame_keys(classify(workload, "t"), "t")


def test_padded_and_true_frames_are_columns(bench, segment):
    bench.keys = FrameKeys("mel", "mel_length")
    bench.run("as_is", CachedBatches([batch(8, 3), batch(1, 2, 3, padded=10)]), None, LIMIT)
    assert segment("as_is").columns["frames"] == (16, 30) * 3
    assert segment("as_is").columns["valid_frames"] == (11, 6) * 3


def test_a_workload_that_does_not_say_has_none(bench, segment):
    bench.run("as_is", CachedBatches([batch(8, 3)]), None, LIMIT)
    assert segment("as_is").columns["frames"] == (0,) * 6
    assert segment("as_is").columns["valid_frames"] == (0,) * 6


def test_one_of_the_two_may_be_said_alone(bench, segment):
    bench.keys = FrameKeys(lengths="mel_length")
    bench.run("as_is", CachedBatches([batch(8, 3)]), None, LIMIT)
    assert segment("as_is").columns["frames"] == (0,) * 6
    assert segment("as_is").columns["valid_frames"] == (11,) * 6


def test_fetching_the_lengths_is_nobody_s_synchronisation(bench, segment):
    """The watch counts every fetch of a device value inside a step; ours are outside of all."""
    bench.keys = FrameKeys("mel", "mel_length")
    slow = Limit(steps=12, window_s=60.0, min_steps=12, fair_s=0.0)

    def step(found):
        tf.reduce_sum(found["mel"]).numpy()
        end = tf.timestamp() + 0.011  # longer than a quick step
        while tf.timestamp() < end:
            pass

    bench.run("as_is", CachedBatches([batch(8, 3)]), step, slow)
    own = segment("as_is").columns["syncs"]
    bench.keys = FrameKeys()
    bench.run("without", CachedBatches([batch(8, 3)]), lambda found: tf.reduce_sum(found["mel"]).numpy(), slow)
    assert segment("without").columns["syncs"] == (1,) * 12
    bench.keys = FrameKeys("mel", "mel_length")
    bench.run("with", CachedBatches([batch(8, 3)]), lambda found: tf.reduce_sum(found["mel"]).numpy(), slow)
    assert segment("with").columns["syncs"] == (1,) * 12
    assert len(own) == 12
    assert segment("as_is").columns["valid_frames"] == (11,) * 12


class OnDevice:
    """Lengths whose values are on a device, and may not be there yet."""

    def __init__(self, *lengths):
        self.lengths = lengths
        self.fetched = 0

    def numpy(self):
        self.fetched += 1
        if not self.lengths:
            raise tf.errors.InternalError(None, None, "the device is gone")
        return np.array(self.lengths)


@pytest.fixture
def rows(bench):
    made = bench.channel.rows.segment("as_is")
    for _ in range(300):
        made.append(StepRow(1, 1))
    return made


def test_tensors_are_let_go_once_they_are_summed(rows):
    held, lengths = HeldLengths(), tf.constant([1, 2])
    gone = weakref.ref(lengths)
    held.add(rows, 3, lengths)
    assert rows.get(3, "valid_frames") == 0
    held.fetch()
    assert rows.get(3, "valid_frames") == 3
    del lengths
    gc.collect()
    assert gone() is None


def test_lengths_on_a_device_are_fetched_when_asked_for(rows):
    held, lengths = HeldLengths(), OnDevice(4, 5)
    held.add(rows, 3, lengths)
    assert (lengths.fetched, rows.get(3, "valid_frames")) == (0, 0)
    held.fetch()
    held.fetch()
    assert (lengths.fetched, rows.get(3, "valid_frames")) == (1, 9)


def test_held_tensors_are_bounded(rows):
    held, all_lengths = HeldLengths(), [OnDevice(1) for _ in range(32)]
    for index, lengths in enumerate(all_lengths):
        assert not any(one.fetched for one in all_lengths)
        held.add(rows, index, lengths)
    assert all(one.fetched for one in all_lengths)


def test_a_device_that_fails_costs_the_sum_and_not_the_row(rows):
    held = HeldLengths()
    held.add(rows, 0, OnDevice())
    held.fetch()
    assert (rows.get(0, "wall_ns"), rows.get(0, "valid_frames")) == (1, 0)


def test_what_the_workload_declares_is_checked_against_its_batches():
    dataset = tf.data.Dataset.from_tensors(batch(8, 3))
    assert keys(Workload(dataset, frames="mel", lengths="mel_length")) == FrameKeys("mel", "mel_length")
    assert keys(Workload(dataset)) == FrameKeys()
    assert keys(dataset) == FrameKeys()
    with pytest.raises(TargetError, match=r"frames='mell'\) names no part of the batch, which has 'mel', 'mel_length'"):
        keys(Workload(dataset, frames="mell"))
    with pytest.raises(TargetError, match=r"frames='mel_length'\) has shape \(2,\); at least 2"):
        keys(Workload(dataset, frames="mel_length"))
    with pytest.raises(TargetError, match="which has no keys"):
        keys(Workload(tf.data.Dataset.range(3), lengths="x"))
