"""Sweeps that draw their processes from an exhaustive run: whole blocks, and the best arm by the run's own means."""

import math

import numpy as np
import pytest
from machine import decided, planned
from recorded import Grid

from xttsbench.comparison.sweep import Seen, next_round
from xttsbench.records.plan import Procedure

ARMS = [{"prefetch": 0}, {"prefetch": 1}, {"prefetch": 2}]


def grid(speeds, blocks=8, noise=0.002):
    """Rates that share the block's state, each arm so many times the first one's."""
    comparison, rng = planned(ARMS), np.random.default_rng(3)
    shared = np.exp(0.2 * rng.standard_normal(blocks))
    rates = {}
    for arm, speed in zip(comparison.arms, [*speeds, speeds[0]], strict=True):
        own = 100 * speed * shared * np.exp(noise * rng.standard_normal(blocks))
        rates[arm.id] = {(block, 0): math.log(rate) for block, rate in enumerate(own.tolist())}
    return Grid(comparison, rates)


def test_the_means_are_geometric_and_without_the_second_baseline():
    logs = {(0, 0): math.log(50.0), (1, 0): math.log(200.0)}
    of_two = Grid(planned(ARMS), {arm.id: logs for arm in planned(ARMS).arms})
    assert of_two.mean_rates == pytest.approx({"arm0": 100, "arm1": 100, "arm2": 100})


def test_a_drawn_block_is_one_block_of_the_run_for_all_arms():
    recorded = grid((1, 1.1, 1.2))
    asked = next_round(recorded.comparison, Procedure(), Seen(lambda *_: None, next_block=5))
    drawn = recorded.drawn(asked, np.random.default_rng(0))
    assert set(drawn) == {arm.id for arm in asked.comparison.arms}
    (of_run,) = (turn for turn, rate in recorded.rates["arm0"].items() if rate == drawn["arm0"][5, 0])
    assert all(own == {(5, 0): recorded.rates[arm][of_run]} for arm, own in drawn.items())


def test_the_best_arm_of_a_clear_grid_is_chosen_and_an_equal_one_never_proven():
    rng = np.random.default_rng(1)
    clear, equal = grid((1, 1.1, 1.2)), grid((1, 1, 1))
    chosen = [decided(clear.comparison, Procedure(), lambda asked: clear.drawn(asked, rng)).choice for _ in range(20)]
    assert [(choice.winner, choice.proven) for choice in chosen] == [("arm2", True)] * 20
    assert math.isclose(clear.mean_rates["arm2"], max(clear.mean_rates.values()))
    kept = [decided(equal.comparison, Procedure(), lambda asked: equal.drawn(asked, rng)).choice for _ in range(20)]
    assert sum(choice.proven for choice in kept) <= 3
