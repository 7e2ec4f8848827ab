"""A profiled window by hand: copies that nothing hides, GPUs that do not do the same, collectives."""

from __future__ import annotations

import pytest

from xttsbench.findings.machine.gpu_activity import exposed_copies, gpu_collectives, gpu_imbalance
from xttsbench.records.gpu_activity import GpuActivity, GpuDevice


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
        bytes={"to_device": 4096} if copy else {},
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
    assert said.evidence["bytes_to_device"] == 4096
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
