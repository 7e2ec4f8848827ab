"""Effects between two sides against scipy, against simulated sessions, and at their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from xttsbench.analysis.pooling import interval_of
from xttsbench.records.base import Estimate
from xttsbench.rules.regression import (
    SESSION_NOISE,
    decide_apart,
    decide_paired,
    log_mean,
    paired,
    reported_mean,
    welch,
    withheld,
)

RATES = st.lists(st.floats(10, 1000), min_size=2, max_size=9)


def decisions(rng: np.random.Generator, *, repeats: int, n: int = 8, effect: float = 1.0, session: float, noise: float):
    """Decisions on simulated sessions: 2 % noise between processes, ``session`` between sessions."""
    said = []
    for _ in range(repeats):
        luck = session * rng.normal(size=2)
        a = np.exp(luck[0] + 0.02 * rng.normal(size=n))
        b = effect * np.exp(luck[1] + 0.02 * rng.normal(size=n))
        said.append(decide_apart({"x": welch(log_mean(a), log_mean(b), noise)}, margin=0.02)["x"].decision)
    return said


def test_welch_is_scipys_on_logarithms() -> None:
    rng = np.random.default_rng(0)
    for n, m in ((2, 2), (3, 9), (8, 5)):
        a, b = rng.lognormal(3, 0.1, n), rng.lognormal(3.1, 0.3, m)
        known = welch(log_mean(a), log_mean(b))
        theirs = stats.ttest_ind(np.log(b), np.log(a), equal_var=False)
        interval = theirs.confidence_interval(0.95)
        ours = known.interval()
        assert known.p_value() == pytest.approx(theirs.pvalue)
        assert known.freedom == pytest.approx(theirs.df)
        assert (ours.low, ours.high) == pytest.approx((math.exp(interval.low), math.exp(interval.high)))


def test_paired_is_scipys_on_logarithms() -> None:
    ratios = np.random.default_rng(1).normal(0.05, 0.03, 7)
    theirs = stats.ttest_1samp(ratios, 0)
    interval, ours = theirs.confidence_interval(0.95), paired(ratios).interval()
    assert (ours.low, ours.high) == pytest.approx((math.exp(interval.low), math.exp(interval.high)))
    assert paired(ratios).p_value() == pytest.approx(theirs.pvalue)


def test_the_noise_of_sessions_is_added_as_known() -> None:
    same = log_mean([100.0, 100.0])
    known = welch(same, same, 0.02)
    error = math.sqrt(2) * math.log(1.02)
    assert known.freedom == math.inf
    assert math.log(known.interval().high) == pytest.approx(stats.norm.ppf(0.975) * error)
    assert known.p_value() == pytest.approx(1)
    assert known.smallest_visible_effect() == pytest.approx(math.expm1((1.959964 + 0.841621) * error), rel=1e-5)


def test_equal_processes_without_spread_are_equal() -> None:
    known = welch(log_mean([7.0, 7.0]), log_mean([7.0, 7.0]))
    assert (known.p_value(), known.interval()) == (1.0, Estimate(estimate=1, low=1, high=1))
    assert decide_apart({"x": known}, margin=0.02)["x"].decision == "equivalent"
    faster = welch(log_mean([7.0, 7.0]), log_mean([14.0, 14.0]))
    assert (faster.p_value(), decide_apart({"x": faster}, margin=0.02)["x"].decision) == (0.0, "faster")


@given(RATES, RATES, st.sampled_from([0.0, 0.02]))
def test_swapping_the_sides_inverts_the_effect(a: list[float], b: list[float], noise: float) -> None:
    there = decide_apart({"x": welch(log_mean(a), log_mean(b), noise)}, margin=0.02)["x"]
    back = decide_apart({"x": welch(log_mean(b), log_mean(a), noise)}, margin=0.02)["x"]
    opposite = {"faster": "slower", "slower": "faster"}
    assert back.decision == opposite.get(there.decision, there.decision)
    assert there.p_value == pytest.approx(back.p_value)
    assert there.ratio is not None
    assert back.ratio is not None
    assert there.ratio.estimate == pytest.approx(1 / back.ratio.estimate)
    assert there.ratio.low == pytest.approx(1 / back.ratio.high)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_false_alarms_between_equal_runs_are_at_most_five_percent(n: int) -> None:
    said = decisions(np.random.default_rng(n), repeats=800, n=n, session=0.0, noise=0.0)
    # 800 draws at 5 % have a standard deviation of 0.8 %.
    assert np.mean([one in ("faster", "slower") for one in said]) < 0.05 + 2.5 * 0.008


def test_sessions_that_differ_by_two_percent_raise_false_alarms_unless_that_is_allowed_for() -> None:
    naive = decisions(np.random.default_rng(5), repeats=600, session=0.02, noise=0.0)
    allowed = decisions(np.random.default_rng(5), repeats=600, session=0.02, noise=SESSION_NOISE)
    assert np.mean([one in ("faster", "slower") for one in naive]) > 0.4  # measuring.md has 45 %
    assert np.mean([one in ("faster", "slower") for one in allowed]) < 0.07


def test_a_tenth_slower_is_seen_between_sessions() -> None:
    said = decisions(np.random.default_rng(6), repeats=300, session=0.02, noise=SESSION_NOISE, effect=0.9)
    assert said.count("slower") > 0.9 * len(said)
    assert "faster" not in said


def test_many_equal_arms_name_no_more_than_one_alone() -> None:
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(300):
        pairs = {
            str(arm): welch(log_mean(np.exp(0.02 * rng.normal(size=6))), log_mean(np.exp(0.02 * rng.normal(size=6))))
            for arm in range(8)
        }
        wrong += any(one.decision in ("faster", "slower") for one in decide_apart(pairs, margin=0.02).values())
    assert wrong / 300 < 0.05 + 2.5 * 0.0126


@pytest.mark.parametrize("n", [3, 8])
def test_a_report_alone_names_no_more_false_differences(n: int) -> None:
    rng = np.random.default_rng(n)

    def reported():
        rates = np.exp(0.02 * rng.normal(size=n))
        return reported_mean(interval_of(rates.mean(), rates[rng.integers(0, n, (400, n))].mean(axis=1)), n)

    said = [decide_apart({"x": welch(reported(), reported())}, margin=0.02)["x"].decision for _ in range(600)]
    assert np.mean([one in ("faster", "slower") for one in said]) < 0.05 + 2.5 * 0.0089


def test_a_reported_interval_becomes_its_standard_error_again() -> None:
    error = 0.01
    estimate = Estimate(estimate=100, low=100 * math.exp(-1.959964 * error), high=100 * math.exp(1.959964 * error))
    known = reported_mean(estimate, 5)
    assert known.freedom == 4
    assert math.sqrt(known.variance) == pytest.approx(error * math.sqrt(5 / 4), rel=1e-5)


def test_what_cannot_be_taken_the_logarithm_of_is_refused() -> None:
    for values in ([1.0], [1.0, 0.0], [1.0, math.inf], [-1.0, 2.0]):
        with pytest.raises(ValueError, match="positive rates"):
            log_mean(values)
    with pytest.raises(ValueError, match="positive interval"):
        reported_mean(Estimate(estimate=1, low=1, high=1), 2)
    with pytest.raises(ValueError, match="positive interval"):
        reported_mean(Estimate(estimate=1, low=0, high=1), 6)


def test_paired_blocks_decide_from_six_on() -> None:
    found = decide_paired({"six": [0.1, 0.11, 0.1, 0.09, 0.1, 0.1], "five": [0.1] * 5, "none": []}, margin=0.02)
    assert [found[name].decision for name in ("six", "five", "none")] == ["faster", "inconclusive", "inconclusive"]
    assert [found[name].sure for name in ("six", "five", "none")] == [True, False, False]
    assert found["five"].why == "5 blocks in common; a decision takes 6"
    assert found["five"].ratio is not None
    assert (found["none"].ratio, found["none"].log_ratio) == (None, None)


def test_a_withheld_effect_keeps_its_interval_and_proves_nothing() -> None:
    found = decide_paired({"x": [0.1, 0.11, 0.1, 0.09, 0.1, 0.1]}, margin=0.02)["x"]
    kept = withheld(found, "noisy")
    assert (kept.decision, kept.sure, kept.why, kept.ratio) == ("inconclusive", False, "noisy", found.ratio)
