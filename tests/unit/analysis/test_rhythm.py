"""Closed forms of AR(1) noise, and its memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from tests.unit.analysis.noise import ar1
from xttsbench.analysis import rhythm
from xttsbench.analysis.rhythm import Period, autocorrelation, effective_size, find_period, ljung_box, periodogram


def test_the_definition() -> None:
    x = np.random.default_rng(2).normal(size=50)
    centred = x - x.mean()
    by_hand = [np.sum(centred[k:] * centred[: 50 - k]) / np.sum(centred**2) for k in range(8)]
    assert autocorrelation(x, 7) == pytest.approx(by_hand)


def test_constants_and_lags_past_the_end_are_zero() -> None:
    assert autocorrelation(np.full(10, 0.1), 3).tolist() == [1, 0, 0, 0]
    assert autocorrelation([1.0, 2.0], 4)[2:].tolist() == [0, 0, 0]
    assert autocorrelation([], 1).tolist() == [1, 0]


@pytest.mark.parametrize("phi", [-0.5, 0.0, 0.3, 0.6, 0.9])
def test_effective_size_of_ar1(phi: float) -> None:
    found = np.mean([effective_size(ar1(phi, 4000, seed)) for seed in range(10)]) / 4000
    assert found == pytest.approx((1 - phi) / (1 + phi), rel=0.15)


def test_effective_size_is_finite_for_constants_and_alternations() -> None:
    assert effective_size(np.ones(100)) == 100
    assert effective_size([1.0]) == 1
    assert 100 <= effective_size(np.tile([1.0, 2.0], 50)) <= 200


def test_ljung_box_by_hand() -> None:
    x = np.array([1.0, 2.0, 4.0, 3.0])
    # rho_1 = (-1.5*-0.5 + -0.5*1.5 + 1.5*0.5) / 5 = 0.15, so Q = 4 * 6 * 0.15^2 / 3 = 0.18.
    assert ljung_box(x, 1) == pytest.approx(stats.chi2.sf(0.18, 1))


@pytest.mark.parametrize("lags", [0, 4])
def test_ljung_box_refuses_lags_that_the_series_lacks(lags: int) -> None:
    with pytest.raises(ValueError, match="more steps than lags"):
        ljung_box([1.0, 2.0, 3.0, 5.0], lags)


@pytest.mark.parametrize("phi", [0.6, 0.9])
def test_red_noise_follows_its_null(phi: float) -> None:
    rng = np.random.default_rng(2)
    found = [periodogram(ar1(phi, 400, rng)) for _ in range(300)]
    exact = 1 / np.abs(1 - phi * np.exp(-2j * np.pi * found[0].frequency)) ** 2
    power = np.mean([one.power for one in found], axis=0)
    null = np.mean([one.null for one in found], axis=0)
    assert power[8:] == pytest.approx(exact[8:], rel=0.35)
    # Never much below what it stands for; above it by design, for slower noise under white noise.
    assert np.all(null[8:] > 0.85 * exact[8:])


@pytest.mark.parametrize("phi", [0.0, 0.6, 0.9])
def test_noise_crosses_the_threshold_in_one_series_of_a_hundred(phi: float) -> None:
    rng = np.random.default_rng(3)
    found = [periodogram(ar1(phi, 400, rng)) for _ in range(600)]
    assert sum(bool(np.any(one.power > one.threshold)) for one in found) <= 15


def test_a_sinusoid_peaks_at_its_frequency_above_the_threshold() -> None:
    found = periodogram(np.sin(2 * np.pi * np.arange(400) / 8) + np.random.default_rng(4).normal(size=400))
    peak = int(np.argmax(found.power))
    assert found.frequency[peak] == pytest.approx(1 / 8)
    assert found.power[peak] > 3 * found.threshold[peak]
    assert found.frequency[[0, -1]].tolist() == [1 / 400, 0.5]


def test_a_trend_and_a_constant_have_no_power() -> None:
    assert periodogram(np.linspace(0, 5, 100)).power.max() < 1e-20
    assert periodogram(np.ones(64)).threshold.max() == 0


FloatArray = npt.NDArray[np.float64]
N = 400
TIME = np.arange(N)


def found(x: FloatArray) -> Period:
    period = find_period(x)
    assert 0 < period.p_value <= 0.01
    return period


def stalls(every: int, *, height: float = 9.0, noise: float = 0.05, jitter: int = 0, seed: int = 0) -> FloatArray:
    rng = np.random.default_rng(seed)
    at = np.arange(every // 2, N, every)
    at = at + rng.integers(-jitter, jitter + 1, at.size)
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
    x = np.sin(2 * np.pi * TIME / 20) + 0.6 * ar1(0.6, N, 6)
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


def test_of_a_long_series_the_end_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 1000
    monkeypatch.setattr(rhythm, "MOST_STEPS", most)
    noise = np.random.default_rng(5).gamma(9, size=3 * most)
    beaten = noise + 6 * (np.arange(noise.size) % 10 == 0) * (np.arange(noise.size) >= 2 * most)
    found = find_period(beaten)
    assert found == find_period(beaten[-most:])
    assert found.period_steps == 10
    assert find_period(beaten[: 2 * most]) is None
