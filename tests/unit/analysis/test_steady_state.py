"""The cut after the warm-up and the check of what is left."""

from __future__ import annotations

import numpy as np
import pytest

from xttsbench.analysis.steady_state import mser, steady_state


@pytest.mark.parametrize("warm_up", [0, 30, 60, 100])
def test_a_step_change_is_cut_where_it_ends(warm_up: int) -> None:
    rng = np.random.default_rng(warm_up)
    steps = 0.01 * rng.lognormal(0, 0.05, 240)
    steps[:warm_up] *= 1.5
    state = steady_state(steps)
    assert warm_up <= state.cut <= warm_up + 20
    assert state.steady
    assert state.reason is None
    assert state.halves_ratio == pytest.approx(1, abs=0.03)


def test_the_cut_is_the_minimum_of_the_squared_standard_error() -> None:
    values = np.random.default_rng(1).normal(size=200) + np.linspace(3, 0, 200) ** 2
    medians = np.median(values.reshape(-1, 5), axis=1)
    by_hand = [np.var(medians[d:]) / (medians.size - d) for d in range(medians.size // 2 + 1)]
    assert mser(values) == 5 * int(np.argmin(by_hand))


@pytest.mark.parametrize("n", [0, 1, 4, 9, 20, 237])
def test_a_constant_series_is_not_cut(n: int) -> None:
    assert mser(np.full(n, 0.1)) == 0


def test_at_most_half_is_cut() -> None:
    steps = np.geomspace(1, 1e-3, 200)
    assert mser(np.log(steps)) == 100


def test_one_stall_in_the_steady_state_does_not_move_the_cut() -> None:
    steps = np.random.default_rng(2).lognormal(0, 0.02, 240)
    before = mser(np.log(steps))
    steps[60] = 1000
    assert abs(mser(np.log(steps)) - before) <= 10


def test_drift_is_no_steady_state_and_says_so() -> None:
    state = steady_state(np.linspace(1, 1.5, 240))
    assert not state.steady
    assert state.halves_ratio is not None
    assert state.halves_ratio > 1.03
    assert state.reason is not None
    assert "slower than the first" in state.reason


def test_the_limit_of_the_drift_is_the_callers() -> None:
    steps = np.linspace(1, 1.03, 240)
    assert steady_state(steps).steady
    assert not steady_state(steps, drift_limit=0.005).steady


@pytest.mark.parametrize("n", [0, 1, 7, 19])
def test_a_short_series_is_labelled(n: int) -> None:
    state = steady_state(np.ones(n))
    assert (state.cut, state.steady, state.halves_ratio) == (0, False, None)
    assert state.reason is not None
    assert f"only {n} steps" in state.reason


def test_a_step_of_no_time_is_taken_as_one_tick() -> None:
    steps = np.ones(100)
    steps[50] = 0.0
    assert steady_state(steps).steady


def test_scale_does_not_matter() -> None:
    steps = np.random.default_rng(3).lognormal(0, 0.2, 240)
    assert steady_state(steps).cut == steady_state(steps * 1e-4).cut
