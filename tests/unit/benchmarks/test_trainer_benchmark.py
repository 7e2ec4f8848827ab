"""What the trainer's benchmark rests on: its rates, ratios and goals."""

import math

import blocks
import pytest
from blocks import Timed


def test_a_rate_is_of_all_intervals_or_of_the_first_ones():
    timed = Timed(samples=(30, 10), seconds=(1.0, 3.0))
    assert timed.rate() == 10.0, "samples over time, and no mean of rates"
    assert timed.rate(1) == 30.0


def test_a_ratio_is_the_geometric_mean_over_the_blocks_that_both_are_in():
    over, under = {0: 20.0, 1: 80.0, 2: 1.0}, {0: 10.0, 1: 10.0}
    found = blocks.ratio(over, under)
    # The logs are log 2 and log 8, off their mean by log 2 each; 3 % of three degrees of freedom were known before.
    error = math.sqrt((3 * 0.03**2 + 2 * math.log(2) ** 2) / 4 / 2)
    assert found["estimate"] == pytest.approx(4.0)
    assert math.log(found["high"] / found["estimate"]) == pytest.approx(2.77645 * error, rel=1e-4)


def test_a_ratio_of_one_block_has_no_interval_and_of_none_no_value():
    assert blocks.ratio({1: 3.0}, {0: 2.0, 1: 2.0}) == {"estimate": 1.5}
    assert blocks.ratio({0: 3.0}, {1: 2.0}) is None


@pytest.mark.parametrize(
    ("value", "options", "met"),
    [
        ({"estimate": 0.99, "low": 0.96}, {"low": 0.95}, True),
        ({"estimate": 0.99, "low": 0.94}, {"low": 0.95}, False),
        ({"estimate": 0.97, "low": 0.96}, {"low": 0.95}, False),
        ({"estimate": 0.99}, {"low": 0.95}, None),
        ({"estimate": 0.99}, {}, True),
        ({"estimate": 0.99}, {"at_most": True}, False),
        ({"estimate": 0.01}, {"at_most": True}, True),
        (None, {}, None),
    ],
)
def test_a_goal_is_met_by_the_estimate_and_where_asked_by_the_lower_end_of_its_interval(value, options, met):
    assert blocks.figure(value, 0.98, **options)["met"] is met


def test_a_figure_without_a_goal_is_not_judged():
    assert blocks.figure({"estimate": 3.0}, None)["met"] is None
