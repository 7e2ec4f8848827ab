"""A window of steady steps as a TensorFlow profile, on a pipeline whose waits are known."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from tests.tf.worker.profile import gpu_xplane
from xttsbench.analysis.gpu import activity_of
from xttsbench.records.readings import WORK
from xttsbench.targets.load import Loaded
from xttsbench.worker.profile.window import profile_window, summarise
from xttsbench.worker.profile.xplane import ask, cause_of_event, newest, read_window, work_of_event

SLEEP_S = 0.02


def sleeping_dataset():
    def load(number):
        time.sleep(SLEEP_S)
        return np.float32(number)

    return tf.data.Dataset.range(10_000).map(lambda i: tf.numpy_function(load, [i], tf.float32))


@pytest.mark.measured
def test_the_wait_is_read_from_the_profile(bench, tmp_path):
    step = tf.function(lambda x: x + 1)
    loaded = Loaded("dataset+step", sleeping_dataset(), step)
    found = profile_window(loaded, step, bench, str(tmp_path))
    assert len(list(tmp_path.glob("plugins/profile/*/*.xplane.pb"))) == 1
    assert found.steps == 20
    assert SLEEP_S / 2 < found.gpu.host_s["input"] < SLEEP_S * 2
    assert found.directory == "profile"


@pytest.mark.measured
def test_a_fast_input_waits_less_than_the_step(bench, tmp_path):
    dataset = tf.data.Dataset.from_tensors(1.0).repeat().prefetch(8)
    found = profile_window(Loaded("dataset", dataset, None), lambda x: time.sleep(0.01), bench, str(tmp_path))
    assert found.gpu.host_s["input"] < 0.005


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


@pytest.mark.measured
def test_what_the_host_did_adds_up_to_the_step_and_is_on_the_clock_of_the_steps(bench, tmp_path):
    def step(batch):
        time.sleep(0.004)
        return tf.square(batch)

    dataset = tf.data.Dataset.from_tensors(1.0).repeat()
    before_ns = time.perf_counter_ns()
    found = profile_window(Loaded("dataset+step", dataset, step), step, bench, str(tmp_path))
    gpu = found.gpu
    assert sum(gpu.host_s.values()) == pytest.approx(gpu.step_s)
    assert 0.0039 < gpu.host_s["host"] == max(gpu.host_s.values())  # a neighbour lets it sleep for longer
    assert gpu.host_s["dispatch"] > 0
    assert before_ns < gpu.step_starts_ns[0] < gpu.step_ends_ns[-1] < time.perf_counter_ns()
    assert len(gpu.step_starts_ns) == 20
    if not tf.config.list_physical_devices("GPU"):
        assert gpu.devices == ()
        assert gpu.unmeasured["devices"] == "no GPU in the profile: TensorFlow ran on the processor"


@pytest.mark.measured
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
    assert found.xprof.input_share == pytest.approx(found.gpu.host_s["input"] / found.gpu.step_s, abs=0.1)
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
    assert found.unmeasured["xprof"] == "XProf is not installed: pip install tensorboard-plugin-profile"
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


CLOCK_NS = 10**12
STARTS = {number: CLOCK_NS + number * 10_000_000 for number in range(gpu_xplane.STEPS)}


@pytest.fixture
def read(tmp_path):
    def read(space, starts=STARTS):
        return read_window(gpu_xplane.write(space, tmp_path), starts)

    return read


def test_a_window_of_two_gpus_is_read_as_it_was_laid_out(read):
    found = activity_of(read(gpu_xplane.two_gpus(slower=2.5)))
    assert (found.steps, found.step_s, found.start_ns) == (4, 0.01, CLOCK_NS)
    first, second = found.devices
    assert (first.index, second.index) == (0, 1)
    assert first.kernel_s == pytest.approx(2e-3)
    assert second.kernel_s == pytest.approx(2.5e-3)
    assert (first.collective_s, first.collective_alone_s) == pytest.approx((3e-3, 2.5e-3))
    assert (first.copy_s, first.copy_alone_s) == pytest.approx((1e-3, 1e-3))
    assert first.work_s == pytest.approx(
        {"kernel": 2e-3, "collective": 3e-3, "to_device": 5e-4, "from_device": 5e-4, "on_device": 1e-4}
    )
    assert first.kernels == 2
    assert (found.slowest, found.slowest_share) == (1, 1.0)
    assert found.imbalance == pytest.approx(2.5 / 2.25 - 1)


def test_gaps_are_explained_by_the_thread_of_the_steps_and_not_by_the_pipelines(read):
    found = activity_of(read(gpu_xplane.two_gpus()))
    assert {why: time for why, time in found.host_s.items() if time} == pytest.approx(
        {"input": 3e-3, "sync": 4e-3, "dispatch": 1.5e-3, "host": 1.5e-3}
    )
    idle = {why: time for why, time in found.devices[0].idle_by_cause_s.items() if time}
    assert idle == pytest.approx({"input": 3e-3, "sync": 1.5e-3})
    assert found.devices[0].longest_gaps[0].cause == "input"


def test_steps_of_somebody_else_are_none_of_ours(read):
    assert read(gpu_xplane.two_gpus(), {}) == "the profile has no step marker"


def test_a_profile_without_markers_says_so(read):
    assert read(gpu_xplane.two_gpus(markers=False)) == "the profile has no step marker"


def test_a_gpu_without_events_is_no_idle_gpu(read):
    space = xplane_pb2.XSpace()
    gpu_xplane.host(space)
    space.planes.add(name="/device:GPU:0")
    space.errors.append("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES\nmore")
    found = activity_of(read(space))
    assert found.devices == ()
    assert "NVreg_RestrictProfilingToAdminUsers" in found.unmeasured["devices"]
    assert found.unmeasured["devices"].endswith(": CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")


def test_a_processor_has_no_gpu(read):
    space = xplane_pb2.XSpace()
    gpu_xplane.host(space)
    found = activity_of(read(space))
    assert found.unmeasured["devices"] == "no GPU in the profile: TensorFlow ran on the processor"
    assert found.host_s["input"] == pytest.approx(3e-3)


@pytest.mark.parametrize("content", [b"\xff" * 50, b"not a protocol buffer"])
def test_a_file_that_is_no_xplane_is_a_reason(tmp_path, content):
    path = tmp_path / "cut.xplane.pb"
    path.write_bytes(content)
    assert isinstance(read_window(path, {}), str)


def test_of_several_profiles_the_newest_is_read(tmp_path):
    assert newest(str(tmp_path)) is None
    path = gpu_xplane.write(gpu_xplane.two_gpus(), tmp_path)
    assert newest(str(tmp_path)) == path


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("MemcpyH2D", "to_device"),
        ("MemcpyD2H", "from_device"),
        ("MemcpyP2P", "between_devices"),
        ("MemcpyD2D", "on_device"),
        ("Memset", "on_device"),
        ("CopyHostToDevice", "to_device"),
        ("CopyDeviceToDevice", "on_device"),
        ("__amd_rocclr_copyBuffer.kd", "on_device"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "collective"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "collective"),
        ("void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<...> >", "kernel"),
        ("input_reduce_fusion_1", "kernel"),
        ("loop_copy_fusion", "kernel"),
    ],
)
def test_what_runs_on_a_stream_is_known_by_its_name(name, work):
    assert work_of_event(name) == work
    assert work in WORK


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("tf.function-graph_building", "compile"),
        ("CpuCompiler::RunBackend", "compile"),
        ("HLO passes through layout assignment", "compile"),
        ("EagerLocalExecute: SaveV2", "saving"),
        ("save/SaveV2:SaveV2", "saving"),
        ("EagerLocalExecute: WriteScalarSummary", "saving"),
        ("IteratorGetNextAsOptionalOp::DoCompute", "input"),
        ("cuStreamSynchronize", "sync"),
        ("hipDeviceSynchronize", "sync"),
        ("EagerLocalExecute: __inference_step_38", "dispatch"),
        ("ExecutorState::Process", "dispatch"),
        ("Iterator::Prefetch", None),
        ("MatMul:MatMul", None),
    ],
)
def test_what_the_host_does_is_known_by_the_events_name(name, cause):
    assert cause_of_event(name) == cause
