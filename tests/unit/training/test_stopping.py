"""Early stopping: what is the best, and what is an improvement."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest

from xttsbench.training.stopping import StoppingState
from xttsbench.xtts.training_settings import EarlyStoppingSettings


@pytest.mark.parametrize(
    ("losses", "least", "without"),
    [
        ([3, 2, 1], 0, [0, 0, 0]),
        ([3, 3, 4, 2], 0, [0, 1, 2, 0]),
        ([3, 2.9, 2.8, 2.7], 0.25, [0, 1, 2, 0]),  # small falls are one improvement where they add up to it
        ([3, math.nan, math.inf, 2], 0, [0, 1, 2, 0]),
        ([math.nan, 3, 5], 0.5, [1, 0, 1]),
    ],
)
def test_evaluations_without_improvement(losses: list[float], least: float, without: list[int]) -> None:
    settings = EarlyStoppingSettings(patience=2, min_improvement=least)
    states = list(accumulate(losses, lambda state, loss: state.after(loss, settings), initial=StoppingState()))
    assert [state.without_improvement for state in states[1:]] == without
    assert [state.is_over(settings) for state in states[1:]] == [count >= 2 for count in without]
    assert states[-1].lowest == min(loss for loss in losses if math.isfinite(loss))


def test_the_best_is_the_lowest_also_where_the_fall_is_no_improvement() -> None:
    settings = EarlyStoppingSettings(patience=9, min_improvement=1)
    state = StoppingState().after(3, settings).after(2.5, settings)
    assert (state.lowest, state.improved_to, state.without_improvement) == (2.5, 3, 1)
    assert state.is_best(2.4)
    assert not state.is_best(2.5)
    assert not state.is_best(math.nan)


def test_without_settings_a_run_is_never_over() -> None:
    state = StoppingState().after(1, None).after(2, None)
    assert state.without_improvement == 1
    assert not state.is_over(None)
