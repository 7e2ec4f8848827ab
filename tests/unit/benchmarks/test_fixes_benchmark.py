"""How the benchmark of fixes chooses its cases, plans a session, compares data, and sums up."""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks" / "fixes"))

import accepted
import faulty
import goals
import kept
import processes
import side_by_side
import versions
import written
import yielded


def row(name="blocking_map", **more):
    def measured(value, spread=0.01):
        return {"estimate": value, "low": value * (1 - spread), "high": value * (1 + spread), "blocks": 4}

    own = {
        "case": name,
        "reachable": True,
        "others_used_of_the_cores": 0.0,
        "seconds": 250.0,
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


def with_ratio(name, estimate, low=None, high=None):
    found = row()
    return found | {"ratios": found["ratios"] | {name: {"estimate": estimate, "low": low, "high": high}}}


def own_case(**more):
    found = row(faulty.PROCESSOR_BOUND.name, **more)
    ratios = found["ratios"] | {"ours / original": {"estimate": 60.0, "low": 55.0, "high": 66.0}}
    return found | {"predicted": 60.0, "ratios": more.get("ratios", ratios)}


# The cases


def test_every_case_has_something_to_mend_in_its_dataset():
    found = faulty.faulty_cases()
    assert len({case.name for case in found}) == len(found) > 40
    assert not any(case.healthy or case.family == "steps" for case in found)
    assert found[-1] is faulty.PROCESSOR_BOUND


def test_cases_are_chosen_by_name_in_that_order_and_once():
    names = ["tiny_elements", "eager_training", "tiny_elements"]
    assert [case.name for case in faulty.chosen(names)] == ["tiny_elements", "eager_training"]
    assert faulty.chosen([]) == faulty.faulty_cases()


@pytest.mark.parametrize("name", ["no_such_case", "big_shuffle_of_ids"])
def test_what_is_no_case_or_healthy_is_refused(name):
    with pytest.raises(KeyError, match=name):
        faulty.chosen([name])


def test_only_where_the_hand_tuned_version_is_a_rewrite_can_one_reach_it():
    by_name = {case.name: case for case in faulty.faulty_cases()}
    assert faulty.reachable(by_name["blocking_map"])
    assert not faulty.reachable(by_name["gil_map_in_turn"])
    assert [name for name, case in by_name.items() if faulty.gives_up_order(case)] == ["waits_for_the_slowest"]


def test_the_own_case_is_a_function_of_its_file_that_can_be_tuned():
    case = faulty.PROCESSOR_BOUND
    tree = ast.parse(case.file.read_text(encoding="utf-8"))
    names = {node.name: [a.arg for a in node.args.args] for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert names[case.name] == ["tuned", "folder"]
    assert case.settings(Path("here"), tuned=True) == {"tuned": True, "folder": "here"}
    assert case.accelerator() == "real"


# The session


def plan(fixes="cache@MapDataset/_3", name="never_cached"):
    case = faulty.chosen([name])[0]
    return side_by_side.planned(case, Path("files"), fixes, blocks=4, window_s=2.0, cache_dir=Path("kept"))


def test_the_four_versions_are_arms_of_one_target():
    found = plan()
    assert [arm.id for arm in found.arms] == ["original", "ours", "hand-tuned", "autotune"]
    assert [arm.role for arm in found.arms] == ["baseline", *["candidate"] * 3]
    assert [arm.fix for arm in found.arms] == [None, "cache@MapDataset/_3", None, None]
    assert [arm.kwargs.get("tuned", False) for arm in found.arms] == [False, False, True, False]
    assert [arm.kwargs["version"] for arm in found.arms] == ["original", "original", "original", versions.AUTOTUNE]
    assert found.target.endswith("versions.py:make")
    assert found.accelerators[0].step_times_ms == (4.0,)
    assert found.fill_caches


def test_without_accepted_fixes_the_original_is_ours(build):
    found = plan(fixes=None)
    assert [arm.id for arm in found.arms] == ["original", "hand-tuned", "autotune"]
    walls = {"original": 0.02, "hand-tuned": 0.01, "autotune": 0.02}
    trials = [trial(build, arm, wall, block) for arm, wall in walls.items() for block in range(4)]
    told = side_by_side.told(found, trials)
    assert told["steps_per_s"]["ours"] == told["steps_per_s"]["original"]
    assert told["ratios"]["ours / original"] == {"estimate": 1.0, "low": 1.0, "high": 1.0, "blocks": 4}
    assert told["ratios"]["ours / hand-tuned"]["estimate"] == pytest.approx(0.5, rel=0.02)


def trial(build, arm, wall, block, **more):
    return build.arm_trial(arm, wall, block=block, group=side_by_side.GROUP, emulated_ms=(4.0,), **more)


def test_ratios_and_speeds_are_found_again(build):
    walls = {"original": 0.04, "ours": 0.01, "hand-tuned": 0.008, "autotune": 0.02}
    trials = [trial(build, arm, wall, block, drift=0.3) for arm, wall in walls.items() for block in range(4)]
    told = side_by_side.told(plan(), trials)
    assert told["ratios"]["ours / hand-tuned"]["estimate"] == pytest.approx(0.8, rel=0.02)
    assert told["ratios"]["ours / autotune"]["estimate"] == pytest.approx(2.0, rel=0.02)
    assert told["ratios"]["ours / original"]["low"] > 3.8, "the blocks' drift is in both arms and cancels"
    assert told["ended"] == {}


def test_an_arm_that_died_has_no_figures_and_the_others_have(build):
    walls = {"original": 0.04, "hand-tuned": 0.008, "autotune": 0.02}
    trials = [trial(build, arm, wall, 0) for arm, wall in walls.items()]
    trials.append(build.dead("ours", group=side_by_side.GROUP, emulated_ms=(4.0,)))
    told = side_by_side.told(plan(), trials)
    assert told["steps_per_s"]["ours"] is None
    assert told["ratios"]["ours / hand-tuned"] is None
    assert "SIGKILL" in told["ended"]["ours"]
    assert told["ratios"]["autotune / original"]["low"] is None, "one block has no interval"


@given(st.dictionaries(st.integers(0, 9), st.floats(1e-3, 1e6), min_size=1), st.floats(1e-3, 1e3))
def test_a_ratio_is_the_factor_between_blocks_and_its_inverse_the_other_way(rates, factor):
    faster = {block: rate * factor for block, rate in rates.items()}
    there, back = side_by_side.ratio(faster, rates), side_by_side.ratio(rates, faster)
    assert there["estimate"] == pytest.approx(factor)
    assert there["estimate"] * back["estimate"] == pytest.approx(1.0)
    assert there["blocks"] == len(rates)


def test_blocks_that_only_one_side_has_count_for_nothing():
    assert side_by_side.ratio({0: 2.0, 1: 9.0}, {0: 1.0, 2: 5.0})["estimate"] == pytest.approx(2.0)
    assert side_by_side.ratio({1: 9.0}, {2: 5.0}) is None


# The data


def elements(*values, dtype=np.float32):
    return [[np.array(element, dtype)] for element in values]


ORIGINAL = elements([[1.0], [2.0]], [[3.0], [4.0]])


@pytest.mark.parametrize(
    ("fixed", "how"),
    [
        (ORIGINAL, "identical"),
        (ORIGINAL[:1], "identical"),
        (elements([[1.0 + 1e-6], [2.0]], [[3.0], [4.0]]), "rounding"),
        (elements([[1.1], [2.0]], [[3.0], [4.0]]), "different"),
        (elements([[3.0], [4.0]], [[1.0], [2.0]]), "different"),
        (elements([[1], [2]], [[3], [4]], dtype=np.int32), "different"),
        (elements([[1.0], [2.0]], [[3.0]]), "different"),
        ([[*element, *element] for element in ORIGINAL], "different"),
        ([], "different"),
    ],
)
def test_elements_are_compared_in_order_and_bit_by_bit(fixed, how):
    found = yielded.same(ORIGINAL, fixed)
    assert (found["how"], found["same"]) == (how, how != "different")
    assert found["elements"] == min(len(ORIGINAL), len(fixed))


def test_where_order_is_given_up_the_rows_have_to_be_all_there():
    other = elements([[4.0], [1.0]], [[2.0], [3.0]])
    assert yielded.same(ORIGINAL, other, any_order=True)["how"] == "other order"
    assert yielded.same(ORIGINAL, ORIGINAL, any_order=True)["how"] == "identical"
    twice = elements([[4.0], [1.0]], [[2.0], [2.0]])
    assert not yielded.same(ORIGINAL, twice, any_order=True)["same"]
    assert not yielded.same(ORIGINAL, other[:1], any_order=True)["same"]


def test_texts_are_compared_too():
    texts = [[np.array([b"ab", b"c"], object)]]
    assert yielded.same(texts, [[np.array([b"ab", b"c"], object)]])["how"] == "identical"
    assert not yielded.same(texts, [[np.array([b"ab", b"d"], object)]])["same"]


def test_an_original_that_differs_from_itself_says_nothing_of_the_fix():
    other = elements([[5.0], [6.0]], [[7.0], [8.0]])
    read = {"original": ORIGINAL, "ours": other}
    assert processes.judged(read, any_order=False)["same"] is False
    assert processes.judged(read | {"original again": ORIGINAL}, any_order=False)["same"] is False
    assert processes.judged(read | {"original again": other[::-1]}, any_order=False)["same"] is None


# What the command said


def result(name, *, chosen=False, predicted=None, verified=None):
    return {
        "name": name,
        "fixes": name.split(" + "),
        "outcome": "accepted" if chosen else "rejected",
        "why": "so",
        "chosen": chosen,
        "predicted_speedup": predicted,
        "verified_speedup": {"estimate": verified, "low": verified, "high": verified} if verified else None,
        "semantics": None,
    }


def test_the_chosen_fix_is_the_accepted_one():
    report = {"fixes": [result("prefetch", verified=1.1), result("parallel-map", chosen=True, predicted=2.0)]}
    found = accepted.said({"seconds": 99.0, "exit_code": 0, "report": report})
    assert (found["fixes"], found["predicted"], found["seconds"]) == ("parallel-map", 2.0, 99.0)
    assert [one["verified"] for one in found["tried"]] == [1.1, None]


def test_what_was_put_together_is_predicted_by_the_model_where_that_has_it():
    report = {
        "fixes": [result("prefetch + parallel-map", chosen=True)],
        "predictions": [
            {"fixes": ["prefetch"], "speedup": 1.5},
            {"fixes": ["parallel-map", "prefetch"], "speedup": 4.0},
        ],
    }
    assert accepted.said({"seconds": 1.0, "exit_code": 0, "report": report})["predicted"] == 4.0
    report["predictions"] = []
    assert accepted.said({"seconds": 1.0, "exit_code": 0, "report": report})["predicted"] is None


def test_a_command_without_a_report_failed():
    found = accepted.said({"seconds": 9.0, "exit_code": 1, "report": None, "error": "no TensorFlow"})
    assert found["fixes"] is None
    assert "no TensorFlow" in found["failed"]


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
        (row(seconds=301.0), "seconds_max"),
        (row(data={"same": False, "how": "different", "elements": 3}), "same_data"),
        (row(data={"same": None, "how": "unknown"}), "same_data"),
        (
            own_case(ratios={"ours / original": {"estimate": 46.0, "low": 40.0, "high": 50.0}}),
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
    assert {name: one["seconds"] for name, one in found.items()} == {"a": 1.0, "b": 250.0}


# The command and the readers


@pytest.fixture
def commands(monkeypatch):
    """What would be started, and how it ends."""
    seen = SimpleNamespace(commands=[], ends=(0, ""))

    def run(command, limit_s):
        seen.commands.append(command)
        return seen.ends

    monkeypatch.setattr(processes, "_run", run)
    return seen


def test_the_command_gets_the_case_s_accelerator_and_settings(commands, tmp_path):
    found = processes.optimize(faulty.chosen(["interleave_in_turn"])[0], tmp_path / "files", tmp_path, 120.0)
    command = " ".join(commands.commands[0])
    assert "optimize" in command
    assert "--accelerator emulated:6 " in command
    assert f"--set folder={tmp_path / 'files'}" in command
    assert "--any-order" not in command
    assert found["report"] is None
    assert found["error"]


def test_giving_up_order_is_allowed_where_the_hand_tuned_version_does(commands, tmp_path):
    (tmp_path / "report.json").write_text("{}", encoding="utf-8")
    found = processes.optimize(faulty.chosen(["waits_for_the_slowest"])[0], tmp_path, tmp_path, 120.0)
    assert "--any-order" in commands.commands[0]
    assert found["report"] == {}


def test_a_reader_that_dies_leaves_the_data_unknown(commands, tmp_path):
    commands.ends = (-9, "first\nKilled")
    found = processes.same_data(faulty.PROCESSOR_BOUND, tmp_path, tmp_path, "cache@MapDataset/_3")
    assert found["same"] is None
    assert "Killed" in found["why"]


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

    report = {"fixes": [result("prefetch", chosen=True, predicted=3.0)]}
    monkeypatch.setattr(module, "optimize", lambda *_: {"seconds": 60.0, "exit_code": 0, "report": report})
    monkeypatch.setattr(module, "measured", measured)
    monkeypatch.setattr(module, "same_data", lambda *_: {"same": True, "how": "identical", "elements": 8})
    monkeypatch.setattr(module.psutil, "cpu_percent", lambda interval: 1.0)

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
