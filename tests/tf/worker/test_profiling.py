"""A window of steady steps as a TensorFlow profile, on a pipeline whose waits are known."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.targets.load import Loaded
from xttsbench.worker.profiling import Interval, covered_s, idle_s, profile_window, summarise

SLEEP_S = 0.02


def sleeping_dataset():
    def load(number):
        time.sleep(SLEEP_S)
        return np.float32(number)

    return tf.data.Dataset.range(10_000).map(lambda i: tf.numpy_function(load, [i], tf.float32))


def test_the_wait_is_read_from_the_profile(bench, tmp_path):
    step = tf.function(lambda x: x + 1)
    loaded = Loaded("dataset+step", sleeping_dataset(), step)
    found = profile_window(loaded, step, bench, str(tmp_path))
    assert len(list(tmp_path.glob("plugins/profile/*/*.xplane.pb"))) == 1
    assert found.steps == 20
    assert SLEEP_S / 2 < found.wait_s < SLEEP_S * 2
    assert found.directory == "profile"
    if not tf.config.list_physical_devices("GPU"):
        assert (found.kernel_s, found.copy_s, found.idle_s) == (None, None, None)
        assert found.unmeasured["kernel_s"] == "no GPU in the profile"


def test_a_fast_input_waits_less_than_the_step(bench, tmp_path):
    dataset = tf.data.Dataset.from_tensors(1.0).repeat().prefetch(8)
    found = profile_window(Loaded("dataset", dataset, None), lambda x: time.sleep(0.01), bench, str(tmp_path))
    assert found.wait_s is not None
    assert found.wait_s < 0.005


def test_a_target_with_a_profiler_of_its_own_goes_on_without_ours(bench, tmp_path):
    dataset = tf.data.Dataset.range(1000)
    tf.profiler.experimental.start(str(tmp_path / "theirs"))
    try:
        found = profile_window(Loaded("dataset", dataset, None), None, bench, str(tmp_path / "ours"))
    finally:
        tf.profiler.experimental.stop()
    assert found.steps == 0
    assert "profiler of its own" in found.unmeasured["profile"]


def test_an_error_in_the_window_ends_the_profile(bench, tmp_path):
    count = [0]

    def step(batch):
        count[0] += 1
        if count[0] == 12:
            raise ValueError("in the window")

    dataset = tf.data.Dataset.range(1000)
    with pytest.raises(ValueError, match="in the window"):
        profile_window(Loaded("dataset+step", dataset, step), step, bench, str(tmp_path))
    tf.profiler.experimental.start(str(tmp_path / "again"))  # would raise were the first one still on
    tf.profiler.experimental.stop()


def test_no_profile_is_said(tmp_path):
    assert "no XPlane" in summarise(str(tmp_path), 20).unmeasured["profile"]


PS = 1e-12


def at(*spans: tuple[int, int]) -> list[Interval]:
    return [Interval("kernel", start, end) for start, end in spans]


@pytest.mark.parametrize(
    ("spans", "covered", "idle"),
    [
        ([], 0, 0),
        ([(5, 15)], 10, 0),
        ([(0, 10), (20, 25)], 15, 10),
        ([(20, 25), (0, 10)], 15, 10),
        ([(0, 10), (5, 20)], 20, 0),
        ([(0, 100), (10, 20), (30, 40)], 100, 0),
        ([(0, 100), (10, 20), (120, 130)], 110, 20),
        ([(0, 10), (10, 20)], 20, 0),
        ([(0, 10), (0, 10), (0, 10)], 10, 0),
        ([(3, 3), (7, 7)], 0, 4),
        ([(10**12, 3 * 10**12)], 2 * 10**12, 0),
    ],
)
def test_overlaps_count_once_and_gaps_are_idle(spans: list[tuple[int, int]], covered: int, idle: int) -> None:
    assert covered_s(at(*spans)) == pytest.approx(covered * PS)
    assert idle_s(at(*spans)) == pytest.approx(idle * PS, abs=1e-18)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), min_size=1, max_size=12))
def test_they_are_the_picoseconds_in_and_between_the_intervals(raw: list[tuple[int, int]]) -> None:
    spans = [(start, start + length) for start, length in raw]
    busy = {tick for start, end in spans for tick in range(start, end)}
    whole = max(end for _, end in spans) - min(start for start, _ in spans)
    assert covered_s(at(*spans)) == pytest.approx(len(busy) * PS)
    assert idle_s(at(*spans)) == pytest.approx((whole - len(busy)) * PS, abs=1e-18)
