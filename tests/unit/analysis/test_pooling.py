from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from xttsbench.analysis.pooling import (
    _PROCESS_SPREAD,
    Pooled,
    interval_of,
    mean_of,
    pool,
    pool_together,
    sample,
    stretches,
)

MEAN = {"mean": mean_of("wall_s")}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def around(mean: float, steps: int = 200, seed: int = 1, sd: float = 0.01) -> dict[str, np.ndarray]:
    return {"wall_s": mean + sd * rng(seed).standard_normal(steps)}


def test_one_process_has_the_informed_spread_of_processes_in_its_interval() -> None:
    told = pool([around(1.0)], MEAN, rng())["mean"].estimate()
    # Student's t with three degrees of freedom: 3.18 at 97.5 %.
    assert told.high - told.low == pytest.approx(2 * 3.18 * np.hypot(_PROCESS_SPREAD, 0.01), rel=0.15)


def test_processes_that_differ_give_an_interval_as_wide_as_they_differ() -> None:
    found = pool([around(1.0), around(2.0, seed=2)], MEAN, rng())["mean"]
    told = found.estimate()
    assert found.value == pytest.approx(1.5, abs=0.005)
    assert told.low < 1.05
    assert told.high > 1.95


@pytest.mark.parametrize("processes", [1, 2, 3, 6, 12])
def test_intervals_cover_what_they_say(processes: int) -> None:
    """Processes differ by a spread drawn from the informed variance; steps within a process are autocorrelated."""
    chance = rng(processes)
    inside, runs = 0, 400
    spreads = _PROCESS_SPREAD * np.sqrt(3 / chance.chisquare(3, runs))
    noise = chance.standard_normal((runs, processes, 40))
    for index in range(1, 40):
        noise[..., index] += 0.3 * noise[..., index - 1]
    paces = 1 + spreads[:, None] * chance.standard_normal((runs, processes))
    for measured in np.maximum(paces[..., None] + 0.1 * noise, 0.05):
        told = pool([{"wall_s": wall_s} for wall_s in measured], MEAN, chance)["mean"].estimate()
        inside += told.low <= 1.0 <= told.high
    assert 0.92 <= inside / runs <= 0.995


def test_a_process_weighs_as_much_as_its_steps() -> None:
    found = pool([around(1.0, steps=4), around(3.0, steps=18)], MEAN, rng())["mean"]
    assert found.value == pytest.approx((4 * 1.0 + 18 * 3.0) / 22, abs=0.02)


def test_what_a_process_is_slower_by_as_a_whole_is_in_all_of_its_figures() -> None:
    """Beside its input and alone a step takes 20 % more in one process than in the other: the ratio is sure."""
    beside = {
        name: sample(around(pace, seed=name), {"beside": mean_of("wall_s")}) for name, pace in ((1, 1.0), (2, 1.2))
    }
    alone = {
        name: sample(around(pace / 2, seed=name + 5, sd=0.005), {"alone": mean_of("wall_s")})
        for name, pace in ((1, 1.0), (2, 1.2))
    }
    (one, other) = pool_together([beside, alone], rng())
    ratio = interval_of(2.0, one["beside"].resamples / other["alone"].resamples)
    width = one["beside"].estimate()
    assert (width.high - width.low) / width.estimate > 0.2
    assert ratio.high - ratio.low < 0.2 * 2


def test_figures_of_one_segment_keep_their_correlation() -> None:
    columns = around(1.0, sd=0.3)
    found = pool([columns], MEAN | {"twice": lambda own: 2 * own["wall_s"].mean(axis=1)}, rng())
    ratio = found["twice"].resamples / found["mean"].resamples
    assert ratio.std() < 0.15 * found["mean"].resamples.std() * 2 + 0.05
    assert np.median(ratio) == pytest.approx(2.0, rel=0.02)


def test_what_is_nothing_everywhere_has_no_spread() -> None:
    found = pool(
        [{"wall_s": np.ones(20), "zero": np.zeros(20)}], {"mean": mean_of("wall_s"), "zero": mean_of("zero")}, rng()
    )
    assert found["zero"].value == 0.0
    assert not found["zero"].resamples.any()


def test_rounds_are_the_stretches_and_a_long_one_is_cut() -> None:
    assert [len(rows) for rows in stretches(np.zeros(80, dtype=np.int64))] == [10] * 8
    assert [len(rows) for rows in stretches(np.repeat([0, 3], [10, 30]))] == [3, 3, 2, 2, 8, 8, 7, 7]
    assert [rows.tolist() for rows in stretches(np.array([0, 1, 0]))] == [[0], [2], [1]]
    assert len(stretches(np.arange(20))) == 20


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_a_handful_of_steps_is_enough_to_pool(steps: int) -> None:
    found = pool([{"wall_s": np.linspace(1, 2, steps)}], MEAN, rng())["mean"]
    assert found.value == pytest.approx(np.linspace(1, 2, steps).mean())
    assert np.isfinite(found.resamples).all()
    assert (found.resamples > 0).all()


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


def test_processes_that_saw_the_same_batches_are_one_sample_of_them() -> None:
    """What stretches of the data differ by stays, however many processes see the same ones."""
    noisy = [around(1.0, sd=1.0, seed=seed) for seed in range(4)]
    widths = []
    for data in (("a",) * 4, tuple("abcd"), (None,) * 4):
        group = {
            n: replace(sample(one, MEAN), data=kind) for n, (one, kind) in enumerate(zip(noisy, data, strict=True))
        }
        told = pool_together([group], rng())[0]["mean"].estimate()
        widths.append(told.high - told.low)
    assert widths[0] > 1.5 * widths[1]
    assert widths[1] == widths[2]
