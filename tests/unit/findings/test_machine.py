"""Processors, memory and storage; a GPU that TensorFlow does not see."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.findings.made import only, silent
from xttsbench.findings.gpu import gpu_invisible
from xttsbench.findings.machine import cold_storage, cpu_quota, memory_leak
from xttsbench.records.base import Estimate
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.records.readings import HostReadings, Readings
from xttsbench.records.trial import Batches, Devices, Trace

GPU = {"gpus": [{"name": "A100"}]}


def test_no_gpu_at_all_is_a_fact_and_not_a_fault(evidence) -> None:
    environment = {"gpus": [], "unmeasured": {"gpus": "no NVIDIA driver"}}
    found = only(gpu_invisible, evidence("compute", devices=Devices(), environment=environment))
    assert (found.rule, found.severity, found.limiting) == ("gpu-invisible", "info", False)
    assert found.evidence["reason"] == "no NVIDIA driver"
    assert "emulated:MS" in found.remedy
    assert only(gpu_invisible, evidence("compute", devices=Devices(), environment={})).severity == "info"


@pytest.mark.parametrize(
    ("cuda", "variables", "cause", "remedy"),
    [
        (True, {"CUDA_VISIBLE_DEVICES": "-1"}, "CUDA_VISIBLE_DEVICES='-1' hides it", "Unset CUDA_VISIBLE_DEVICES"),
        (True, {"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES='' hides it", "Unset"),
        (False, {}, "built without CUDA", "tensorflow[and-cuda]"),
        (True, {}, "could not load a CUDA library", "list_physical_devices"),
    ],
)
def test_a_gpu_that_tensorflow_does_not_see(evidence, cuda: bool, variables, cause: str, remedy: str) -> None:
    devices, environment = Devices(built_with_cuda=cuda), GPU | {"variables": variables}
    found = only(gpu_invisible, evidence("compute", devices=devices, environment=environment))
    assert (found.severity, found.limiting) == ("critical", False)
    assert cause in found.title
    assert remedy in found.remedy


def test_a_gpu_that_it_sees(evidence) -> None:
    assert silent(gpu_invisible, evidence("compute", devices=Devices(gpus=("GPU:0",)), environment=GPU))
    assert silent(gpu_invisible, evidence("compute", environment=GPU)), "the devices are not known"


def cpu(quota: float | None, affinity: int = 16) -> dict:
    return {"cpu": {"quota_cpus": quota, "affinity_cpus": affinity, "allowed_cpus": quota or affinity}}


@pytest.mark.parametrize(
    ("devices", "threads"),
    [(None, 16), (Devices(), 16), (Devices(inter_op_threads=4, intra_op_threads=8), 8)],
)
def test_more_threads_than_the_quota(evidence, devices, threads: int) -> None:
    found = only(cpu_quota, evidence("contention", devices=devices, environment=cpu(2.0)))
    assert (found.rule, found.severity, found.limiting) == ("cpu-quota", "warning", True)
    assert found.evidence == {"quota_cpus": 2.0, "visible_cpus": 16.0, "threads": threads}
    assert "set_intra_op_parallelism_threads(2)" in found.remedy
    assert not only(cpu_quota, evidence("compute", devices=devices, environment=cpu(2.0))).limiting


def test_half_a_processor_still_gets_one_thread(evidence) -> None:
    assert "threads(1)" in only(cpu_quota, evidence("compute", environment=cpu(0.5))).remedy


@pytest.mark.parametrize(
    ("environment", "devices"),
    [
        (cpu(None), None),
        (cpu(16.0), None),
        (cpu(2.0), Devices(inter_op_threads=2, intra_op_threads=2)),
        ({}, None),
        ({"cpu": None}, None),
        ({"cpu": {"quota_cpus": 2.0}}, None),
    ],
)
def test_no_quota_or_threads_within_it(evidence, environment, devices) -> None:
    assert silent(cpu_quota, evidence("contention", devices=devices, environment=environment))


def stopped(build, share: float):
    """A trial whose quota stopped its threads for a share of the time."""
    record = build.ladder(steps=100)
    columns = record.segment("as_is").columns
    start, end = columns["start_ns"][0], columns["start_ns"][-1] + columns["wall_ns"][-1]
    times = tuple(int(start + n * (end - start) / 10) for n in range(10))
    host = HostReadings(t_ns=times, throttled_s=tuple(share * (t - start) / 1e9 for t in times))
    return [record.model_copy(update={"readings": Readings(host=host)})]


def test_a_quota_that_stopped_threads_and_one_that_did_not(evidence, build) -> None:
    found = only(cpu_quota, evidence("compute", ladder=stopped(build, 0.4), environment=cpu(2.0)))
    assert (found.severity, found.limiting) == ("warning", False)
    assert found.evidence["stopped_s_per_s"] == pytest.approx(0.4)
    assert "stopped them for 40% of the time" in found.title
    idle = only(cpu_quota, evidence("compute", ladder=stopped(build, 0.0), environment=cpu(2.0)))
    assert idle.severity == "info"
    few = Devices(inter_op_threads=2, intra_op_threads=2)
    within = evidence("compute", ladder=stopped(build, 0.4), environment=cpu(2.0), devices=few)
    assert only(cpu_quota, within).severity == "warning", "Python's own threads count too"


MB = 1_000_000
STEPS, STEP_S, SAMPLES = 240, 0.03, 34
MEMORY = {"memory": {"total_bytes": 8_000 * MB, "limit_bytes": None}}


def trial(build, resident: np.ndarray, *, epochs: int = 1, number: int = 0):
    """A trial of 240 steps in 7.2 s beside these samples of its memory."""
    epoch = np.arange(STEPS) * epochs // STEPS
    record = build.ladder(
        steps=STEPS, number=number, step_columns={"epoch": epoch, "step_s": STEP_S, "calls_s": STEP_S}
    )
    columns = record.segment("as_is").columns
    start, end = columns["start_ns"][0], columns["start_ns"][-1] + columns["wall_ns"][-1]
    at = np.linspace(start + 1, end - 1, len(resident)).astype(int)
    host = HostReadings(t_ns=tuple(int(t) for t in at), rss_bytes=tuple(int(value) for value in resident))
    return record.model_copy(update={"readings": Readings(host=host)})


def line(megabytes: float, *, noise: float = 0.2, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (500 + np.linspace(0, megabytes, SAMPLES) + noise * rng.standard_normal(SAMPLES)) * MB


def leaks(evidence, build, *shapes: np.ndarray, epochs: int = 1, **fields):
    ladder = [trial(build, shape, epochs=epochs, number=n) for n, shape in enumerate(shapes)]
    return list(memory_leak(evidence("compute", ladder=ladder, **({"environment": MEMORY} | fields))))


def test_a_megabyte_a_step(evidence, build) -> None:
    (found,) = leaks(evidence, build, line(240))
    assert (found.rule, found.severity, found.limiting) == ("memory-leak", "critical", False)
    assert found.evidence["bytes_per_step"] == pytest.approx(MB, rel=0.05)
    # 8,000 MB less the 740 MB of the end, at a megabyte a step
    assert found.evidence["steps_left"] == pytest.approx(7260, rel=0.05)
    assert "after 7," in found.title


def test_without_a_known_limit_no_end_is_told(evidence, build) -> None:
    (found,) = leaks(evidence, build, line(240), environment={})
    assert found.severity == "warning"
    assert found.evidence["steps_left"] is None


def test_the_control_groups_limit_comes_first(evidence, build) -> None:
    memory = {"memory": {"total_bytes": 8_000 * MB, "limit_bytes": 1_000 * MB}}
    (found,) = leaks(evidence, build, line(240), environment=memory)
    assert "control group" in found.title
    assert found.evidence["steps_left"] == pytest.approx(260, rel=0.1)


def test_traces_without_end_are_named(evidence, build) -> None:
    traces = [Trace(step=n, function="f", reason="python value", signature="", time_s=0.1) for n in range(100)]
    (found,) = leaks(evidence, build, line(240), traces=traces)
    assert "Each trace" in found.remedy


@pytest.mark.parametrize(
    "shape",
    [
        line(0, noise=3.0),
        line(4),  # an allocator's pools
        np.concatenate([line(240)[: SAMPLES // 2], np.full(SAMPLES - SAMPLES // 2, 620 * MB)]),  # filled up half way
        np.where(np.arange(SAMPLES) < 20, 500, 700) * MB,  # one jump
        (500 + 200 * (1 - np.exp(-np.arange(SAMPLES) / 5))) * MB,  # levels off
        (600 + 50 * np.sin(np.arange(SAMPLES) / 2)) * MB,  # comes and goes
        line(-240),
        line(240)[::5],  # too few samples
    ],
)
def test_what_is_no_leak(evidence, build, shape) -> None:
    assert leaks(evidence, build, shape) == []


def test_every_process_must_show_it(evidence, build) -> None:
    assert len(leaks(evidence, build, line(240), line(200, seed=1))) == 1
    assert leaks(evidence, build, line(240), line(0)) == []
    assert len(leaks(evidence, build, line(240), line(240)[:5])) == 1, "one that was hardly sampled tells nothing"


def cache(**fields) -> Pipeline:
    return Pipeline(ops=(PipelineOp(name="c", op="CacheDatasetV2", **fields),), injects_prefetch=False)


def test_a_cache_in_its_first_pass_is_no_leak(evidence, build) -> None:
    assert leaks(evidence, build, line(240), pipeline=cache()) == []
    stored = cache(element_bytes=float(MB), elements_per_batch=1.0)
    assert leaks(evidence, build, line(240), pipeline=stored) == []
    assert len(leaks(evidence, build, line(240), pipeline=cache(element_bytes=1e4, elements_per_batch=1.0))) == 1
    assert len(leaks(evidence, build, line(240), pipeline=cache(), epochs=2)) == 1, "it was full after the first pass"
    assert len(leaks(evidence, build, line(240), pipeline=cache(filename="/data/cache"))) == 1


def test_buffers_that_can_hold_it_are_no_leak(evidence, build) -> None:
    batches = Batches(cached=2, bytes=2 * MB, shapes=("a",), static_signature="")
    op = PipelineOp(name="p", op="PrefetchDataset", buffer_size=300)
    assert leaks(evidence, build, line(240), pipeline=Pipeline(ops=(op,)), batches=batches) == []
    small = op.model_copy(update={"buffer_size": 2})
    assert len(leaks(evidence, build, line(240), pipeline=Pipeline(ops=(small,)), batches=batches)) == 1


READING_STEPS = 100
IDLE = Estimate(estimate=0.01, low=0.01, high=0.01)
BUSY = Estimate(estimate=0.09, low=0.09, high=0.09)
BATCHES = Batches(cached=1, bytes=MB, shapes=("a",), static_signature="")


def read(build, *, stored: float, calls: float | None, epochs: int = 1, over_by: float = 1.0):
    """A trial in which each step read so many bytes; from storage all of them in the first so many of the steps."""
    epoch = np.arange(READING_STEPS) * epochs // READING_STEPS
    record = build.ladder(steps=READING_STEPS, step=0.1, step_columns={"epoch": epoch})
    columns = record.segment("as_is").columns
    start, end = columns["start_ns"][0], columns["start_ns"][-1] + columns["wall_ns"][-1]
    share = np.linspace(0, 1, 20)
    host = HostReadings(
        t_ns=tuple(int(start + part * (end - start)) for part in share),
        read_bytes=tuple(int(7 * MB + min(part / over_by, 1.0) * stored * READING_STEPS) for part in share),
        read_call_bytes=() if calls is None else tuple(int(9 * MB + part * calls * READING_STEPS) for part in share),
        major_faults=tuple(int(100 * part) for part in share),
    )
    return record.model_copy(update={"readings": Readings(host=host)})


def reads(evidence, trial, bottleneck="input", **fields):
    return list(
        cold_storage(evidence(bottleneck, ladder=[trial], **({"input_cpu_s": IDLE, "batches": BATCHES} | fields)))
    )


def test_an_input_that_waits_for_the_disk(evidence, build) -> None:
    (found,) = reads(evidence, read(build, stored=MB, calls=MB))
    assert (found.rule, found.severity, found.limiting) == ("cold-storage", "warning", True)
    assert found.evidence["storage_share"] == pytest.approx(1.0, rel=0.01)
    assert found.evidence["storage_bytes_per_step"] == pytest.approx(MB, rel=0.01)
    assert found.evidence["major_faults_per_step"] == pytest.approx(1.0, rel=0.01)
    assert "100% of what the steps read came from storage" in found.title


@pytest.mark.parametrize(
    ("bottleneck", "input_cpu_s", "stored"),
    [
        ("compute", IDLE, 1.0),  # the step does not wait for it
        ("input", BUSY, 1.0),  # the input computes
        ("input", None, 1.0),  # nobody knows whether it computes
        ("input", IDLE, 0.3),  # most came from the page cache
    ],
)
def test_reads_from_storage_that_do_not_limit(evidence, build, bottleneck, input_cpu_s, stored) -> None:
    (found,) = reads(evidence, read(build, stored=stored * MB, calls=MB), bottleneck, input_cpu_s=input_cpu_s)
    assert (found.severity, found.limiting) == ("info", False)


@pytest.mark.parametrize(("over_by", "limiting"), [(0.3, False), (0.5, False), (0.8, True), (1.0, True)])
def test_what_is_read_at_the_start_alone_is_not_waited_for(evidence, build, over_by: float, limiting: bool) -> None:
    (found,) = reads(evidence, read(build, stored=MB, calls=MB, over_by=over_by))
    assert found.limiting is limiting


@pytest.mark.parametrize(("cpu_s", "limiting"), [(0.02, True), (0.2, False), (0.0, False)])
def test_a_process_that_hardly_computes_waits(evidence, build, cpu_s: float, limiting: bool) -> None:
    given = {"input_cpu_s": None, "steps": build.steps(wait_s=0.1, cpu_s=cpu_s, steps=100)}
    (found,) = reads(evidence, read(build, stored=MB, calls=MB), **given)
    assert found.limiting is limiting
    assert (found.predicted_speedup is not None) is limiting


def test_mapped_files_are_read_without_a_call(evidence, build) -> None:
    (found,) = reads(evidence, read(build, stored=MB, calls=1000))
    assert found.limiting
    assert found.evidence["storage_share"] == pytest.approx(1.0)


def test_a_first_pass_from_the_page_cache_says_what_was_not_measured(evidence, build) -> None:
    (found,) = reads(evidence, read(build, stored=0, calls=MB))
    assert (found.severity, found.limiting) == ("info", False)
    assert "not measured" in found.title
    assert reads(evidence, read(build, stored=0, calls=MB, epochs=3)) == [], "training reads them again and again too"


def test_a_data_set_larger_than_memory_does_not_stay_in_the_page_cache(evidence, build) -> None:
    ops = (
        PipelineOp(name="a", op="TensorSliceDataset", cardinality=80_000, elements_per_batch=8.0),
        PipelineOp(name="b", op="RepeatDataset", cardinality=-1, elements_per_batch=8.0),
    )
    memory = {"memory": {"total_bytes": 64_000 * MB, "limit_bytes": 4_000 * MB}}
    trial = read(build, stored=0, calls=MB, epochs=2)
    (found,) = reads(evidence, trial, pipeline=Pipeline(ops=ops), environment=memory)
    # 10,000 batches of a megabyte
    assert found.evidence["pass_bytes"] == pytest.approx(10_000 * MB, rel=0.01)
    assert "later passes read from storage again" in found.title
    short = (ops[0].model_copy(update={"cardinality": 160}), ops[1])
    repeated = read(build, stored=0, calls=MB)
    assert reads(evidence, repeated, pipeline=Pipeline(ops=short)) == [], "20 batches a pass, read five times"
    large = {"memory": {"total_bytes": 64_000 * MB, "limit_bytes": None}}
    assert reads(evidence, trial, pipeline=Pipeline(ops=ops), environment=large) == []


@pytest.mark.parametrize(
    ("stored", "calls"),
    [(0, 1000), (1000, 1000), (0.05 * MB, 0.1 * MB), (0, None)],
)
def test_little_that_is_read_tells_nothing(evidence, build, stored, calls) -> None:
    assert reads(evidence, read(build, stored=stored, calls=calls)) == []


def test_without_readings_nothing_is_said(evidence, build) -> None:
    assert reads(evidence, build.ladder()) == []
    assert list(cold_storage(evidence("input"))) == []
