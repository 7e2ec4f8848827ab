"""What length explains and what stalls explain, told apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.unit.analysis.noise import ar1
from xttsbench.analysis.variation import (
    MIN_POINTS,
    burstiness,
    changed,
    explain,
    length_variance,
    oscillation,
    robust_cv,
    stragglers,
    trend,
)
from xttsbench.records.report import Oscillation

N = 240
ELEMENTS = np.random.default_rng(0).integers(10, 100, N) * 1000.0
NOISE_S = 0.002 * np.random.default_rng(1).normal(size=N)
BY_LENGTH_S = 0.01 + 5e-7 * ELEMENTS + NOISE_S


def test_a_linear_cost_is_found_with_its_slope_and_share() -> None:
    found = length_variance(BY_LENGTH_S, ELEMENTS)
    assert found.slope_s_per_element == pytest.approx(5e-7, rel=0.05)
    explained = np.var(5e-7 * ELEMENTS)
    assert found.share == pytest.approx(explained / (explained + np.var(NOISE_S)), abs=0.01)
    assert found.p_value < 1e-20


def test_stalls_change_neither_slope_nor_share() -> None:
    steps_s = BY_LENGTH_S.copy()
    steps_s[::16] += 1
    found = length_variance(steps_s, ELEMENTS)
    assert found.slope_s_per_element == pytest.approx(5e-7, rel=0.1)
    assert found.share > 0.9


def test_length_that_costs_nothing_explains_nothing() -> None:
    found = length_variance(0.05 + NOISE_S, ELEMENTS)
    assert found.share < 0.03
    assert found.p_value > 0.01


def test_the_p_value_holds_where_both_drift() -> None:
    rng = np.random.default_rng(2)
    found = [length_variance(np.exp(0.1 * ar1(0.9, N, rng)), ar1(0.9, N, rng)) for _ in range(150)]
    assert sum(one.p_value < 0.05 for one in found) <= 18


@pytest.mark.parametrize(("steps", "elements"), [(np.arange(50.0), np.full(50, 7.0)), (np.arange(5.0), np.arange(5.0))])
def test_equal_batches_and_few_steps_have_no_answer(steps: np.ndarray, elements: np.ndarray) -> None:
    assert length_variance(steps, elements) is None


def test_constant_steps_are_not_explained() -> None:
    found = length_variance(np.full(50, 0.1), np.arange(50.0))
    assert (found.share, found.slope_s_per_element, found.p_value) == (0, 0, 1)


def test_stragglers_by_hand() -> None:
    steps_s = np.full(100, 0.01)
    steps_s[[7, 50]] = [0.05, 0.11]
    found = stragglers(steps_s)
    assert found.indices.tolist() == [7, 50]
    assert found.threshold_s == pytest.approx(0.015)
    assert found.excess_s_per_step == pytest.approx((0.04 + 0.10) / 100)
    assert found.share_of_time == pytest.approx(0.14 / steps_s.sum())


def test_ordinary_noise_has_no_stragglers() -> None:
    rng = np.random.default_rng(3)
    assert stragglers(rng.normal(1, 0.02, 1000)).indices.size == 0
    assert stragglers(rng.normal(1, 0.2, 1000)).indices.size <= 1
    assert stragglers([0.5]).indices.size == 0


def test_long_batches_are_not_stragglers_and_stalls_on_short_ones_are() -> None:
    elements = np.where(np.arange(N) % 12 == 0, 90_000.0, 20_000.0 + 100 * (np.arange(N) % 7))
    steps_s = 0.01 + 5e-7 * elements + 0.01 * NOISE_S
    assert stragglers(steps_s).indices.size == 20
    assert explain(steps_s, elements).stragglers.indices.size == 0
    stalled = [31, 101, 205]
    steps_s[stalled] += 0.03
    found = explain(steps_s, elements)
    assert found.stragglers.indices.tolist() == stalled
    assert found.stragglers.excess_s_per_step == pytest.approx(0.09 / N, rel=0.02)
    assert found.length.share > 0.9


def every_16(n: int = 400, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=n)
    return 0.01 * (1 + 0.02 * noise + 20 * (np.arange(n) % 16 == 5))


@pytest.mark.parametrize("n", [9, 20, 200])
def test_gaps_of_a_poisson_process_are_zero_however_few(n: int) -> None:
    rng = np.random.default_rng(1)
    assert np.mean([burstiness(rng.exponential(size=n)) for _ in range(2000)]) == pytest.approx(0, abs=0.05)


def test_robust_cv_is_the_cv_of_normal_noise_and_ignores_outliers() -> None:
    steps = np.random.default_rng(2).normal(1, 0.1, 20_000)
    assert robust_cv(steps) == pytest.approx(0.1, rel=0.03)
    steps[:1000] = 1e6
    assert robust_cv(steps) == pytest.approx(0.1, rel=0.1)


def test_stalls_every_16_steps() -> None:
    steps = every_16()
    found, reasons = oscillation(steps)
    assert reasons == {}
    assert found.period_steps == 16
    assert found.period_s == pytest.approx(16 * steps.mean())
    assert found.variance_share > 0.5
    assert found.burstiness == pytest.approx(-1)
    assert found.p_value <= 0.01
    assert found.cv == pytest.approx(0.02, rel=0.4)
    assert found.p99_over_p50 == pytest.approx(21, rel=0.05)
    assert found.std_over_mean == pytest.approx(np.std(steps, ddof=1) / np.mean(steps))
    assert found.std_over_mean > 0.5
    assert found.ljung_box_p < 0.01


def test_white_noise_is_described_and_not_periodic() -> None:
    found, reasons = oscillation(np.random.default_rng(3).normal(1, 0.05, 400))
    assert set(reasons) == {"period_steps", "period_s", "variance_share", "p_value", "burstiness"}
    assert "red noise" in reasons["period_steps"]
    assert "stalls" in reasons["burstiness"]
    assert found.autocorrelation == pytest.approx(0, abs=0.15)
    assert found.effective_steps == pytest.approx(400, rel=0.4)


@pytest.mark.parametrize("n", [0, 1, 5, 19, 20, 63, 64, 99, 100, 399])
@pytest.mark.parametrize("constant", [True, False])
def test_every_null_has_a_reason_and_nothing_else_has(n: int, constant: bool) -> None:
    steps = np.full(n, 0.1) if constant else every_16(n)
    found, reasons = oscillation(steps)
    assert {name for name in Oscillation.model_fields if getattr(found, name) is None} == set(reasons)
    if n < 20:
        assert reasons["cv"] == f"only {n} steps, 20 are needed"
    if 20 <= n < 64:
        assert reasons["period_steps"].startswith(f"only {n} steps")


def test_a_miss_says_how_rare_what_was_looked_for_may_be() -> None:
    _, reasons = oscillation(np.random.default_rng(4).normal(1, 0.05, 21))
    assert "what comes less often than every 21 steps was not seen at all" in reasons["period_steps"]
    _, reasons = oscillation(np.random.default_rng(4).normal(1, 0.05, 400))
    assert "no period of 2 to 100 steps stands out" in reasons["period_steps"]


def with_stalls(rng: np.random.Generator, at: Any, steps: int = 400, noise: float = 0.1) -> np.ndarray:
    """Steps of 30 ms, and two seconds where it stalls."""
    made = 0.03 * rng.lognormal(0, noise, steps)
    made[at] += 2.0
    return made


@pytest.mark.parametrize(("steps", "every"), [(400, 100), (400, 130), (300, 100), (400, 64)])
@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
def test_three_or_four_stalls_that_come_regularly_name_their_period(steps: int, every: int, noise: float) -> None:
    rng = np.random.default_rng([steps, every])
    for _ in range(10):
        found, reasons = oscillation(with_stalls(rng, slice(int(rng.integers(every)), None, every), steps, noise))
        assert found.period_steps == every
        assert found.period_s == pytest.approx(every * 0.03 + 2.0, rel=0.35)
        assert found.p_value < 0.01
        assert found.variance_share > 0.9
        assert "period_steps" not in reasons


def test_a_few_stalls_at_random_places_name_none() -> None:
    rng = np.random.default_rng(5)
    places = [rng.choice(400, rng.integers(3, 8), replace=False) for _ in range(150)]
    named = [oscillation(with_stalls(rng, at))[0].period_steps is not None for at in places]
    assert np.mean(named) <= 0.03


def test_steps_of_no_time_have_no_ratios() -> None:
    found, reasons = oscillation(np.zeros(100))
    assert found == Oscillation()
    assert set(reasons) == set(Oscillation.model_fields)


def test_a_line_is_its_own_slope() -> None:
    found = trend(3.0 + 0.25 * np.arange(50))
    assert found.slope == pytest.approx(0.25)
    assert found.tau == pytest.approx(1.0)
    assert found.p_value < 0.001


def test_independent_points_have_the_p_value_of_mann_and_kendall() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(size=400)
    found = trend(noise)
    exact = stats.kendalltau(np.arange(400), noise)
    assert found.tau == pytest.approx(exact.statistic)
    assert found.p_value == pytest.approx(exact.pvalue, abs=0.1)
    assert found.p_value >= exact.pvalue - 1e-3, "memory only takes certainty away"


def test_positions_count() -> None:
    at = np.array([0, 1, 2, 4, 8, 16, 32, 64, 128, 256], dtype=float)
    found = trend(2 * at + 1, at)
    assert found.slope == pytest.approx(2.0)


def test_outliers_do_not_move_the_slope() -> None:
    rng = np.random.default_rng(2)
    line = 1.0 + 0.01 * np.arange(200) + 0.05 * rng.normal(size=200)
    line[[10, 60, 150]] += 100
    found = trend(line)
    assert found.slope == pytest.approx(0.01, rel=0.1)
    assert found.p_value < 1e-4


@pytest.mark.parametrize("phi", [0.0, 0.6, 0.9])
@pytest.mark.parametrize("n", [60, 240])
def test_noise_raises_false_alarms_at_its_level_only(phi: float, n: int) -> None:
    rng = np.random.default_rng(7)
    p_values = np.array([trend(ar1(phi, n, rng)).p_value for _ in range(200)])
    # 5 % of 200 are 10; 19 and more come of that with a chance of 1 in 300.
    assert (p_values < 0.05).sum() < 19
    assert (p_values < 0.01).sum() < 9


@pytest.mark.parametrize("phi", [0.0, 0.6])
def test_a_drift_of_ten_percent_is_seen_in_noise_of_two(phi: float) -> None:
    rng = np.random.default_rng(3)
    noises = [ar1(phi, 240, rng) for _ in range(30)]
    found = [trend(1 + np.linspace(0, 0.1, 240) + 0.02 * noise / noise.std()) for noise in noises]
    assert sum(one.p_value < 0.01 for one in found) >= 27


def test_a_long_series_is_told_by_its_stretches() -> None:
    rng = np.random.default_rng(4)
    found = trend(1 + 1e-4 * np.arange(5000) + 0.02 * rng.normal(size=5000))
    assert found.slope == pytest.approx(1e-4, rel=0.02)


def test_a_constant_has_no_trend_and_few_points_tell_nothing() -> None:
    still = trend(np.full(30, 5.0))
    assert (still.slope, still.p_value) == (0.0, 1.0)
    assert trend(np.arange(MIN_POINTS - 1)) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (0.096, "rose by 10% of the median step over 397 steps"),
        (-1.18, "fell by 118% of the median step over 397 steps"),
    ],
)
def test_a_drift_of_more_than_all_of_the_median_step_can_be_said(change: float, said: str) -> None:
    assert changed(change, 397) == said
