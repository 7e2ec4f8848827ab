"""What the cases of the benchmark of fixes come to: its goals, met and missed."""

from __future__ import annotations

import math

import faulty
import goals
import pytest
from hypothesis import given
from hypothesis import strategies as st


def row(name="blocking_map", **more):
    def measured(value, spread=0.01):
        return {"estimate": value, "low": value * (1 - spread), "high": value * (1 + spread), "blocks": 4}

    own = {
        "case": name,
        "reachable": True,
        "others_used_of_the_cores": 0.0,
        "seconds": 100.0,
        "fixes": "parallel-map:16",
        "predicted": 3.0,
        "tried": [{"name": "parallel-map:16", "predicted": 3.0, "verified": 2.0}],
        "steps_per_s": {"original": 41.0, "ours": 123.0, "hand-tuned": 125.0, "autotune": 80.0},
        "ratios": {
            "ours / original": measured(3.0),
            "ours / hand-tuned": measured(0.984),
            "ours / autotune": measured(1.5),
        },
        "data": {"same": True, "how": "identical", "elements": 64},
    }
    return own | more


def with_ratio(name, estimate, low=None, high=None, blocks=2):
    found, around = row(), {"low": low or 0.9 * estimate, "high": high or 1.1 * estimate}
    return found | {"ratios": found["ratios"] | {name: {"estimate": estimate, **around, "blocks": blocks}}}


def own_case(**more):
    found = row(faulty.PROCESSOR_BOUND.name, **more)
    ratios = found["ratios"] | {"ours / original": {"estimate": 60.0, "low": 55.0, "high": 66.0, "blocks": 2}}
    return found | {"predicted": 60.0, "ratios": more.get("ratios", ratios)}


def test_all_goals_are_met_by_rows_that_meet_them():
    assert set(goals.met(goals.figures([row(), own_case()])).values()) == {True}
    assert goals.misses([row(), own_case()]) == []


@pytest.mark.parametrize(
    ("missing", "goal"),
    [
        (with_ratio("ours / hand-tuned", 0.94), "ours_over_tuned"),
        (row(ratios={}), "ours_over_tuned"),
        (with_ratio("ours / autotune", 0.97), "ours_over_autotune"),
        (row(predicted=4.0), "prediction_error_p90"),
        (row(predicted=2.0), "prediction_error_p90"),
        (row(seconds=121.0), "seconds_max"),
        (row(data={"same": False, "how": "different", "elements": 3}), "same_data"),
        (row(data={"same": None, "how": "unknown"}), "same_data"),
        (
            own_case(ratios={"ours / original": {"estimate": 46.0, "low": 40.0, "high": 50.0, "blocks": 2}}),
            "processor_bound_speedup",
        ),
    ],
)
def test_each_goal_is_missed_by_the_row_that_misses_it(missing, goal):
    assert goals.met(goals.figures([row(), missing]))[goal] is False
    assert goals.met(goals.figures([row(), row(), own_case()]))[goal] is True


def test_slower_than_autotune_by_less_than_matters_is_no_slower():
    assert goals.reaches(with_ratio("ours / autotune", 0.985), "ours / autotune")


def test_what_was_not_measured_is_not_judged():
    found = goals.met(goals.figures([row(fixes=None, predicted=None, data=None, seconds=None)]))
    for name in ("prediction_error_median", "same_data", "seconds_max", "processor_bound_speedup"):
        assert found[name] is None


def test_without_an_accepted_fix_nothing_was_predicted():
    assert goals.prediction_error(row(fixes=None)) is None
    assert goals.prediction_error(row(predicted=3.6)) == pytest.approx(0.2)


def test_a_prediction_is_scored_only_where_what_was_achieved_is_sure():
    def achieved(low, high, blocks=2):
        return with_ratio("ours / original", 2.0, low, high, blocks) | {"predicted": 3.0}

    unsure = [achieved(1.7, 2.1), achieved(1.9, 2.3), achieved(1.9, 2.1, blocks=1), row(fixes=None), row(ratios={})]
    assert goals.scored_error(achieved(1.8, 2.2)) == pytest.approx(0.5)
    assert [goals.scored_error(one) for one in unsure] == [None] * 5
    found = goals.figures([row(predicted=3.3), *unsure])
    assert (found["prediction_error_median"], found["prediction_error_p90"]) == (pytest.approx(0.1), pytest.approx(0.1))
    assert found["predictions_scored"] == [1, 4]
    assert found["prediction_error_of_all_rows_median"] == pytest.approx(0.5)


def test_a_miss_that_no_rewrite_can_avoid_is_told_apart():
    below = {"estimate": 0.5, "low": 0.4, "high": 0.6}
    other = row("gil_map_in_turn", reachable=False, ratios={"ours / hand-tuned": below, "ours / autotune": below})
    told = "\n".join(goals.misses([row(), other, with_ratio("ours / hand-tuned", 0.94, 0.9, 0.98)]))
    assert "gil_map_in_turn (0.50), blocking_map (0.94, not beyond doubt)" in told
    assert "no rewrite: gil_map_in_turn." in told
    assert "Left to explain: blocking_map." in told


def test_a_case_that_failed_counts_as_missed_and_is_named():
    failed = {"case": "tiny_elements", "reachable": True, "seconds": 3.0, "failed": "RuntimeError: no"}
    found = goals.figures([row(), failed])
    assert found["ours_over_tuned"] == [1, 2]
    assert found["failed"] == 1
    assert "tiny_elements (not measured)" in "\n".join(goals.misses([row(), failed]))


@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=8))
def test_the_mean_of_ratios_is_the_geometric_one(ratios):
    found = goals.figures([with_ratio("ours / original", value) for value in ratios])
    assert found["ours_over_original_mean"] == pytest.approx(math.prod(ratios) ** (1 / len(ratios)))
