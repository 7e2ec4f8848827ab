"""When a trial measured, and what a counter did meanwhile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.analysis.readings import (
    Intervals,
    Span,
    beside_profile,
    both,
    clip,
    complement,
    covered,
    gpu_samples,
    intervals,
    measured_span,
    nothing,
    own_gpus,
    spans_of,
    summarise,
    total,
    turns_of,
    union,
    without,
)
from xttsbench.records.readings import GpuActivity, GpuDevice, GpuReadings, HostReadings, Readings
from xttsbench.records.trial import RoundMark

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


SECOND = 1_000_000_000


def nvml(index: int, *processes: int, **fields: object) -> GpuReadings:
    return GpuReadings(index=index, name="H", uuid=f"GPU-{index}", processes=processes, **fields)


def readings_of(*gpus: GpuReadings) -> Readings:
    return Readings(host=HostReadings(pids=(100,)), gpus=gpus)


@pytest.mark.parametrize(
    ("processes", "mask", "indices"),
    [
        (((100,), (7,), (100, 7)), None, [0, 2]),
        (((), (), ()), None, [0, 1, 2]),  # a driver in a container tells nothing of processes
        (((), (), ()), "2,0", [2, 0]),
        (((), (), ()), "GPU-1", [1]),
        (((), (), ()), "", []),
        (((100,), (100,), ()), "1,0", [1, 0]),
        (((100,), (), ()), "MIG-7", [0]),
        (((100,), (7,), ()), "1,0", [0]),
    ],
)
def test_the_gpus_of_the_process_in_the_order_in_which_it_counts_them(processes, mask, indices) -> None:
    found = own_gpus(readings_of(*(nvml(index, *own) for index, own in enumerate(processes))), mask)
    assert [gpu.index for gpu in found] == indices


def window(*indices: int) -> GpuActivity:
    nothing = dict.fromkeys(("kernel_s", "collective_s", "copy_s", "collective_alone_s", "copy_alone_s", "idle_s"), 0.0)
    devices = tuple(GpuDevice(index=index, **nothing) for index in indices)
    return GpuActivity(steps=2, step_s=1.0, start_ns=S, step_ends_ns=(2 * S, 3 * S), devices=devices)


def test_nvml_beside_the_profiled_window_is_of_that_window_alone() -> None:
    times = tuple(n * S // 2 for n in range(10))
    busy = tuple(n / 10 for n in range(10))
    gpus = [nvml(index, 100, utilization_t_ns=times, utilization=busy) for index in (0, 1)]
    first, second = beside_profile(window(0, 1), readings_of(*gpus), "1,0")
    assert (first["gpu"], first["index"], second["gpu"], second["index"]) == (0, 1, 1, 0)
    assert first["samples"] == 5  # at 1, 1.5, 2, 2.5 and 3 s
    assert first["utilization"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("activity", "gpus", "why"),
    [
        (window(0), [], "no driver"),
        (window(0, 1), [nvml(0, 100)], "NVML names 1 GPUs of this process, and TensorFlow 2"),
    ],
)
def test_where_nvml_cannot_be_laid_beside_it_there_is_a_reason(activity, gpus, why) -> None:
    readings = readings_of(*gpus).model_copy(update={"unmeasured": {"gpus": "no driver"}})
    assert [found["unmeasured"] for found in beside_profile(activity, readings)] == [{"utilization": why}] * len(
        activity.devices
    )


def host_with(*cpu_s: float, start_s: float = 0.0, every_s: float = 1.0) -> HostReadings:
    return HostReadings(t_ns=tuple(int((start_s + every_s * i) * SECOND) for i in range(len(cpu_s))), cpu_s=cpu_s)


def test_the_ends_between_two_samples_are_filled_in_evenly() -> None:
    readings = host_with(0, 10, 10, 30)  # 10 in the first second, none, 20 in the third
    assert Span(0, 3 * SECOND).growth(readings, "cpu_s") == pytest.approx(30)
    assert Span(SECOND // 2, 5 * SECOND // 2).growth(readings, "cpu_s") == pytest.approx(5 + 0 + 10)
    assert Span(SECOND // 4, SECOND // 2).growth(readings, "cpu_s") == pytest.approx(2.5)


def test_what_lies_beyond_the_samples_goes_on_as_within_them() -> None:
    readings = host_with(0, 10, 20, start_s=1)
    assert Span(0, 3 * SECOND).growth(readings, "cpu_s") == pytest.approx(30)
    assert Span(2 * SECOND, 4 * SECOND).growth(readings, "cpu_s") == pytest.approx(20)


@pytest.mark.parametrize(
    ("span", "readings"),
    [
        (Span(5 * SECOND, 9 * SECOND), host_with(0, 10, 20)),  # after the samples
        (Span(0, 9 * SECOND), host_with(0, 10, 20)),  # they cover less than half
        (Span(0, SECOND), host_with(1)),  # one sample
        (Span(0, SECOND), HostReadings(t_ns=(0, SECOND))),  # not read
        (Span(SECOND, SECOND), host_with(0, 10, 20)),
    ],
)
def test_what_was_not_read_is_not_zero(span: Span, readings: HostReadings) -> None:
    assert span.growth(readings, "cpu_s") is None


def test_counters_since_the_machine_s_start_lose_nothing_to_rounding() -> None:
    readings = HostReadings(t_ns=(10**17, 10**17 + SECOND), cpu_s=(1e9, 1e9 + 0.25))
    assert Span(10**17, 10**17 + SECOND // 2).growth(readings, "cpu_s") == pytest.approx(0.125)


def test_a_span_goes_from_the_first_measured_step_to_the_end_of_the_last(build) -> None:
    segment = build.segment(wait_s=0.02, step_s=[0.08] * 10, gap_s=0.02, warmup=4, epoch=np.repeat([0, 1], 5))
    span = measured_span(build.trial("ladder", segment))
    first = segment.columns["start_ns"][4]
    assert span == Span(first, first + SECOND * 70 // 100, 6, 2)  # what comes after the last step is not part of it
    assert spans_of(segment) == (span,)
    assert measured_span(build.trial("ladder", build.segment(step_s=[0.1] * 3, warmup=3))) is None
    assert measured_span(build.trial("ladder")) is None


def test_rows_of_several_rounds_are_as_many_spans(build) -> None:
    segment = build.segment(step_s=[0.1] * 9, warmup=1, round=[0, 0, 0, 1, 1, 1, 4, 4, 4])
    assert [span.steps for span in spans_of(segment)] == [2, 3, 3]
    assert measured_span(build.trial("arm", segment)).steps == 8


def test_a_trial_measures_in_its_turns_else_as_it_is_else_in_all_that_it_has(build) -> None:
    as_is, alone = build.segment(step_s=[0.1] * 9), build.segment("step_only", step_s=[0.2] * 4)
    mark = RoundMark(round=2, start_ns=5, end_ns=9)
    assert turns_of(build.trial("arm", as_is, alone, rounds=(mark,))) == (Span(5, 9),)
    assert turns_of(build.trial("arm", as_is, alone)) == spans_of(as_is)
    assert turns_of(build.trial("graph", alone)) == spans_of(alone)
    assert turns_of(build.trial("pipeline")) == ()


rows = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=10)


def of(raw: list[tuple[int, int]]) -> Intervals:
    return intervals([start for start, _ in raw], [start + length for start, length in raw])


def moments(found: Intervals) -> set[int]:
    return {tick for start, end in found.tolist() for tick in range(start, end)}


@given(rows)
def test_a_union_is_sorted_disjoint_and_covers_the_same(raw: list[tuple[int, int]]) -> None:
    found = union(of(raw))
    assert moments(found) == moments(of(raw))
    assert total(found) == len(moments(found))
    assert (found[:, 1] > found[:, 0]).all()
    assert (found[1:, 0] > found[:-1, 1]).all()


@given(rows, rows)
def test_both_and_without_are_those_of_sets(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b = union(of(one)), union(of(other))
    assert moments(both(a, b)) == moments(a) & moments(b)
    assert moments(without(a, b)) == moments(a) - moments(b)
    assert total(both(a, b)) + total(without(a, b)) == total(a)
    assert moments(union(a, b)) == moments(a) | moments(b)


@given(rows, st.integers(0, 40), st.integers(0, 40))
def test_a_window_is_what_is_covered_and_what_is_not(raw: list[tuple[int, int]], start: int, length: int) -> None:
    found, end = union(of(raw)), start + length
    inside, outside = moments(clip(found, start, end)), moments(complement(found, start, end))
    assert inside == moments(found) & set(range(start, end))
    assert inside | outside == set(range(start, end))
    assert not inside & outside


@given(rows, rows)
def test_how_much_of_each_window_is_covered(raw: list[tuple[int, int]], windows: list[tuple[int, int]]) -> None:
    found = union(of(raw))
    expected = [len(moments(found) & set(range(start, start + length))) for start, length in windows]
    assert covered(found, of(windows)).tolist() == expected


@pytest.mark.parametrize(
    "found", [union(), union(nothing()), both(nothing(), of([(0, 5)])), without(nothing(), nothing())]
)
def test_nothing_stays_nothing(found: Intervals) -> None:
    assert found.shape == (0, 2)
    assert total(found) == 0


def test_times_of_a_long_profile_are_exact() -> None:
    start = 9 * 10**18
    found = union(intervals([start, start + 1], [start + 3, start + 10]))
    assert found.tolist() == [[start, start + 10]]
    assert np.issubdtype(found.dtype, np.int64)
