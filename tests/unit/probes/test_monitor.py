"""The monitor's rhythm on an injected clock, with a recording host and GPU probe."""

from __future__ import annotations

from typing import cast

import pytest

from xttsbench.probes.monitor import HostProbe, Monitor
from xttsbench.probes.nvml import GpuProbe
from xttsbench.records.readings import GpuReadings, HostReadings

MS = 1_000_000


class Recorder:
    """Stands for both probes: counts the calls."""

    def __init__(self) -> None:
        self.samples = 0
        self.restarts = 0

    def restart(self) -> None:
        self.restarts += 1
        self.samples = 0

    def sample(self) -> None:
        self.samples += 1


class Host(Recorder):
    def readings(self) -> HostReadings:
        return HostReadings(t_ns=tuple(range(self.samples)))


class Gpus(Recorder):
    def readings(self) -> tuple[GpuReadings, ...]:
        return (GpuReadings(index=0, name="a", uuid="b", t_ns=tuple(range(self.samples))),)


def monitor(host: Host, gpus: Gpus | None = None, reason: str | None = None) -> Monitor:
    return Monitor(
        1,
        interval_s=0.2,
        gpus=(cast("GpuProbe | None", gpus), reason),
        clock=lambda: 0,
        host=cast(HostProbe, host),
    )


def test_samples_are_taken_when_due_and_not_before() -> None:
    host = Host()
    watched = monitor(host)
    assert watched.due(0) == pytest.approx(0.2)
    assert watched.due(150 * MS) == pytest.approx(0.05)
    watched.tick(199 * MS)
    assert host.samples == 0
    assert watched.due(200 * MS) == 0
    watched.tick(200 * MS)
    watched.tick(201 * MS)
    assert host.samples == 1
    assert watched.due(201 * MS) == pytest.approx(0.199)


def test_a_late_caller_gets_one_sample_and_the_old_rhythm() -> None:
    host = Host()
    watched = monitor(host)
    assert watched.due(950 * MS) == 0
    watched.tick(950 * MS)
    assert host.samples == 1
    assert watched.due(950 * MS) == pytest.approx(0.05)


def test_a_loop_that_waits_as_told_samples_evenly() -> None:
    host, gpus = Host(), Gpus()
    watched = monitor(host, gpus)
    now_ns = 0
    for _ in range(25):
        now_ns += round(watched.due(now_ns) * 1e9)
        watched.tick(now_ns)
    assert host.samples == gpus.samples == 25
    assert now_ns == 25 * 200 * MS


def test_the_gpu_probe_begins_anew_for_each_trial_and_is_in_the_readings() -> None:
    gpus = Gpus()
    gpus.samples = 9
    watched = monitor(Host(), gpus)
    assert gpus.restarts == 1
    watched.tick(200 * MS)
    readings = watched.readings()
    assert readings.host.t_ns == readings.gpus[0].t_ns == (0,)
    assert readings.unmeasured == {}


def test_without_gpus_the_reason_is_said() -> None:
    readings = monitor(Host(), None, "no NVIDIA driver").readings()
    assert readings.gpus == ()
    assert readings.unmeasured == {"gpus": "no NVIDIA driver"}
