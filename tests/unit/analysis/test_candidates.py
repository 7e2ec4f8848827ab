from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from xttsbench.analysis.candidates import decide_together, paired_t_p


def test_the_p_value_is_that_of_the_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    for n in (2, 6, 30):
        ratios = 0.02 + 0.03 * rng.standard_normal(n)
        assert paired_t_p(ratios) == pytest.approx(stats.ttest_1samp(ratios, 0).pvalue)


def test_ratios_without_any_spread() -> None:
    assert paired_t_p([0.1] * 6) == 0.0
    assert paired_t_p([0.0] * 6) == 1.0


@pytest.mark.parametrize("bad", [[0.1], [], [0.1, np.nan]])
def test_too_few_or_broken_ratios_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="two finite log ratios"):
        paired_t_p(bad)


def test_six_blocks_decide_on_many_candidates() -> None:
    """Holm's correction of the sign-flip test alone could not: 4 times 3.1 % is more than 5 %."""
    rng = np.random.default_rng(1)
    ratios = {name: np.log(speed) + 0.01 * rng.standard_normal(6) for name, speed in
              (("ten times", 10.0), ("double", 2.0), ("half", 0.5), ("same", 1.0))}  # fmt: skip
    found = decide_together(ratios)
    assert {name: told.decision.decision for name, told in found.items()} == {
        "ten times": "faster",
        "double": "faster",
        "half": "slower",
        "same": "equivalent",
    }
    assert found["ten times"].decision.effect.estimate == pytest.approx(10, rel=0.02)
    assert found["ten times"].p_value < 1e-6


def test_what_is_significant_alone_may_not_be_among_many() -> None:
    # t of 3.1 with 7 degrees of freedom: p = 1.7 % alone, 8.7 % among five
    ratios = np.array([1, 1, 1, 1, 1, 1, 1, -0.2]) * 0.1 + np.linspace(-0.09, 0.09, 8)
    alone = decide_together({"a": ratios})["a"]
    assert alone.decision.decision == "faster"
    rng = np.random.default_rng(0)
    others = {str(n): 0.05 * rng.standard_normal(8) for n in range(4)}
    among = decide_together({"a": ratios, **others})["a"]
    assert among.p_value == pytest.approx(5 * alone.p_value)
    assert among.decision.decision == ("faster" if among.p_value < 0.05 else "inconclusive")


def test_fewer_than_six_blocks_are_inconclusive_whatever_they_say() -> None:
    assert decide_together({"a": [1.0, 1.0, 1.01, 0.99, 1.0]})["a"].decision.decision == "inconclusive"


@pytest.mark.parametrize("blocks", [6, 8])
def test_equal_candidates_are_seldom_called_faster_or_slower(blocks: int) -> None:
    """Of 600 sessions of 8 equal candidates that share their baseline, at most 5 % may name a difference."""
    rng = np.random.default_rng(blocks)
    wrong = 0
    for _ in range(600):
        baseline = 0.03 * rng.standard_normal(blocks)
        ratios = {str(n): baseline + 0.03 * rng.standard_normal(blocks) for n in range(8)}
        wrong += any(told.decision.decision in ("faster", "slower") for told in decide_together(ratios).values())
    assert wrong / 600 < 0.05 + 2 * np.sqrt(0.05 * 0.95 / 600)


def test_a_true_difference_among_equal_ones_is_found() -> None:
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(100):
        ratios = {str(n): 0.01 * rng.standard_normal(6) for n in range(4)}
        ratios["0"] = ratios["0"] + np.log(1.1)
        found += decide_together(ratios)["0"].decision.decision == "faster"
    assert found > 95
