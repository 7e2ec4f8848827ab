"""The measured loop: a row a step, with clocks that add up, and errors that cost nothing measured before."""

from __future__ import annotations

import gc
import multiprocessing
import subprocess
import sys
import time
import weakref

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.errors import TargetError
from xttsbench.probes.clock import EmulatedAccelerator
from xttsbench.records.rows import COLUMNS, StepRow
from xttsbench.targets.load import classify
from xttsbench.targets.spec import Workload
from xttsbench.worker.batches import CachedBatches, LiveBatches
from xttsbench.worker.bench import FrameKeys, HeldLengths, Limit, frame_keys
from xttsbench.worker.failure import StepRaisedError

BATCH = tf.ones([4, 8])


def steps(number):
    return Limit(steps=number, window_s=60.0, min_steps=number, fair_s=0.0)


def columns(segment):
    return {name: np.array(values) for name, values in segment.columns.items()}


@pytest.fixture
def measured(bench, segment):
    """``measured(source, step, count)``: the columns of so many steps."""

    def run(source, step, count):
        bench.run("as_is", source, step, steps(count))
        return columns(segment("as_is"))

    return run


def sleeping(batches, wait_s):
    class Slow(CachedBatches):
        def next(self):
            time.sleep(wait_s)
            return super().next()

    return Slow(batches)


def test_every_column_is_there_with_a_row_for_each_step(bench, segment):
    assert bench.run("as_is", CachedBatches([BATCH] * 3), tf.function(lambda b: b + 1), steps(10)) == 10
    found = segment("as_is")
    assert set(found.columns) == set(COLUMNS)
    assert found.steps == 10
    assert found.columns["epoch"] == (0, 0, 0, 1, 1, 1, 2, 2, 2, 3)
    assert found.columns["batch_size"] == (4,) * 10
    assert found.columns["batch_elements"] == (32,) * 10
    assert found.columns["calls"] == (1,) * 10
    assert found.columns["traces"] == (1,) + (0,) * 9


def test_rows_say_their_round_and_their_batch_and_a_segment_goes_on(bench, segment):
    dataset = tf.data.Dataset.range(3)
    bench.run("as_is", LiveBatches(dataset), None, steps(4), warmup=1)
    bench.run("as_is", CachedBatches([BATCH], [7]), None, steps(2), round=1)
    bench.run("other", CachedBatches([BATCH]), None, steps(1))
    found = segment("as_is")
    assert found.columns["round"] == (0,) * 4 + (1,) * 2
    assert found.columns["batch"] == (0, 1, 2, 0, 7, 7)
    assert found.columns["epoch"] == (0, 0, 0, 1, 0, 1)
    assert found.warmup_steps == 1
    assert segment("other").columns["batch"] == (-1,)


@pytest.mark.measured
def test_waiting_and_stepping_are_clocked_apart_and_add_up(measured):
    found = measured(sleeping([BATCH], 0.010), lambda b: time.sleep(0.005), 15)
    assert 10e6 <= np.median(found["wait_ns"]) < 20e6
    assert 5e6 <= np.median(found["step_ns"]) < 10e6
    assert (found["wall_ns"] >= found["wait_ns"] + found["step_ns"]).all()
    rest = found["wall_ns"] - found["wait_ns"] - found["step_ns"]
    assert np.median(rest) < 3e6
    assert (np.diff(found["start_ns"]) > 0).all()
    # Sleeping takes no processor time; the wall time of all steps is the time between the first and the last.
    assert found["cpu_ns"].sum() < 0.5 * found["wall_ns"].sum()
    assert found["wall_ns"][1:].sum() == pytest.approx(found["start_ns"][-1] - found["start_ns"][0], rel=0.2)


def test_computing_is_processor_time(measured):
    def step(batch):
        end = time.process_time_ns() + 5_000_000
        while time.process_time_ns() < end:
            pass

    found = measured(CachedBatches([BATCH]), step, 15)
    assert (found["cpu_ns"] >= 5_000_000).all()
    assert np.median(found["cpu_ns"]) < 8_000_000


def test_without_a_step_only_the_wait_is_there(bench, segment):
    bench.run("input_only", sleeping([BATCH], 0.003), None, steps(5))
    found = columns(segment("input_only"))
    assert (found["step_ns"] < found["wait_ns"]).all()
    assert (found["calls"] == 0).all()


def test_what_the_device_still_does_after_the_step_is_part_of_it(bench, measured):
    bench.synchronise = lambda: time.sleep(0.004)
    found = measured(CachedBatches([BATCH]), lambda b: None, 8)
    assert 4e6 <= np.median(found["device_ns"]) < 10e6
    assert (found["step_ns"] >= found["device_ns"]).all()


def test_the_emulated_accelerator_s_wait_is_part_of_the_step(bench, measured):
    bench.accelerator = EmulatedAccelerator([3.0, 9.0])
    found = measured(CachedBatches([BATCH]), lambda b: None, 12)
    assert (found["emulated_ns"] >= np.tile([3_000_000, 9_000_000], 6)).all()
    assert np.median(found["emulated_ns"][::2]) < np.median(found["emulated_ns"][1::2])
    assert (found["step_ns"] >= found["emulated_ns"]).all()
    assert found["cpu_ns"].sum() < 0.3 * found["wall_ns"].sum()


def test_each_shape_has_its_number_in_the_order_of_appearance(bench, segment):
    batches = [tf.ones([2, 3]), tf.ones([2, 5]), tf.ones([2, 3]), tf.ones([6, 5])]
    bench.run("as_is", CachedBatches(batches), None, steps(4))
    assert segment("as_is").columns["shape_id"] == (0, 1, 0, 2)
    assert segment("as_is").columns["batch_size"] == (2, 2, 2, 6)
    assert segment("as_is").columns["batch_elements"] == (6, 10, 6, 30)


def test_structures_sparse_and_ragged_batches_have_a_size_too(bench, segment):
    batches = [
        {"x": tf.ones([5, 2]), "y": tf.zeros([5])},
        tf.ragged.constant([[1, 2], [3]]),
        tf.sparse.from_dense([[1, 0], [0, 2]]),
        tf.constant(3.0),
    ]
    bench.run("as_is", CachedBatches(batches), None, steps(4))
    assert segment("as_is").columns["batch_size"][0] == 5
    assert segment("as_is").columns["batch_elements"][0] == 15
    assert segment("as_is").columns["batch_size"][3] == 1


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(2), tf.errors.InvalidArgumentError(None, None, "no")])
def test_an_error_in_a_step_keeps_the_rows_before_and_says_where(bench, segment, error):
    count = [0]

    def step(batch):
        count[0] += 1
        if count[0] == 8:
            raise error

    with pytest.raises(StepRaisedError) as raised:
        bench.run("as_is", CachedBatches([BATCH]), step, steps(100))
    assert segment("as_is").steps == 7
    assert raised.value.step == 7
    assert raised.value.where == "step(batch)"
    assert str(raised.value) == "step(batch) of step 7 (as_is)"
    assert raised.value.__cause__ is error


def test_an_error_of_the_input_says_next(bench, segment):
    dataset = tf.data.Dataset.range(10).map(
        lambda i: tf.debugging.check_numerics(1.0 / tf.cast(3 - i, tf.float32), "x")
    )
    with pytest.raises(StepRaisedError) as raised:
        bench.run("as_is", LiveBatches(dataset), None, steps(10))
    assert raised.value.where == "next()"
    assert segment("as_is").steps == 3


def test_an_interruption_is_not_taken_for_the_target_s_error(bench):
    def step(batch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.run("as_is", CachedBatches([BATCH]), step, steps(3))


def test_a_dataset_that_ends_for_good_ends_the_segment(bench, segment):
    left = [3]

    def once():
        while left[0]:
            left[0] -= 1
            yield 1.0

    dataset = tf.data.Dataset.from_generator(once, output_signature=tf.TensorSpec([], tf.float32))
    assert bench.run("as_is", LiveBatches(dataset), None, steps(10)) == 3
    assert segment("as_is").steps == 3


def test_a_row_is_there_as_soon_as_its_step_has_ended(bench):
    seen = []
    bench.run("as_is", CachedBatches([BATCH]), lambda b: seen.append(bench.channel.rows.steps), steps(5))
    assert seen == [0, 1, 2, 3, 4]


def bursty(batches, every):
    """An input that keeps its consumer waiting now and then, as one does that makes its batches in bursts."""

    class Bursty(CachedBatches):
        def next(self):
            self.number = getattr(self, "number", -1) + 1
            if self.number % every == 0:
                time.sleep(0.015)
            return super().next()

    return Bursty(batches)


def test_elapsed_time_is_elapsed_whatever_the_recorder_does_in_between(bench, measured):
    """Nothing is taken out: a busy share of the sum of the rows is the busy share of the time on the clock."""
    bench.accelerator = EmulatedAccelerator([10.0])
    bench.keys = FrameKeys(lengths="length")
    fetch = bench.lengths.add
    bench.lengths.add = lambda *given: (time.sleep(0.002), fetch(*given))  # what a slow device would take
    batch = {"x": BATCH, "length": tf.constant([3, 4])}
    found = measured(bursty([batch], 4), lambda b: None, 40)
    last_ns = found["start_ns"][-1] + found["wait_ns"][-1] + found["step_ns"][-1]
    elapsed_ns = last_ns - found["start_ns"][0] + found["pause_ns"][0]
    assert found["wall_ns"].sum() == pytest.approx(elapsed_ns, rel=1e-3)
    assert (found["wall_ns"] == found["pause_ns"] + found["wait_ns"] + found["step_ns"]).all()
    assert (found["pause_ns"][1:] >= 2_000_000).all()
    busy = found["emulated_ns"].sum()
    assert busy / found["wall_ns"].sum() == pytest.approx(busy / elapsed_ns, rel=1e-3)
    assert set(found["valid_frames"]) == {7}
    assert set(found["syncs"]) == {0}  # the fetch of the lengths is ours


def test_a_pause_is_part_of_neither_the_wait_nor_the_step(measured):
    found = measured(sleeping([BATCH], 0.004), lambda b: time.sleep(0.003), 20)
    assert (found["pause_ns"] >= 0).all()
    assert np.median(found["pause_ns"]) < 1e6


SPIN = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass"


def test_processor_time_of_a_pool_of_processes_counts(bench, segment):
    """Input that works in processes uses the cores, though this process does nothing."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(exec, [SPIN.format(0.0)] * 2)  # they are there

        class Pooled(CachedBatches):
            def next(self):
                pool.map(exec, [SPIN.format(0.1)] * 2)
                return super().next()

        bench.run("as_is", Pooled([BATCH]), None, steps(8))
        alone = columns(segment("as_is"))
        assert alone["cpu_ns"].sum() == pytest.approx(8 * 0.2e9, rel=0.2)
        assert alone["cpu_ns"].min() > 0.05e9
        assert alone["main_cpu_ns"].sum() < 0.2e9
        bench.run("idle", CachedBatches([BATCH]), lambda b: time.sleep(0.02), steps(10))
    assert columns(segment("idle"))["cpu_ns"].sum() < 0.15e9


def test_processor_time_of_processes_that_end_within_a_segment_counts(bench, segment):
    code = "import time\nwhile time.process_time() < 0.3: pass"
    bench.run(
        "as_is", CachedBatches([BATCH]), lambda b: subprocess.run([sys.executable, "-c", code], check=True), steps(2)
    )
    assert columns(segment("as_is"))["cpu_ns"].sum() >= 0.6e9


def test_a_limit_asks_for_enough_steps_and_a_fair_time():
    limit = Limit(steps=100, window_s=5.0, min_steps=4, fair_s=2.0)
    assert not limit.reached(100, 1.9)
    assert limit.reached(100, 2.0)
    assert not limit.reached(99, 4.9)
    assert limit.reached(4, 5.0)
    assert not limit.reached(3, 50.0)
    assert limit.reached(5000, 0.0)
    assert Limit(steps=10, window_s=0.5, min_steps=1).reached(10, 0.5)


def test_shapes_are_remembered_over_the_segments(bench):
    bench.run("warm_up", CachedBatches([tf.ones([1, 1])]), None, steps(1))
    bench.run("as_is", CachedBatches([tf.ones([2, 1])]), None, steps(1))
    assert [found[0] for found in bench.shapes.values()] == [0, 1]


def batch(*lengths, padded=8):
    return {"mel": tf.zeros([len(lengths), padded, 3]), "mel_length": tf.constant(lengths)}


def keys(workload):
    return frame_keys(classify(workload, "t"), "t")


@pytest.mark.parametrize(
    ("keys", "frames", "valid"),
    [
        (FrameKeys("mel", "mel_length"), (16, 30), (11, 6)),
        (FrameKeys(), (0, 0), (0, 0)),
        (FrameKeys(lengths="mel_length"), (0, 0), (11, 6)),
    ],
)
def test_padded_and_true_frames_are_columns_where_the_workload_says(bench, segment, keys, frames, valid):
    bench.keys = keys
    bench.run("as_is", CachedBatches([batch(8, 3), batch(1, 2, 3, padded=10)]), None, steps(6))
    assert segment("as_is").columns["frames"] == frames * 3
    assert segment("as_is").columns["valid_frames"] == valid * 3


def test_fetching_the_lengths_is_nobody_s_synchronisation(bench, segment):
    """The watch counts every fetch of a device value inside a step; ours are outside of all."""
    bench.keys = FrameKeys("mel", "mel_length")
    slow = steps(12)

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


def test_xla_compilations_of_real_steps_are_found_though_nothing_is_traced_again(bench, segment):
    if not bench.compilations.xla.available:
        pytest.skip(bench.compilations.xla.reason)

    @tf.function(jit_compile=True, reduce_retracing=True)
    def step(x):
        for _ in range(30):  # so that compiling takes longer than a slow step may
            x = tf.tanh(tf.linalg.matmul(x, x, transpose_b=True) @ x * 0.01)
        return tf.reduce_sum(x)

    shapes = (2, 3, 4, 21, 22, 22, 23, 21)
    batches = [tf.ones([size, 8]) for size in shapes]
    bench.run("as_is", CachedBatches(batches), step, Limit(8, 60.0, 8, 0.0))
    found = segment("as_is").columns
    assert sum(found["traces"]) <= 2
    assert found["xla_compiles"] == (1, 1, 1, 1, 1, 0, 1, 0)
    compiled = [(xla, step) for xla, step in zip(found["xla_ns"], found["step_ns"], strict=True) if xla]
    assert len(compiled) == 6
    assert all(xla <= step for xla, step in compiled)
