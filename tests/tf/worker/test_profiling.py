"""A window of steady steps as a TensorFlow profile, on a pipeline whose waits are known."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.targets.load import Loaded
from xttsbench.worker.profiling import profile_window, summarise

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
