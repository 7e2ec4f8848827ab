from __future__ import annotations

import pytest

from tests.unit.findings.made import only, silent
from xttsbench.findings.processors import cpu_quota, gpu_invisible, slower_beside_input
from xttsbench.records.readings import HostReadings, Readings
from xttsbench.records.trial import Devices

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
    ("devices", "threads"), [(None, 16), (Devices(), 16), (Devices(inter_op_threads=4, intra_op_threads=8), 8)]
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


def test_a_step_that_is_slower_beside_its_input_for_no_known_reason(evidence, build) -> None:
    found = only(slower_beside_input, evidence("compute", slower_beside_input=build.estimate(0.4)))
    assert (found.severity, found.limiting) == ("warning", False)
    assert found.title == "the step is slower beside its input by 40% of its time, cause not known"
    assert found.evidence["share_of_step"] == 0.4
    assert "memory bandwidth" in found.remedy
    assert silent(slower_beside_input, evidence("compute"))
