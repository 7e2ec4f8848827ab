"""What the trainer's benchmark rests on: its orders, ratios and goals, what it asks for, and what it hears."""

import math
from pathlib import Path

import blocks
import pytest
import sides
import waiting
import work
from blocks import Timed

from xttsbench.records.training import Begun, HistoryLine, Watched

ARMS = ["bare", "trainer", "eager"]


def test_each_block_has_each_arm_once_and_the_next_one_in_reverse():
    found = blocks.orders(ARMS, {}, 8, seed=3)
    assert len(found) == 8
    for order, following in zip(found[::2], found[1::2], strict=True):
        assert sorted(order) == sorted(ARMS)
        assert following == order[::-1]
    assert len({tuple(order) for order in found[::2]}) > 1, "no order is drawn for all"
    assert blocks.orders(ARMS, {}, 8, seed=3) == found


def test_an_arm_may_take_part_in_the_first_blocks_alone():
    found = blocks.orders(ARMS, {"eager": 3}, 5, seed=0)
    assert [("eager" in order) for order in found] == [True] * 3 + [False] * 2
    assert all({"bare", "trainer"} <= set(order) for order in found)


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


@pytest.mark.parametrize("own", work.WORKS.values(), ids=lambda own: own.recipe)
def test_nothing_is_evaluated_or_written_in_the_timed_steps(own):
    request = own.request("xla", Path("clips"))
    timed_end = (1 + own.intervals) * own.interval_steps
    assert request.steps > timed_end
    assert request.checkpoint_every > timed_end
    assert request.settings["training.evaluate_every"] > timed_end
    assert request.settings["training.log_every"] == own.interval_steps
    assert (request.settings["mode"], request.data, request.listen) == ("xla", Path("clips"), False)


def test_a_smoke_test_is_shorter_and_still_has_an_interval_over_blocks():
    for own in work.WORKS.values():
        short = work.quick(own)
        assert short.steps < own.steps
        assert 2 <= short.blocks < own.blocks


def interval(wall_s, wait_s, samples):
    watched = Watched(
        wall_s=wall_s,
        wait_s=wait_s,
        step_s=wall_s - wait_s - 0.1,
        outside_s=0.1,
        valid_frames=1,
        samples=samples,
        steps=5,
    )
    return HistoryLine(session=0, watched=watched)


def begun():
    told = Begun(
        step=0,
        steps=9,
        replicas=1,
        accumulation=1,
        clips_per_update=1,
        updates_per_epoch=1,
        clips=1,
        parameters=1,
        shapes=1,
        setup_s=1,
        warm_up_s=1,
    )
    return HistoryLine(session=0, begun=told)


def test_the_first_interval_is_left_out_and_the_last_wanted_one_ends_the_run():
    heard = sides.Intervals(2, clock=iter([100.0, 102.5, 103.5]).__next__)
    heard.told(begun())
    heard.told(interval(50.0, 40.0, 1000))
    heard.told(interval(2.4, 0.2, 50))
    with pytest.raises(sides.MeasuredError):
        heard.told(interval(1.6, 0.2, 30))
    timed = heard.timed()
    assert (timed.samples, timed.seconds) == ((50, 30), (2.5, 1.0)), "by the clock of this process"
    assert timed.shares == pytest.approx({"waiting": 0.1, "step": 0.85, "between": 0.05}), "by the trainer's watch"


def test_the_share_of_waiting_is_the_reports():
    report = {"verdict": {"input_wait_fraction": {"estimate": 0.123456, "low": 0.1, "high": None}}}
    assert waiting.share(report) == {"estimate": 0.1235, "low": 0.1}
    with pytest.raises(sides.FailedError, match="says nothing"):
        waiting.share({"verdict": {"input_wait_fraction": None}})
