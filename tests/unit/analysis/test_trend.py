"""Trends of known slope, and noise that has none however long it remembers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal, stats

from xttsbench.analysis.variation import MIN_POINTS, trend

NUMBERS = st.lists(st.floats(-1e3, 1e3, allow_subnormal=False), min_size=MIN_POINTS, max_size=40)


def ar1(phi: float, n: int, rng: np.random.Generator) -> np.ndarray:
    return np.asarray(signal.lfilter([1.0], [1.0, -phi], rng.normal(size=n + 300))[300:])


def test_a_line_is_its_own_slope() -> None:
    found = trend(3.0 + 0.25 * np.arange(50))
    assert found is not None
    assert found.slope == pytest.approx(0.25)
    assert found.tau == pytest.approx(1.0)
    assert found.p_value < 0.001


def test_independent_points_have_the_p_value_of_mann_and_kendall() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(size=400)
    found = trend(noise)
    assert found is not None
    exact = stats.kendalltau(np.arange(400), noise)
    assert found.tau == pytest.approx(exact.statistic)
    assert found.p_value == pytest.approx(exact.pvalue, abs=0.1)
    assert found.p_value >= exact.pvalue - 1e-3, "memory only takes certainty away"


def test_positions_count() -> None:
    at = np.array([0, 1, 2, 4, 8, 16, 32, 64, 128, 256], dtype=float)
    found = trend(2 * at + 1, at)
    assert found is not None
    assert found.slope == pytest.approx(2.0)


def test_outliers_do_not_move_the_slope() -> None:
    rng = np.random.default_rng(2)
    line = 1.0 + 0.01 * np.arange(200) + 0.05 * rng.normal(size=200)
    line[[10, 60, 150]] += 100
    found = trend(line)
    assert found is not None
    assert found.slope == pytest.approx(0.01, rel=0.1)
    assert found.low < 0.01 < found.high
    assert found.p_value < 1e-4


@pytest.mark.parametrize("phi", [0.0, 0.6, 0.9])
@pytest.mark.parametrize("n", [60, 240])
def test_noise_raises_false_alarms_at_its_level_only(phi: float, n: int) -> None:
    rng = np.random.default_rng(7)
    p_values = np.array([found.p_value for _ in range(200) if (found := trend(ar1(phi, n, rng))) is not None])
    # 5 % of 200 are 10; 19 and more come of that with a chance of 1 in 300.
    assert (p_values < 0.05).sum() < 19
    assert (p_values < 0.01).sum() < 9


def test_the_plain_test_takes_slow_noise_for_a_trend() -> None:
    rng = np.random.default_rng(7)
    plain = [stats.kendalltau(np.arange(240), ar1(0.9, 240, rng)).pvalue for _ in range(100)]
    assert (np.array(plain) < 0.05).mean() > 0.4


@pytest.mark.parametrize("phi", [0.0, 0.6])
def test_a_drift_of_ten_percent_is_seen_in_noise_of_two(phi: float) -> None:
    rng = np.random.default_rng(3)
    seen = 0
    for _ in range(30):
        noise = ar1(phi, 240, rng)
        found = trend(1 + np.linspace(0, 0.1, 240) + 0.02 * noise / noise.std())
        seen += found is not None and found.p_value < 0.01
    assert seen >= 27


def test_a_long_series_is_told_by_its_stretches() -> None:
    rng = np.random.default_rng(4)
    found = trend(1 + 1e-4 * np.arange(5000) + 0.02 * rng.normal(size=5000))
    assert found is not None
    assert found.slope == pytest.approx(1e-4, rel=0.02)


def test_a_constant_has_no_trend_and_few_points_tell_nothing() -> None:
    still = trend(np.full(30, 5.0))
    assert still is not None
    assert (still.slope, still.p_value) == (0.0, 1.0)
    assert trend(np.arange(MIN_POINTS - 1)) is None
    with pytest.raises(ValueError, match="pair up"):
        trend(np.arange(20), np.arange(19))


@given(NUMBERS)
def test_the_mirror_image_has_the_mirrored_trend(values: list[float]) -> None:
    found, mirrored = trend(values), trend([-value for value in values])
    assert found is not None
    assert mirrored is not None
    assert 0 <= found.p_value <= 1
    assert 3 <= found.effective_points <= len(values)
    assert mirrored.slope == pytest.approx(-found.slope)
    assert mirrored.p_value == pytest.approx(found.p_value, abs=1e-6)
