"""Rounds of the main trial: what is alone is alone, and starts as it would in the middle of a long training."""

from __future__ import annotations

import multiprocessing
import time

import pytest
import tensorflow as tf

from tests.tf.worker.conftest import Kept
from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import TrialSpec
from xttsbench.step.watch import Watch
from xttsbench.targets.load import classify
from xttsbench.worker.batches import LiveBatches, opened
from xttsbench.worker.bench import Bench
from xttsbench.worker.channel import DirectChannel, SilentChannel
from xttsbench.worker.ladder import run_ladder
from xttsbench.worker.rounds import stands_still
from xttsbench.worker.trial import KINDS


def _spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def test_an_input_in_a_process_of_its_own_stands_still_once_that_does():
    assert stands_still(1.0, element_s=0.01)
    loader = multiprocessing.get_context("fork").Process(target=_spin, args=(1.0,))
    began = time.perf_counter()
    loader.start()
    try:
        assert not stands_still(0.3, element_s=0.01), "the child is at work"
        assert stands_still(5.0, element_s=0.01)
        assert time.perf_counter() - began > 0.9
    finally:
        loader.join()


def test_a_pipeline_that_sleeps_within_an_element_is_looked_at_for_as_long_as_that_takes():
    loader = multiprocessing.get_context("fork").Process(target=_sleep_and_spin, args=(4,))
    loader.start()
    try:
        time.sleep(0.05)
        assert not stands_still(0.5, element_s=0.4)
    finally:
        loader.join()


def _sleep_and_spin(times):
    for _ in range(times):
        time.sleep(0.2)
        _spin(0.2)


class _Closed(LiveBatches):
    closed = False

    def close(self):
        self.closed = True
        super().close()


@pytest.mark.parametrize("ends", [True, False])
def test_an_iterator_is_closed_only_where_the_process_lives_on(ends):
    channel = SilentChannel() if ends else DirectChannel(lambda _: None, RowMemory(bytearray(RowMemory.size_bytes(1))))
    with opened(_Closed(tf.data.Dataset.range(3)), channel) as source:
        source.next()
    assert source.closed != ends


def run(dataset, step, **changes):
    """The record of the main trial of a target, in this process; made anew where a test has a second try."""
    spec = TrialSpec(**{"trial_id": "0", "kind": "ladder", "target": "t:t", "steps": 400, "block": 1} | changes)
    with Watch() as watch:
        bench = Bench(Kept(), watch, None, None)
        run_ladder(spec, classify((dataset, step), "t"), step, bench)
    return bench.channel.record()


def columns(record, name, number=None):
    """Column of a segment without its warm-up; of one round."""
    segment = record.segment(name)
    kept = [n for n in range(segment.warmup_steps, segment.steps) if number in (None, segment.columns["round"][n])]
    return {name: [values[n] for n in kept] for name, values in segment.columns.items()}


@pytest.mark.parametrize("kind", ["ladder", "arm", "parity"])
def test_what_was_measured_is_left_open_in_a_process_that_ends(kind, monkeypatch):
    """Closing the iterator waits for tf.data's tuner, which sleeps ever longer (E4)."""
    closed = []
    monkeypatch.setattr(LiveBatches, "close", closed.append)
    data = tf.data.Dataset.range(64).repeat()
    if kind == "ladder":
        run(data, lambda _: time.sleep(0.001), window_s=0.2, rounds=1)
    else:
        spec = TrialSpec(trial_id="0", kind=kind, target="t:t", steps=4, window_s=0.2)
        with Watch() as watch:
            KINDS[kind](spec, classify(data, "t"), None, Bench(Kept(), watch, None, None))
    assert not closed


@pytest.mark.measured
@pytest.mark.parametrize("prefetch", [2, 32])
def test_no_batch_that_stood_ready_is_counted_as_input_alone(prefetch):
    """A pipeline that sleeps makes a batch each 20 ms, and its step takes twice as long, so that all stand ready."""
    slow = tf.data.Dataset.range(10**6).map(
        lambda i: tf.numpy_function(lambda x: (time.sleep(0.02), x)[1], [i], tf.int64)
    )
    record = run(slow.prefetch(prefetch), lambda _: time.sleep(0.04), window_s=3.0, rounds=2)
    for number in range(2):
        times = columns(record, "input_only", number)["wait_ns"]
        assert 19.5e6 < sum(times) / len(times) < 30e6, "a neighbour makes it longer, a ready batch shorter"
        assert max(columns(record, "as_is", number)["wait_ns"]) < 10e6, "the buffers are full, as in a long training"


@pytest.mark.measured
def test_a_round_of_a_slow_input_begins_with_empty_buffers():
    slow = tf.data.Dataset.range(10**6).map(
        lambda i: tf.numpy_function(lambda x: (time.sleep(0.03), x)[1], [i], tf.int64)
    )
    record = run(slow.prefetch(16), lambda _: time.sleep(0.01), window_s=2.0, rounds=2)
    for number in range(2):
        waits = columns(record, "as_is", number)["wait_ns"][:10]
        assert sum(waits) / len(waits) > 15e6, "none stood ready"


def test_a_repeat_passes_over_the_batches_of_others():
    record = run(tf.data.Dataset.range(10**6), lambda _: time.sleep(0.01), window_s=0.4, rounds=1, skip=500)
    assert min(record.segment("as_is").columns["batch"]) >= 500


def mapped():
    """Batches that take 20 ms or so of a processor each; 32 of them stand ready where the input keeps up."""
    return (
        tf.data.Dataset.range(10**6)
        .map(lambda i: tf.sort(tf.sin(tf.range(200_000.0) * tf.cast(i, tf.float32))))
        .prefetch(32)
    )


def in_a_process():
    """The same from a process of its own, which keeps 32 ready."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue(32)

    def load():
        while True:
            _spin(0.02)
            queue.put(1.0)

    def batches():
        context.Process(target=load, daemon=True).start()
        while True:
            yield queue.get()

    return tf.data.Dataset.from_generator(batches, output_signature=tf.TensorSpec([]))


@pytest.mark.measured
@pytest.mark.parametrize("make", [mapped, in_a_process])
def test_the_step_alone_is_alone_in_every_round(make):
    """A step that sleeps uses no processor, so that whatever is used beside it is the input's."""
    record = run(make(), lambda _: time.sleep(0.03), window_s=2.0, rounds=2)
    assert [mark.input_idle for mark in record.rounds] == [True, True]
    for number in range(2):
        used = columns(record, "step_only", number)["cpu_ns"]
        assert sum(used) / len(used) < 3e6, f"round {number}"
    beside = columns(record, "as_is")["cpu_ns"]
    assert sum(beside) / len(beside) > 10e6


@pytest.fixture(autouse=True)
def no_loader_left():
    """A loader that lives on would hold what this process has open, such as the pipes of other tests' processes."""
    yield
    for child in multiprocessing.active_children():
        child.kill()
        child.join()
