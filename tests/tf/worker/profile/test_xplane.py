"""XPlanes laid out as those of real GPUs, read: streams, directions and sizes of copies, threads, clocks, reasons."""

from __future__ import annotations

import pytest
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from tests.tf.worker.profile import gpu_xplane
from xttsbench.analysis.gpu import activity_of, slices_of
from xttsbench.records.gpu_activity import WORK
from xttsbench.worker.profile.xplane import cause_of_event, newest, read_window, work_of_event

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
    assert first.bytes == {"to_device": 4096, "from_device": 128}
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


def test_slices_are_on_the_clock_of_the_steps(read):
    slices = [slice for slice in slices_of(activity_of(read(gpu_xplane.two_gpus()))) if slice.device == 0]
    assert len(slices) == 6 * gpu_xplane.STEPS
    first = slices[0]
    assert (first.lane, first.work) == ("Stream #15(MemcpyH2D,MemoryAlloc)", "to_device")
    assert (first.start_ns, first.duration_ns) == (CLOCK_NS + 3_000_000, 500_000)


def test_without_the_times_of_the_steps_it_is_on_no_clock(read):
    found = activity_of(read(gpu_xplane.two_gpus(), {}))
    assert (found.start_ns, found.step_starts_ns, found.devices[0].slices) == (None, (), None)
    assert "clock" in found.unmeasured["start_ns"]
    assert found.devices[0].kernel_s == pytest.approx(2e-3)


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
