"""How the benchmark of diagnosis judges a report and XProf, and sums up."""

import cases
import figures
import judging
import known
import pytest
from hypothesis import given
from hypothesis import strategies as st

CASES = {case.name: case for case in known.CASES}


def finding(rule, *, limiting=True, file=None, line=None):
    location = {"file": file, "line": line, "op": "Map"}
    return {"rule": rule, "limiting": limiting, "location": location, "remedy": f"mend {rule}"}


def report(bottleneck, *findings, predictions=()):
    parts = {"input": 0.008, "residual": -0.0002}
    verdict = {
        "bottleneck": bottleneck,
        "summary": "The step waits.",
        "confidence": 1.0,
        "step_time_s": {"estimate": 0.01},
        "attribution_s": parts,
    }
    return {"verdict": verdict, "findings": findings, "predictions": predictions}


def at_the_fault(case, rule):
    return finding(rule, file=str(case.file), line=cases.fault_places(case)[0].lines.start)


def test_verdict_findings_and_line_make_a_report_right():
    case = CASES["pool_too_small"]
    found = judging.judged(case, report("input", at_the_fault(case, "thread-pool")))
    assert found["right"]
    assert found["line_found"]
    assert found["residual_share"] == 0.02
    assert (found["says"], found["op"], found["advice"]) == ("The step waits.", "Map", "mend thread-pool")


@pytest.mark.parametrize(
    ("bottleneck", "rules", "missing", "wrong"),
    [
        ("compute", ["thread-pool"], [], []),
        ("input", ["python-function"], ["thread-pool"], []),
        ("input", ["thread-pool", "sequential-map"], [], ["sequential-map"]),
        ("input", ["thread-pool", "eager-step"], [], ["eager-step"]),
    ],
)
def test_a_wrong_verdict_a_missing_or_a_wrong_finding_make_it_wrong(bottleneck, rules, missing, wrong):
    found = judging.judged(CASES["pool_too_small"], report(bottleneck, *map(finding, rules)))
    assert not found["right"]
    assert (found["missing"], found["wrongly_limiting"]) == (missing, wrong)
    assert found["line_found"] is False


def test_a_rule_that_has_to_be_seen_need_not_be_limiting():
    case = CASES["prefetches_everywhere"]
    seen = finding("redundant-prefetch", limiting=False)
    assert judging.judged(case, report("input", finding("python-function"), seen))["right"]
    assert judging.judged(case, report("input", finding("python-function")))["missing"] == ["redundant-prefetch"]


@pytest.mark.parametrize("rule", sorted(judging.PIPELINE_RULES | judging.STEP_RULES))
def test_whatever_is_limiting_in_a_healthy_case_is_wrong(rule):
    case = CASES["big_shuffle_of_ids"]
    assert judging.judged(case, report("compute"))["right"]
    assert judging.wrongly_limiting(case, [rule]) == [rule]


def test_a_finding_about_the_input_is_wrong_where_only_the_step_is_slow():
    assert judging.wrongly_limiting(CASES["eager_training"], ["eager-step", "sequential-map"]) == ["sequential-map"]


def test_what_was_asked_for_is_not_wrong_on_either_side():
    assert judging.wrongly_limiting(CASES["stalls_in_step_and_input"], ["host-stall", "thread-pool"]) == []


def test_a_line_of_another_file_is_not_the_line():
    case = CASES["pool_too_small"]
    line = cases.fault_places(case)[0].lines.start
    assert not judging.line_found(case, [finding("thread-pool", file="elsewhere.py", line=line)])
    assert not judging.line_found(case, [{**at_the_fault(case, "thread-pool"), "limiting": False}])
    assert not judging.line_found(case, [finding("thread-pool")])


def test_a_place_is_told_without_directories():
    assert judging.place_of(finding("late-filter", file="/home/me/data.py", line=3)) == "late-filter at data.py:3"
    assert judging.place_of(finding("late-filter")) == "late-filter at no line"


PREDICTIONS = [
    {"name": "as it is", "fixes": [], "batches_per_s": 10.0},
    {"name": "input costs nothing", "fixes": [], "batches_per_s": 99.0},
    {"name": "parallel-map", "fixes": ["parallel-map"], "batches_per_s": 20.0},
    {"name": "b", "fixes": ["thread-pool:64", "parallel-map"], "batches_per_s": 80.0},
    {"name": "a", "fixes": ["parallel-map", "thread-pool:32"], "batches_per_s": 70.0},
    {"name": "s", "fixes": ["parallel-map", "thread-pool:8"], "batches_per_s": 50.0},
    {"name": "c", "fixes": ["cache@MapDataset/_3"], "batches_per_s": 90.0},
    {"name": "gather", "fixes": ["gather"], "batches_per_s": None},
]


@pytest.mark.parametrize(
    ("fixes", "expected"),
    [
        ((), 10.0),
        (("parallel-map",), 20.0),
        (("parallel-map", "thread-pool:16"), 70.0),
        (("parallel-map", "thread-pool:64"), 80.0),
        (("parallel-map", "thread-pool:128"), None),
        (("thread-pool:16",), None),
        (("cache@",), 90.0),
        (("gather",), None),
    ],
)
def test_the_prediction_with_the_same_fixes_is_taken(fixes, expected):
    assert judging.predicted_per_s(report("input", predictions=PREDICTIONS), fixes) == expected


def test_errors_are_relative_to_what_was_measured():
    assert judging.error(12.0, 10.0) == pytest.approx(0.2)
    assert judging.error(None, 10.0) is None
    assert judging.error(12.0, None) is None


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1.0))
def test_a_quantile_is_a_value_with_that_share_at_or_below_it(values, share):
    found = judging.quantile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)
    assert sum(value < found for value in values) < max(share * len(values), 1)


def test_nothing_has_no_quantile():
    assert judging.quantile([None], 0.5) is None


def row(**more):
    own = {
        "healthy": False,
        "right": True,
        "bottleneck_right": True,
        "wrongly_limiting": [],
        "line_found": True,
        "seconds": 40.0,
        "residual_share": 0.01,
        "prediction_error": 0.05,
        "tuned_prediction_error": 0.08,
        "fixes": ["prefetch"],
        "round_trip": True,
        "tuned_is_the_same": True,
        "tuned_over_plain": 2.0,
        "xprof": {"markers": {"says": "input", "right": True}},
    }
    return own | more


def test_all_goals_are_met_by_rows_that_meet_them():
    assert set(figures.met(figures.figures([row(), row()])).values()) == {True, None}


@pytest.mark.parametrize(
    ("change", "goal"),
    [
        ({"right": False}, "right"),
        ({"wrongly_limiting": ["thread-pool"]}, "wrongly_limiting"),
        ({"healthy": True, "right": False}, "healthy_clean"),
        ({"line_found": False}, "line_found"),
        ({"seconds": 61.0}, "seconds_max"),
        ({"residual_share": 0.04}, "residual_share_max"),
        ({"prediction_error": 0.3}, "prediction_error_p90"),
        ({"tuned_prediction_error": 0.3}, "tuned_prediction_error_p90"),
        ({"round_trip": False}, "round_trip"),
        ({"tuned_over_plain": 1.2}, "slower"),
        ({"tuned_over_plain": None}, "slower"),
    ],
)
def test_each_goal_is_missed_by_the_row_that_misses_it(change, goal):
    assert figures.met(figures.figures([row(), row(**change)]))[goal] is False


def test_other_ways_of_profiling_are_counted_apart():
    ways = {"markers": {"says": "input", "right": True}, "none": {"says": "nothing", "right": False}}
    found = figures.figures([row(), row(xprof=ways)])
    assert found["xprof_right"] == [2, 2]
    assert found["xprof_right_otherwise"] == {"outside": [0, 0], "none": [0, 1], "fit": [0, 0]}


def test_what_was_not_measured_is_not_judged():
    nothing = row(prediction_error=None, tuned_prediction_error=None, round_trip=None, residual_share=None)
    found = figures.met(figures.figures([nothing]))
    assert {found[name] for name in ("prediction_error_median", "round_trip", "residual_share_max")} == {None}


def test_a_case_whose_diagnosis_failed_is_counted_as_wrong():
    failed = {
        "healthy": False,
        "fixes": ["prefetch"],
        "right": False,
        "wrongly_limiting": [],
        "seconds": 9.0,
        "tuned_over_plain": None,
    }
    found = figures.figures([row(), failed, row(fixes=[], tuned_prediction_error=None)])
    assert found["right"] == [2, 3]
    assert found["tuned_predictions"] == [1, 2]


@pytest.mark.parametrize(
    ("says", "input_bound", "is_right"),
    [
        ("input", True, True),
        ("input", False, False),
        ("not input", False, True),
        ("not input", True, False),
        ("perhaps input", True, False),
        ("nothing", False, False),
    ],
)
def test_a_perhaps_and_a_silence_are_no_answer(says, input_bound, is_right):
    assert judging.right(says, input_bound=input_bound) is is_right
