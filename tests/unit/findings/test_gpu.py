"""GPUs by hand: who else holds them, and what holds their clocks back."""

from __future__ import annotations

from typing import Any

import pytest

from xttsbench.findings.gpu import exposed_copies, gpu_collectives, gpu_imbalance, gpu_shared, gpu_throttled
from xttsbench.records.readings import GpuActivity, GpuDevice, GpuReadings, HostReadings, Readings
from xttsbench.records.trial import Devices

GB = 1_000_000_000
OWN = 100
SEEN = Devices(gpus=("GPU:0",), built_with_cuda=True)


def trial(build, *gpus: dict[str, Any], pids: tuple[int, ...] = (OWN,)):
    record = build.ladder(steps=100)
    columns = record.segment("as_is").columns
    start, end = columns["start_ns"][0], columns["start_ns"][-1]
    times = tuple(int(start + n * (end - start) / 10) for n in range(10))
    made = []
    for index, fields in enumerate(gpus):
        given = {"index": index, "name": "H", "uuid": f"GPU-{index}", "t_ns": times, "memory_total_bytes": 80 * GB}
        made.append(GpuReadings(**(given | fields)))
    readings = Readings(host=HostReadings(t_ns=times, pids=pids), gpus=tuple(made))
    return record.model_copy(update={"readings": readings})


def find(rule, evidence, record, bottleneck="compute", devices=SEEN, **environment):
    return list(rule(evidence(bottleneck, ladder=[record], devices=devices, environment=environment)))


def before(**fields: Any) -> dict[str, Any]:
    return {"gpus": [{"uuid": "GPU-0", "processes_before": 0, "memory_used_before_bytes": GB // 2} | fields]}


def test_another_process_on_the_same_gpu(evidence, build) -> None:
    (found,) = find(gpu_shared, evidence, trial(build, {"processes": (OWN, 7, 8)}))
    assert (found.rule, found.severity, found.limiting) == ("gpu-shared", "warning", False)
    assert found.evidence["other_processes"] == 2
    assert find(gpu_shared, evidence, trial(build, {"processes": (OWN,)}), **before()) == []


def test_a_child_process_is_not_another(evidence, build) -> None:
    assert find(gpu_shared, evidence, trial(build, {"processes": (OWN, 101)}, pids=(OWN, 101))) == []


def test_ids_of_another_name_space_name_nobody(evidence, build) -> None:
    assert find(gpu_shared, evidence, trial(build, {"processes": (9001,)}), **before()) == []
    (found,) = find(gpu_shared, evidence, trial(build, {"processes": (9001, 9002)}), **before(processes_before=1))
    assert found.evidence["other_processes"] == 1


def test_memory_that_was_taken_before_the_run(evidence, build) -> None:
    (found,) = find(gpu_shared, evidence, trial(build, {}), **before(memory_used_before_bytes=30 * GB))
    assert "30 GB were taken before" in found.title
    assert find(gpu_shared, evidence, trial(build, {}), **before(memory_used_before_bytes=GB)) == []


def test_only_gpus_that_the_steps_use(evidence, build) -> None:
    busy_other = trial(build, {"processes": (OWN,)}, {"processes": (7,)})
    assert find(gpu_shared, evidence, busy_other) == []
    other = {"gpus": [{"uuid": "GPU-1", "processes_before": 3}]}
    masked = {"variables": {"CUDA_VISIBLE_DEVICES": "0"}}
    assert find(gpu_shared, evidence, trial(build, {}, {}), **other, **masked) == []
    assert len(find(gpu_shared, evidence, trial(build, {}, {}), **other)) == 1
    assert find(gpu_shared, evidence, trial(build, {"processes": (OWN, 7)}), devices=Devices()) == []


def throttled(build, masks: tuple[int | None, ...], clock: int = 1200):
    fields = {"throttle_reasons": masks, "sm_clock_mhz": (clock,) * 10, "max_sm_clock_mhz": 1980}
    return trial(build, fields | {"power_w": (300.0,) * 10})


def test_heat_that_slows_a_step_that_computes(evidence, build) -> None:
    (found,) = find(gpu_throttled, evidence, throttled(build, (0x40,) * 8 + (0, 0)))
    assert (found.rule, found.severity, found.limiting) == ("gpu-throttled", "warning", True)
    assert "hw_thermal_slowdown 80%" in found.title
    assert found.evidence["clock_share"] == pytest.approx(1200 / 1980)
    assert "Cool it" in found.remedy
    assert not find(gpu_throttled, evidence, throttled(build, (0x40,) * 10), "input")[0].limiting
    assert not find(gpu_throttled, evidence, throttled(build, (0x40,) * 10, clock=1950))[0].limiting


def test_the_power_limit_is_reached_by_design(evidence, build) -> None:
    (found,) = find(gpu_throttled, evidence, throttled(build, (0x4,) * 10, clock=1900))
    assert (found.severity, found.limiting) == ("info", False)
    assert find(gpu_throttled, evidence, throttled(build, (0x4,) * 10, clock=1000))[0].severity == "warning"


@pytest.mark.parametrize("masks", [(0,) * 10, (0x1,) * 10, (0x2,) * 10, (0x100,) * 10, (None,) * 10, ()])
def test_idle_clocks_and_clocks_set_by_hand_are_not_held_back(evidence, build, masks) -> None:
    assert find(gpu_throttled, evidence, throttled(build, masks)) == []


def test_unsampled_gpus_say_nothing(evidence, build) -> None:
    assert list(gpu_throttled(evidence("compute", devices=SEEN))) == []
    assert find(gpu_throttled, evidence, build.ladder()) == []


def device(index: int = 0, kernel: float = 9e-3, collective: float = 0.0, copy: float = 0.0) -> GpuDevice:
    """Seconds of a step of 10 ms; what is left of it is idle."""
    return GpuDevice(
        index=index,
        kernel_s=kernel,
        collective_s=collective,
        copy_s=copy,
        collective_alone_s=collective,
        copy_alone_s=copy,
        idle_s=10e-3 - kernel - collective - copy,
    )


def found(rule, evidence, *devices: GpuDevice, **fields):
    gpu = GpuActivity(steps=20, step_s=10e-3, devices=devices, **fields)
    return list(rule(evidence("compute", gpu=gpu)))


@pytest.mark.parametrize("rule", [exposed_copies, gpu_imbalance, gpu_collectives])
def test_without_a_profile_or_a_gpu_there_is_nothing_to_find(evidence, rule) -> None:
    assert list(rule(evidence("compute"))) == []
    assert found(rule, evidence) == []
    assert found(rule, evidence, device()) == []


def test_copies_that_nothing_hides(evidence) -> None:
    assert found(exposed_copies, evidence, device(kernel=8e-3, copy=0.9e-3)) == []
    (said,) = found(exposed_copies, evidence, device(), device(1, kernel=5e-3, copy=2e-3))
    assert (said.rule, said.severity, said.limiting) == ("exposed-copies", "warning", False)
    assert said.title == "GPU 1 copies for 20% of the step and computes nothing meanwhile"
    assert "prefetch_to_device" in said.remedy


def test_gpus_that_do_not_do_the_same(evidence) -> None:
    even = [device(0), device(1)]
    assert found(gpu_imbalance, evidence, *even, imbalance=0.09, slowest=1, slowest_share=0.5) == []
    uneven = [device(0, kernel=4e-3), device(1, kernel=8e-3)]
    (said,) = found(gpu_imbalance, evidence, *uneven, imbalance=1 / 3, slowest=1, slowest_share=0.95)
    assert said.title == "GPU 1 computes 33% longer than the mean of 2"
    assert said.severity == "warning"
    assert said.evidence["kernel_s_per_step_mean"] == pytest.approx(6e-3)
    assert said.evidence["slowest_in_share_of_steps"] == 0.95


def test_a_visible_gpu_that_computes_nothing_is_worth_knowing(evidence) -> None:
    (said,) = found(gpu_imbalance, evidence, device(0), device(1, kernel=0.0), device(2, kernel=0.0))
    assert (said.title, said.severity) == ("GPUs 1, 2 run no kernel", "info")
    assert found(gpu_imbalance, evidence, device(0, kernel=0.0), device(1, kernel=0.0)) == []


def test_collectives_that_nothing_hides(evidence) -> None:
    assert found(gpu_collectives, evidence, device(collective=0.5e-3), device(1)) == []
    (said,) = found(gpu_collectives, evidence, device(kernel=5e-3, collective=4e-3), device(1), imbalance=0.2)
    assert said.title == "GPU 0 is in collectives for 40% of the step and computes nothing meanwhile"
    assert said.evidence["imbalance"] == 0.2
