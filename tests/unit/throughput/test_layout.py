"""Layouts in closed form, in their limits, and as more of anything changes them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.throughput.layout import (
    CLIENT,
    DISPATCHER,
    NETWORK,
    PIPELINE,
    REQUESTS,
    WORKERS,
    Layout,
    Needs,
    found,
)
from xttsbench.throughput.pace import STEP


def needs(**given: float) -> Needs:
    """A batch of 1 MB that takes 10 ms of a worker's core, for a step of 4 ms."""
    made = {"step_s": 4e-3, "making_s": 0.0, "worker_cpu_s": 10e-3, "wire_bytes": 1e6, "splits": 0.0}
    zero = dict.fromkeys(("step_cpu_s", "sending_s", "client_cpu_s", "request_s", "split_s"), 0.0)
    arrays = {name: np.array([value]) for name, value in (zero | made | given).items()}
    arrays["splits"] = float(arrays["splits"][0])
    arrays["making_s"] = dict.fromkeys((0.25, 1.0, 2.0), arrays["making_s"])
    return Needs(**arrays)


def rate(told: Needs, **layout: float) -> float:
    return float(found(told, Layout(**layout)).rate_per_s[0])


def test_with_an_infinite_network_and_costs_of_nothing_step_or_workers_set_the_pace() -> None:
    for workers in (1, 2, 3, 8):
        said = found(needs(), Layout(workers=workers))
        assert said.rate_per_s[0] == pytest.approx(min(1 / 4e-3, workers / 10e-3))
        assert said.limited_by == (WORKERS if workers < 3 else STEP)
        assert said.utilization[0] == pytest.approx(min(1.0, workers * 0.4))


@pytest.mark.parametrize(
    ("given", "layout", "limited_by", "period_s"),
    [
        ({"worker_cpu_s": 12e-3}, {"cores": 2.0}, WORKERS, 6e-3),
        ({"making_s": 30e-3}, {}, PIPELINE, 30e-3),
        ({"request_s": 20e-3}, {}, REQUESTS, 20e-3),
        ({"request_s": 20e-3, "sending_s": 8e-3}, {"cores": 0.25}, REQUESTS, (20 + (20**2 + 4 * 24 * 40) ** 0.5) / 2e3),
        ({"request_s": 5e-3}, {"latency_s": 20e-3}, NETWORK, 25e-3),
        ({}, {"gbit_s": 0.1}, NETWORK, 80e-3),
        ({}, {"gbit_s": 1.0, "workers": 64}, NETWORK, 8e-3),
        ({"client_cpu_s": 9e-3, "step_cpu_s": 1e-3}, {"workers": 64, "client_cores": 2.0}, CLIENT, 5e-3),
        ({"splits": 64.0, "split_s": 1e-4}, {"workers": 64}, DISPATCHER, 6.4e-3),
        ({"splits": 4.0}, {"latency_s": 5e-3}, DISPATCHER, 20e-3),
        ({}, {"workers": 64, "accelerator": 4.0}, STEP, 1e-3),
        ({}, {"workers": 64, "replicas": 4}, STEP, 1e-3),
    ],
)
def test_each_resource_limits_where_it_is_the_slowest(given, layout, limited_by, period_s) -> None:
    said = found(needs(**given), Layout(**layout))
    assert said.limited_by == limited_by
    assert 1 / said.rate_per_s[0] == pytest.approx(period_s)


def test_more_workers_than_enough_give_no_more_than_5_percent() -> None:
    told = needs(step_s=3e-3)
    enough = math.ceil(found(told, Layout()).enough[0])
    assert enough == 4  # 3.17
    assert rate(told, workers=enough) >= 0.95 * rate(told, workers=256)
    assert rate(told, workers=enough - 1) < 0.95 * rate(told, workers=256)
    assert found(told, Layout()).ceiling_by == STEP


def test_a_dataset_without_a_step_is_limited_by_something_else_and_uses_nothing() -> None:
    said = found(needs(step_s=0.0), Layout(workers=2, gbit_s=10.0))
    assert (said.limited_by, said.utilization[0]) == (WORKERS, 1.0)


TIMES = st.floats(0, 0.1)
SOME = st.fixed_dictionaries(
    {name: TIMES for name in ("worker_cpu_s", "client_cpu_s", "request_s", "making_s")},
    optional={"step_s": st.floats(1e-4, 0.1), "wire_bytes": st.floats(1, 1e8)},
)


@given(SOME, st.integers(1, 255), st.floats(0.1, 400), st.floats(0, 0.1))
def test_more_workers_bandwidth_or_replicas_never_give_less_and_more_latency_never_more(
    some, workers, gbit_s, latency_s
) -> None:
    told = needs(**some)
    one = {"workers": workers, "gbit_s": gbit_s, "latency_s": latency_s, "client_cores": 2.0}
    least = rate(told, **one) * (1 - 1e-9)
    for more in ({"workers": workers + 1}, {"gbit_s": 2 * gbit_s}, {"replicas": 2}, {"latency_s": 0.0}, {"cores": 2.0}):
        assert rate(told, **one | more) >= least


@given(SOME, st.integers(1, 256), st.floats(0.1, 400))
def test_no_resource_does_more_than_it_can(some, workers, gbit_s) -> None:
    told = needs(**some)
    said = found(told, Layout(workers=workers, gbit_s=gbit_s, client_cores=2.0))
    per_s = said.rate_per_s[0] * (1 - 1e-9)
    assert per_s * told.step_s[0] <= 1
    assert per_s * told.client_cpu_s[0] <= 2
    assert per_s * told.worker_cpu_s[0] <= workers
    assert per_s * told.wire_bytes[0] * 8e-9 <= gbit_s
    assert 0 <= said.utilization[0] <= 1 + 1e-9
