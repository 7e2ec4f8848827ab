"""Periods that are there are found with the right fundamental; noise of every kind is left alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal

from xttsbench.analysis.period import Period, find_period

FloatArray = npt.NDArray[np.float64]
N = 400
TIME = np.arange(N)


def ar1(phi: float, n: int, rng: np.random.Generator) -> FloatArray:
    noise: FloatArray = signal.lfilter([1.0], [1.0, -phi], rng.normal(size=n + 300))[300:]
    return noise


def found(x: FloatArray) -> Period:
    period = find_period(x)
    assert period is not None
    assert 0 < period.p_value <= 0.01
    return period


def stalls(every: int, *, height: float = 9.0, noise: float = 0.05, jitter: int = 0, seed: int = 0) -> FloatArray:
    rng = np.random.default_rng(seed)
    at = np.arange(every // 2, N, every) + rng.integers(-jitter, jitter + 1, len(range(every // 2, N, every)))
    steps = 1 + noise * rng.normal(size=N)
    steps[at[at < N]] += height
    return steps


@pytest.mark.parametrize("noise", [0.0, 0.3, 1.0])
def test_a_sinusoid_of_no_whole_number_of_steps(noise: float) -> None:
    x = np.sin(2 * np.pi * TIME / 7.3) + noise * np.random.default_rng(1).normal(size=N)
    period = found(x)
    assert period.period_steps == pytest.approx(7.3, abs=0.05)
    assert period.variance_share == pytest.approx(0.5 / (0.5 + noise**2), abs=0.1)


@pytest.mark.parametrize("every", [3, 5, 16, 25, 50])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_comb_of_equal_harmonics_has_its_fundamental_found(every: int, noise: float) -> None:
    period = found(stalls(every, noise=noise))
    assert period.period_steps == every
    assert period.variance_share > 0.5


@pytest.mark.parametrize("seed", range(4))
def test_stalls_with_jitter(seed: int) -> None:
    assert found(stalls(16, jitter=1, seed=seed)).period_steps == pytest.approx(16, abs=0.15)


def test_stalls_at_gaps_that_vary() -> None:
    rng = np.random.default_rng(2)
    steps = 1 + 0.05 * rng.normal(size=N)
    at = np.cumsum(rng.integers(15, 18, 40))
    steps[at[at < N]] += 9
    assert found(steps).period_steps == pytest.approx(16, abs=0.7)


def test_stalls_on_a_clock_of_their_own() -> None:
    steps = 1 + 0.05 * np.random.default_rng(3).normal(size=N)
    steps[np.arange(0.3, N, 16.6).astype(int)] += 9
    assert found(steps).period_steps == pytest.approx(16.6, abs=0.05)


@pytest.mark.parametrize(("every", "high"), [(20, 10), (32, 4), (16, 8)])
def test_square_waves(every: int, high: int) -> None:
    x = 1 + (TIME % every < high) + 0.1 * np.random.default_rng(4).normal(size=N)
    period = found(x)
    assert period.period_steps == every
    assert period.variance_share > 0.85


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_an_alternation_of_two_levels(noise: float) -> None:
    assert found(1 + TIME % 2 + noise * np.random.default_rng(5).normal(size=N)).period_steps == 2


def test_a_period_in_red_noise() -> None:
    x = np.sin(2 * np.pi * TIME / 20) + 0.6 * ar1(0.6, N, np.random.default_rng(6))
    assert found(x).period_steps == pytest.approx(20, abs=0.5)


def test_outliers_do_not_hide_it() -> None:
    rng = np.random.default_rng(7)
    x = 2 + np.sin(2 * np.pi * TIME / 7.3) + 0.5 * rng.normal(size=N)
    x[rng.choice(N, 10, replace=False)] += 50
    assert found(x).period_steps == pytest.approx(7.3, abs=0.06)


def test_no_period_longer_than_a_quarter_is_claimed() -> None:
    for every in (17, 30, 40, 60):
        period = find_period(np.sin(2 * np.pi * np.arange(64) / every))
        assert period is None or period.period_steps <= 16.01
    assert found(1.0 + 5 * (np.arange(64) % 8 == 0)).period_steps == 8


@pytest.mark.parametrize("x", [np.ones(400), np.full(400, 0.1), np.tile([1.0, 2.0], 31), np.array([])])
def test_constant_and_short_series_have_none(x: FloatArray) -> None:
    assert find_period(x) is None


def test_a_trend_and_a_lone_stall_are_no_period() -> None:
    assert find_period(1 + 0.01 * TIME) is None
    assert find_period(1.0 + 50 * (TIME == 77)) is None


NOISES: dict[str, Callable[[int, np.random.Generator], FloatArray]] = {
    "white": lambda n, rng: rng.normal(size=n),
    "ar 0.6": lambda n, rng: ar1(0.6, n, rng),
    "ar 0.9": lambda n, rng: ar1(0.9, n, rng),
    "lognormal": lambda n, rng: rng.lognormal(0, 1.5, n),
    "lognormal ar 0.6": lambda n, rng: np.exp(0.8 * ar1(0.6, n, rng)),
    "stalls at random": lambda n, rng: 1 + 9 * (rng.random(n) < 0.03) + 0.05 * rng.normal(size=n),
    "jitter": lambda n, rng: np.diff(rng.normal(size=n + 1)),
    "slow under white": lambda n, rng: ar1(0.9, n, rng) + 2 * rng.normal(size=n),
}
SAMPLE = ("ar 0.9", "lognormal ar 0.6", "stalls at random", "jitter")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in SAMPLE else pytest.mark.slow) for kind in NOISES]
)
def test_noise_raises_few_false_alarms(kind: str) -> None:
    rng = np.random.default_rng(8)
    alarms = sum(find_period(NOISES[kind](n, rng)) is not None for n in (400, 240) for _ in range(75))
    # Nominal 1 %: six or more of 150 in one case of 250.
    assert alarms <= 5


@settings(max_examples=10, deadline=None)
@given(scale=st.floats(1e-6, 1e6), shift=st.floats(0, 100))
def test_neither_unit_nor_level_matters(scale: float, shift: float) -> None:
    steps = stalls(16)
    period = found((steps + shift) * scale)
    assert period.period_steps == 16
    assert period.variance_share == pytest.approx(found(steps).variance_share, rel=1e-3)


def test_the_same_steps_give_the_same_answer() -> None:
    steps = stalls(16, jitter=2, seed=3)
    assert find_period(steps) == find_period(steps)
