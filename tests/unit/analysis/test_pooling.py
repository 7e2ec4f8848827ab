from __future__ import annotations

import numpy as np
import pytest

from xttsbench.analysis import pooling
from xttsbench.analysis.bootstrap import interval
from xttsbench.analysis.pooling import RESAMPLES, Pooled, interval_of, mean_of, pool

MEAN = {"mean": mean_of("wall_s")}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def around(mean: float, steps: int = 200, seed: int = 1, sd: float = 0.01) -> dict[str, np.ndarray]:
    return {"wall_s": mean + sd * rng(seed).standard_normal(steps)}


def test_processes_that_differ_give_an_interval_as_wide_as_they_differ() -> None:
    found = pool([around(1.0), around(2.0, seed=2)], MEAN, rng())["mean"]
    told = found.estimate()
    assert found.value == pytest.approx(1.5, abs=0.005)
    assert told.low == pytest.approx(1.0, abs=0.01)
    assert told.high == pytest.approx(2.0, abs=0.01)
    # Half of the draws take one process of each.
    assert np.mean(np.abs(found.resamples - 1.5) < 0.1) == pytest.approx(0.5, abs=0.06)


def test_more_alike_processes_narrow_it() -> None:
    two = pool([around(1.0, seed=s) for s in range(2)], MEAN, rng())["mean"].estimate()
    eight = pool([around(1.0, seed=s) for s in range(8)], MEAN, rng())["mean"].estimate()
    assert eight.high - eight.low < 0.75 * (two.high - two.low)


def test_one_process_gives_the_block_bootstrap_of_its_steps() -> None:
    noise = rng(5).standard_normal(400)
    series = np.empty(400)
    series[0] = noise[0]
    for i in range(1, 400):
        series[i] = 0.7 * series[i - 1] + noise[i]
    columns = {"wall_s": 10 + series}
    pooled = pool([columns], MEAN, rng())["mean"].estimate()
    alone = interval(columns["wall_s"], lambda rows: rows.mean(axis=1), rng=rng())
    assert pooled.estimate == pytest.approx(columns["wall_s"].mean())
    assert pooled.high - pooled.low == pytest.approx(alone.high - alone.low, rel=0.15)
    # Autocorrelation of 0.7 makes the mean far less sure than as many independent steps: 1.96 sd / sqrt(n), both sides.
    assert pooled.high - pooled.low > 1.4 * 2 * 1.96 * series.std() / np.sqrt(400)


def test_a_long_process_weighs_no_more_than_a_short_one() -> None:
    found = pool([around(1.0, steps=10), around(3.0, steps=1000)], MEAN, rng())["mean"]
    assert found.value == pytest.approx(2.0, abs=0.02)


def test_all_statistics_see_the_same_draws() -> None:
    columns = around(1.0, sd=0.3) | {"twice": np.zeros(0)}
    columns["twice"] = 2 * columns["wall_s"]
    found = pool([columns, {k: v + 1 for k, v in columns.items()}], MEAN | {"twice": mean_of("twice")}, rng())
    again = pool([columns], MEAN | {"same": mean_of("wall_s"), "twice": mean_of("twice")}, rng())
    assert np.ptp(found["mean"].resamples) > 0.1
    assert np.array_equal(again["mean"].resamples, again["same"].resamples)
    ratio = interval_of(1.0, again["same"].resamples / again["mean"].resamples)
    assert (ratio.low, ratio.estimate, ratio.high) == (1.0, 1.0, 1.0)
    assert again["twice"].resamples == pytest.approx(2 * again["mean"].resamples)


def test_the_same_seed_gives_the_same_numbers_and_another_one_others() -> None:
    processes = [around(1.0, seed=s) for s in range(3)]
    first, second, other = (pool(processes, MEAN, rng(seed))["mean"].resamples for seed in (7, 7, 8))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_drawing_in_chunks_still_gives_all_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooling, "_CHUNK", 333 * 50)
    found = pool([around(1.0, steps=50)], MEAN, rng())["mean"]
    assert found.resamples.shape == (RESAMPLES,)
    assert found.resamples.std() == pytest.approx(0.01 / np.sqrt(50), rel=0.3)


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_a_handful_of_steps_is_enough_to_pool(steps: int) -> None:
    found = pool([{"wall_s": np.linspace(1, 2, steps)}], MEAN, rng())["mean"]
    assert found.value == pytest.approx(np.linspace(1, 2, steps).mean())
    assert np.isfinite(found.resamples).all()


def test_the_block_length_comes_from_the_clock_column() -> None:
    slow = np.repeat([0.0, 1.0] * 5, 40)  # long blocks
    columns = {"wall_s": slow, "white": rng(3).permutation(slow)}
    by_slow = pool([columns], MEAN, rng(), clock="wall_s")["mean"].resamples.std()
    by_white = pool([columns], MEAN, rng(), clock="white")["mean"].resamples.std()
    assert by_slow > 2 * by_white


def test_an_interval_holds_its_value_and_has_the_level_asked_for() -> None:
    resamples = np.linspace(0, 1, 1001)
    assert Pooled(0.5, resamples).estimate().model_dump() == pytest.approx(
        {"estimate": 0.5, "low": 0.025, "high": 0.975}
    )
    assert Pooled(0.5, resamples).estimate(0.8).model_dump() == pytest.approx(
        {"estimate": 0.5, "low": 0.1, "high": 0.9}
    )
    assert interval_of(2.0, resamples).high == 2.0
    assert interval_of(-1.0, resamples).low == -1.0
