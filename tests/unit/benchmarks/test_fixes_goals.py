"""What the cases of the benchmark of fixes come to: goals, pages, and a run that goes on."""

from __future__ import annotations

import importlib.util
import json
import math
import sys

import faulty
import goals
import kept
import pytest
import written
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


# The goals


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


# What is written


def page(*rows):
    values = goals.figures(rows)
    more = {"cpus": 2, "blocks": 4, "window_s": 2.0, "budget_s": 300.0, "provisional": False}
    return written.markdown({"results": rows, "value": values, "goals_met": goals.met(values), **more})


def test_the_table_has_a_cell_for_each_column_whatever_is_missing():
    failed = {"case": "b", "reachable": False, "failed": "ValueError: a | b\nc"}
    text = page(row(), own_case(), failed)
    lines = [line for line in text.splitlines() if line.startswith("|")][:5]
    assert {line.count("|") for line in lines} == {lines[0].count("|")}
    assert "| blocking_map | 41 | 123 | 125 | 80 | 0.984 (0.974 to 0.994) | 1.5 (" in text
    assert "| b * |" in text


def test_a_goal_that_is_missed_stands_out():
    assert "| prediction_error_p90 | 0.25 | 0.333 | NO |" in page(row(predicted=4.0), own_case(predicted=None))
    assert "**different (3)**" in page(row(data={"same": False, "how": "different", "elements": 3}))


def test_one_line_tells_what_a_case_came_to():
    assert written.short(row()) == (
        "blocking_map: 3 x original, 0.984 x hand-tuned, 1.5 x autotune, identical (64), parallel-map:16"
    )
    assert "failed: ValueError" in written.short({"case": "b", "failed": "ValueError"})


# Going on


def test_a_run_goes_on_after_the_cases_that_are_done(tmp_path):
    assert kept.kept(tmp_path) == {}
    kept.keep(tmp_path, row("a", failed="RuntimeError"))
    kept.keep(tmp_path, row("b"))
    kept.keep(tmp_path, row("a", seconds=1.0))
    kept.keep(tmp_path, row("c", failed="RuntimeError"))
    with (tmp_path / kept.JOURNAL).open("a", encoding="utf-8") as journal:
        journal.write(json.dumps(row("d"))[:20])
    found = kept.kept(tmp_path)
    assert {name: one["seconds"] for name, one in found.items()} == {"a": 1.0, "b": 100.0}


# The run


@pytest.fixture
def run(monkeypatch, tmp_path):
    """The benchmark with nothing started: ``run(*arguments)``, and ``run.done`` are the cases that were."""
    spec = importlib.util.spec_from_file_location("fixes_main", faulty.HERE / "__main__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    seen = []

    def measured(comparison, folder):
        seen.append(folder.parent.name)
        if comparison.arms[0].kwargs["target"].endswith(":tiny_elements"):
            raise RuntimeError("no room")
        found = row()
        return {name: found[name] for name in ("steps_per_s", "ratios")}

    said = {"name": "prefetch", "fixes": ["prefetch"], "outcome": "accepted", "why": "so", "chosen": True}
    said |= {"predicted_speedup": 3.0, "verified_speedup": None, "semantics": None}
    report = {"fixes": [said]}
    monkeypatch.setattr(module, "optimize", lambda *_: {"seconds": 60.0, "exit_code": 0, "report": report})
    monkeypatch.setattr(module, "measured", measured)
    monkeypatch.setattr(module, "same_data", lambda *_: {"same": True, "how": "identical", "elements": 8})
    monkeypatch.setattr(module.psutil, "cpu_percent", lambda interval: 50.0)

    def start(*arguments):
        monkeypatch.setattr(sys, "argv", ["fixes", *arguments, "--out", str(tmp_path / "out")])
        module.main()
        return json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))

    start.done = seen
    return start


def test_a_case_that_raises_costs_that_case_alone(run, capsys):
    found = run("--only", "no_prefetch", "tiny_elements", "late_filter")
    assert run.done == ["no_prefetch", "tiny_elements", "late_filter"]
    assert [one.get("failed") for one in found["results"]] == [None, "RuntimeError: no room", None]
    assert found["value"]["failed"] == 1
    said = capsys.readouterr()
    assert "tiny_elements" in said.out
    assert "[3 of 3] late_filter" in said.err


def test_going_on_does_what_failed_or_was_not_there_again(run):
    run("--only", "no_prefetch", "tiny_elements")
    with pytest.raises(SystemExit):
        run("--only", "no_prefetch", "late_filter")
    run.done.clear()
    found = run("--resume", "--only", "no_prefetch", "tiny_elements", "late_filter")
    assert run.done == ["tiny_elements", "late_filter"]
    assert [one["case"] for one in found["results"]] == ["no_prefetch", "tiny_elements", "late_filter"]
    assert found["provisional"]


def test_results_name_no_directory_of_the_machine(run, tmp_path):
    run("--only", "no_prefetch")
    for name in ("results.json", "results.md"):
        assert str(tmp_path) not in (tmp_path / "out" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("wrong", [("--only", "no_such_case"), ("--blocks", "0"), ("--window", "0")])
def test_wrong_options_are_refused_before_anything_runs(run, wrong):
    with pytest.raises(SystemExit):
        run(*wrong)
    assert run.done == []


def test_a_run_does_not_go_on_in_other_circumstances(run):
    run("--only", "no_prefetch")
    with pytest.raises(SystemExit, match="another --budget"):
        run("--resume", "--blocks", "5")
    assert run.done == ["no_prefetch"]
