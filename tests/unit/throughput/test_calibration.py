"""Costs that were planted come out of the fit, with ranges that hold them."""

from __future__ import annotations

import numpy as np
import pytest

from xttsbench.records.scale import ServiceCost
from xttsbench.throughput.calibration import calibrated


def costs(noise: float = 0.0, seed: int = 0) -> list[ServiceCost]:
    """A batch costs the worker 0.2 ms and 0.5 ns a byte, the client twice that; 0.4 ms more where it slept."""
    rng = np.random.default_rng(seed)

    def cost(size: int, *, paced: bool = False, splits: bool = False) -> ServiceCost:
        busy_s = 2e-4 + 5e-10 * size
        wall_s = 4 * busy_s + 0.02 * paced
        near = np.exp(noise * rng.standard_normal(3))
        return ServiceCost(
            compressed=False,
            splits=splits,
            paced=paced,
            bytes=size,
            wire_bytes=size,
            batches=100,
            wall_s=wall_s * near[0],
            client_cpu_s=(2 * busy_s + 4e-4 * paced) * near[1],
            worker_cpu_s=(busy_s + 4e-4 * paced + 1e-4 * splits) * near[2],
            dispatcher_cpu_s=3e-4 * splits,
        )

    whole = [cost(size) for size in (1_000, 500_000, 1_000_000, 2_000_000)]
    return [
        *whole,
        cost(1_000_000, paced=True),
        cost(8, splits=True),
        *map(cost, (1_000, 500_000, 1_000_000, 2_000_000)),
    ]


def test_what_was_planted_is_found() -> None:
    said = calibrated(costs(), 1e6, 50, np.random.default_rng(0))
    for name, value in (("worker_cpu_s", 1.1e-3), ("client_cpu_s", 1.8e-3), ("request_s", 2.8e-3)):
        assert getattr(said, name) == pytest.approx(value, rel=1e-6), name
    assert said.wire_bytes[0] == pytest.approx(1e6 * 1538 / 1448)
    assert said.split_dispatcher_s == pytest.approx(3e-4)
    assert said.split_worker_s == pytest.approx(1e-4, rel=0.01)


def test_ranges_hold_the_truth_in_about_95_of_100_calibrations() -> None:
    held = []
    for seed in range(100):
        said = calibrated(costs(0.05, seed), 1e6, 400, np.random.default_rng(seed)).worker_cpu_s
        low, high = np.quantile(said[1:], (0.025, 0.975))
        held.append(low <= 1.1e-3 <= high)
    assert 88 <= sum(held) <= 100


def test_what_was_not_measured_costs_nothing() -> None:
    whole = [one for one in costs() if not one.splits]
    assert not calibrated(whole, 1e6, 5, np.random.default_rng(0)).split_dispatcher_s.any()
