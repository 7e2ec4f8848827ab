from __future__ import annotations

import pytest

from xttsbench.analysis.readings import gpu_samples, summarise
from xttsbench.analysis.spans import Span
from xttsbench.records.readings import GpuReadings, HostReadings, Readings

S = 1_000_000_000


def host(**changes: object) -> HostReadings:
    """Samples at 0..6 s; the steps run from 1 to 5 s."""
    fields = {
        "t_ns": tuple(i * S for i in range(7)),
        "cpu_s": (0.0, 10.0, 11.0, 12.0, 13.0, 16.0, 99.0),
        "rss_bytes": (999, 10, 20, 70, 30, 40, 999),
        "major_faults": (0, 100, 100, 102, 102, 104, 900),
        "read_bytes": (0, 1000, 1000, 1000, 1000, 9000, 90000),
        "machine_busy_s": (0.0, 90.0, 91.0, 92.0, 93.0, 95.0, 500.0),
        "machine_steal_s": (0.0, 1.0, 1.0, 1.0, 2.0, 2.0, 500.0),
        "machine_idle_s": (0.0, 0.0, 1.0, 2.0, 2.0, 2.0, 500.0),
        "thread_group_cpu_s": {"tf_data": 3.0},
    }
    return HostReadings(**(fields | changes))


def test_only_samples_during_the_steps_count_and_rates_are_per_step() -> None:
    found = summarise(Readings(host=host()), Span(1 * S, 5 * S, 8))["host"]
    assert found == {
        "samples": 5,
        "thread_group_cpu_s": {"tf_data": 3.0},
        "cpus_used": pytest.approx(6.0 / 4),
        "cpu_s_per_step": pytest.approx(6.0 / 8),
        "rss_bytes_max": 70,
        "major_faults_per_step": pytest.approx(4 / 8),
        "read_bytes_per_step": pytest.approx(1000.0),
        "machine_busy": pytest.approx(5 / 8),
        "machine_steal": pytest.approx(1 / 8),
    }


def test_the_ends_between_samples_are_filled_in() -> None:
    found = summarise(Readings(host=host()), Span(3 * S // 2, 11 * S // 2, 16))["host"]
    used_s = 0.5 + 1 + 1 + 3 + 83 / 2
    assert found["cpus_used"] == pytest.approx(used_s / 4)
    assert found["cpu_s_per_step"] == pytest.approx(used_s / 16)


@pytest.mark.parametrize(("start", "end"), [(2 * S, 2 * S), (100 * S, 200 * S)])
def test_without_samples_there_are_no_rates_but_a_reason(start: int, end: int) -> None:
    found = summarise(Readings(host=host(rss_bytes=())), Span(start, end, 5))
    assert set(found["host"]) == {"samples", "thread_group_cpu_s"}
    assert "sample" in found["unmeasured"]["host"]


def test_what_the_host_does_not_give_is_left_out_with_its_reason() -> None:
    readings = Readings(host=host(read_bytes=(), unmeasured={"read_bytes": "no /proc/self/io"}))
    found = summarise(readings, Span(1 * S, 5 * S, 8))
    assert "read_bytes_per_step" not in found["host"]
    assert found["unmeasured"] == {"host.read_bytes": "no /proc/self/io"}


def test_no_readings_at_all_say_why() -> None:
    assert summarise(Readings(), Span(0, S, 1)) == {"unmeasured": {"host": "not sampled"}, "gpus": []}
    readings = Readings(unmeasured={"host": "psutil failed", "gpus": "no NVIDIA driver"})
    assert summarise(readings, Span(0, S, 1))["unmeasured"] == {"host": "psutil failed", "gpus": "no NVIDIA driver"}


def gpu(**changes: object) -> GpuReadings:
    fields = {
        "index": 0,
        "name": "GPU",
        "uuid": "GPU-0",
        "t_ns": (0, S, 2 * S, 3 * S, 9 * S),
        "memory_used_bytes": (1, 5, None, 7, 99),
        "memory_total_bytes": 100,
        "sm_clock_mhz": (0, 1000, None, 2000, 9),
        "throttle_reasons": (64, 1, 4, None, 8),
        "power_w": (None, None, None, None, 300.0),
        "pcie_rx_bytes_per_s": (0, 10, 20, 30, 0),
        "utilization_t_ns": (0, S, S + 1, 3 * S, 9 * S),
        "utilization": (1.0, 0.2, 0.4, 0.6, 1.0),
        "unmeasured": {"pcie_tx_bytes_per_s": "not supported"},
    }
    return GpuReadings(**(fields | changes))


def test_a_gpu_is_summed_up_over_the_steps_with_gaps_left_out() -> None:
    (found,) = summarise(Readings(gpus=(gpu(),)), Span(S, 3 * S, 4))["gpus"]
    assert found == {
        "index": 0,
        "name": "GPU",
        "utilization": pytest.approx(0.4),
        "utilization_p5": pytest.approx(0.22),
        "utilization_p95": pytest.approx(0.58),
        "memory_used_bytes_max": 7,
        "memory_total_bytes": 100,
        "sm_clock_mhz": 1500.0,
        "throttle_reasons": 5,
        "pcie_rx_bytes_per_s": 20.0,
        "pcie_tx_bytes_per_s": None,
        "power_w": None,
        "unmeasured": {"pcie_tx_bytes_per_s": "not supported"},
    }


def test_without_a_sample_in_the_steps_a_gpu_gives_none_and_never_zero() -> None:
    (found,) = summarise(Readings(gpus=(gpu(),)), Span(20 * S, 30 * S, 4))["gpus"]
    numbers = {name: value for name, value in found.items() if name not in ("index", "name", "unmeasured")}
    assert numbers.pop("memory_total_bytes") == 100
    assert set(numbers.values()) == {None}


def test_throttle_reasons_that_the_driver_does_not_give_are_none_and_not_unthrottled() -> None:
    (found,) = summarise(Readings(gpus=(gpu(throttle_reasons=()),)), Span(S, 3 * S, 4))["gpus"]
    assert found["throttle_reasons"] is None


def test_samples_of_a_gpu_outside_of_the_steps_do_not_count(build) -> None:
    trial = build.trial("ladder", build.segment(step_s=[0.5] * 4), readings=Readings(gpus=(gpu(),)))
    assert gpu_samples(trial).tolist() == [0.2, 0.4, 0.6]  # from 1 to 3 s
    assert gpu_samples(build.trial("ladder")).size == 0
