"""A window of steady steps as a TensorFlow profile, on a pipeline whose waits are known."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.targets.load import Loaded
from xttsbench.worker.profile.window import ask, profile_window, summarise

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
    assert "no XPlane" in summarise(str(tmp_path), {}).unmeasured["profile"]


def test_what_the_host_did_adds_up_to_the_step_and_is_on_the_clock_of_the_steps(bench, tmp_path):
    def step(batch):
        time.sleep(0.004)
        return tf.square(batch)

    dataset = tf.data.Dataset.from_tensors(1.0).repeat()
    before_ns = time.perf_counter_ns()
    found = profile_window(Loaded("dataset+step", dataset, step), step, bench, str(tmp_path))
    gpu = found.gpu
    assert sum(gpu.host_s.values()) == pytest.approx(gpu.step_s)
    assert gpu.host_s["host"] == pytest.approx(0.004, rel=0.5)
    assert gpu.host_s["dispatch"] > 0
    assert before_ns < gpu.step_starts_ns[0] < gpu.step_ends_ns[-1] < time.perf_counter_ns()
    assert len(gpu.step_starts_ns) == 20
    if not tf.config.list_physical_devices("GPU"):
        assert gpu.devices == ()
        assert gpu.unmeasured["devices"] == "no GPU in the profile: TensorFlow ran on the processor"


def test_tracing_compiling_and_saving_are_told_from_launching(bench, tmp_path):
    steps = []
    checkpoint = tf.train.Checkpoint(weights=tf.Variable(tf.ones([512, 512])))

    def step(batch):
        steps.append(batch)
        if len(steps) == 10:
            tf.function(lambda x: x * 3 + 1, jit_compile=True)(tf.ones([7, 7]))
        if len(steps) == 12:
            checkpoint.write(str(tmp_path / "saved"))

    dataset = tf.data.Dataset.from_tensors(1.0).repeat()
    gpu = profile_window(Loaded("dataset+step", dataset, step), step, bench, str(tmp_path)).gpu
    assert gpu.host_s["compile"] > max(gpu.host_s["input"], gpu.host_s["dispatch"])
    assert gpu.host_s["saving"] > 0


def test_xprof_is_asked_in_a_process_of_its_own(bench, tmp_path):
    pytest.importorskip("xprof")
    loaded = Loaded("dataset", sleeping_dataset(), None)
    found = profile_window(loaded, None, bench, str(tmp_path))
    assert found.xprof.says == "input"
    assert found.xprof.input_share == pytest.approx(found.wait_s / found.gpu.step_s, abs=0.1)
    assert found.xprof.version


def test_without_xprof_the_rest_stands(bench, tmp_path, monkeypatch):
    (tmp_path / "xprof").mkdir()
    (tmp_path / "xprof" / "__init__.py").write_text("raise ImportError('none here')")
    (tmp_path / "tensorboard_plugin_profile").mkdir()
    (tmp_path / "tensorboard_plugin_profile" / "__init__.py").write_text("raise ImportError('none here')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[4]}")
    dataset = tf.data.Dataset.from_tensors(1.0).repeat()
    found = profile_window(Loaded("dataset", dataset, None), None, bench, str(tmp_path))
    assert found.xprof is None
    assert found.unmeasured["xprof"] == "XProf is not installed: pip install 'xttsbench[profile]'"
    assert found.gpu.steps == 20


def test_a_profile_that_xprof_cannot_read_is_a_reason(tmp_path):
    pytest.importorskip("xprof")
    (tmp_path / "machine.xplane.pb").write_bytes(b"\xff" * 100)
    assert isinstance(ask(tmp_path / "machine.xplane.pb"), str)


def test_a_target_that_ends_our_profiler_is_measured_all_the_same(bench, tmp_path):
    steps = []

    def step(batch):
        steps.append(batch)
        if len(steps) == 8:
            tf.profiler.experimental.stop()

    dataset = tf.data.Dataset.range(1000)
    found = profile_window(Loaded("dataset+step", dataset, step), step, bench, str(tmp_path))
    assert len(steps) == 25
    assert "was not written" in found.unmeasured["profile"]


def test_a_profile_that_cannot_be_written_is_a_reason(bench, tmp_path):
    (tmp_path / "taken").write_text("a file, where the profile's folder would be")
    dataset = tf.data.Dataset.range(1000)
    found = profile_window(Loaded("dataset", dataset, None), None, bench, str(tmp_path / "taken"))
    assert found.steps == 0
    assert found.unmeasured["profile"]
