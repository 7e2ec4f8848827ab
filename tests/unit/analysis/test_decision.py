"""Exact p-values, intervals against SciPy, and error rates of the decision."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from xttsbench.analysis import decision
from xttsbench.analysis.decision import decide, holm, paired_t_interval, sign_flip_p, smallest_visible_effect

RATIOS = [0.11, 0.02, 0.07, -0.01, 0.05, 0.08, 0.03]
ratios = st.lists(st.floats(-2, 2).filter(lambda value: value == 0 or abs(value) > 1e-6), min_size=1, max_size=10)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 8, 12, 20])
def test_equal_signs_reach_the_smallest_p(n: int) -> None:
    assert sign_flip_p(np.linspace(0.1, 0.2, n)) == 2 / 2**n


def test_all_flips_counted_by_hand() -> None:
    flips = [abs(np.dot(signs, RATIOS)) for signs in itertools.product((-1, 1), repeat=len(RATIOS))]
    assert sign_flip_p(RATIOS) == np.mean(np.array(flips) >= abs(sum(RATIOS)) - 1e-12)


def test_against_scipys_permutation_test() -> None:
    found = stats.permutation_test((RATIOS,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert sign_flip_p(RATIOS) == pytest.approx(found.pvalue)


def test_many_blocks_are_flipped_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = sign_flip_p(RATIOS)
    monkeypatch.setattr(decision, "_EXACT_BLOCKS", 3)
    assert sign_flip_p(RATIOS) == pytest.approx(exact, abs=0.005)
    assert 0 < sign_flip_p(np.full(40, 0.1)) < 1e-4


@given(ratios)
def test_the_p_value_knows_neither_direction_nor_unit(values: list[float]) -> None:
    p_value = sign_flip_p(values)
    assert 2 / 2 ** len(values) <= p_value <= 1
    assert sign_flip_p([-value for value in values]) == pytest.approx(p_value)
    assert sign_flip_p([8 * value for value in values]) == pytest.approx(p_value)


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_the_interval_against_scipys_t_test(level: float) -> None:
    expected = stats.ttest_1samp(RATIOS, 0).confidence_interval(level)
    found = paired_t_interval(RATIOS, level)
    assert (found.low, found.high) == pytest.approx((np.exp(expected.low), np.exp(expected.high)))
    assert found.estimate == pytest.approx(np.exp(np.mean(RATIOS)))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.10, 0.11, 0.09, 0.12, 0.10, 0.08], "faster"),
        ([-0.10, -0.11, -0.09, -0.12, -0.10, -0.08], "slower"),
        ([0.001, -0.002, 0.003, -0.001, 0.002, -0.003], "equivalent"),
        ([0.010, 0.011, 0.009, 0.010, 0.010, 0.011], "equivalent"),
        ([0.2, -0.2, 0.1, -0.1, 0.3, -0.2], "inconclusive"),
        ([0.10, 0.11, 0.09, 0.12, 0.10], "inconclusive"),
        ([0.5], "inconclusive"),
        ([0.0] * 6, "equivalent"),
        ([0.7] * 6, "faster"),
    ],
)
def test_decisions(values: list[float], expected: str) -> None:
    found = decide(values)
    assert found.decision == expected
    assert found.effect.low <= found.effect.estimate <= found.effect.high
    assert found.p_value == sign_flip_p(values)


def test_the_effect_is_a_ratio_of_speeds() -> None:
    assert decide(np.log([2.0] * 8)).effect.estimate == pytest.approx(2)


def test_the_margin_is_the_callers() -> None:
    values = [0.010, 0.011, 0.009, 0.010, 0.010, 0.011]
    assert decide(values, margin=0.005).decision == "faster"
    assert decide(values[:5], min_blocks=5).decision == "equivalent"


def test_no_difference_is_seldom_called_one() -> None:
    rng = np.random.default_rng(1)
    wrong = sum(decide(rng.normal(0, 0.05, 8)).decision in {"faster", "slower"} for _ in range(800))
    assert wrong / 800 < 0.07


def test_equivalence_is_seldom_granted_at_the_margin() -> None:
    rng = np.random.default_rng(2)
    granted = sum(decide(rng.normal(np.log(1.02), 0.01, 8)).decision == "equivalent" for _ in range(800))
    assert granted / 800 < 0.07


def test_the_smallest_visible_effect_is_seen_in_four_cases_of_five() -> None:
    rng = np.random.default_rng(3)
    effect = np.mean([smallest_visible_effect(rng.normal(0, 0.05, 8)) for _ in range(400)])
    seen = sum(paired_t_interval(rng.normal(np.log1p(effect), 0.05, 8)).low > 1 for _ in range(800))
    assert seen / 800 == pytest.approx(0.8, abs=0.07)


def test_the_smallest_visible_effect_by_hand() -> None:
    error = np.std(RATIOS, ddof=1) / np.sqrt(7)
    expected = np.expm1((stats.t.ppf(0.975, 6) + stats.t.ppf(0.8, 6)) * error)
    assert smallest_visible_effect(RATIOS) == pytest.approx(expected)


@pytest.mark.parametrize("values", [[], [np.nan] * 6, [0.1, np.inf]])
def test_nothing_and_not_a_number_are_refused(values: list[float]) -> None:
    for function in (sign_flip_p, paired_t_interval, decide, smallest_visible_effect):
        with pytest.raises(ValueError, match="finite log ratios are needed"):
            function(values)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_none_and_bonferroni_and_keeps_the_order(values: list[float]) -> None:
    adjusted = holm(values)
    for value, changed in zip(values, adjusted, strict=True):
        assert value <= changed <= min(1, len(values) * value)
    assert all(
        adjusted[i] <= adjusted[j] for i in range(len(values)) for j in range(len(values)) if values[i] < values[j]
    )
