"""How the benchmark of fixes chooses its cases, plans a session, compares data, and reads the command."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import accepted
import faulty
import numpy as np
import processes
import pytest
import side_by_side
import versions
import yielded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
    return side_by_side.planned(case, Path("files"), fixes, blocks=4, window_s=2.0)


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
    same = told["ratios"]["ours / original"]
    assert (same["estimate"], same["blocks"]) == (1.0, 4)
    assert 0.97 < same["low"] < 1 < same["high"] < 1.03  # what rounds differ by is known beforehand
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
    assert told["ratios"]["autotune / original"]["blocks"] == 1


@given(st.dictionaries(st.integers(0, 5), st.floats(1e-3, 0.1), min_size=1, max_size=4), st.floats(0.01, 100))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_ratio_is_the_factor_in_each_process_and_the_other_way_its_inverse(build, walls, factor):
    trials = [trial(build, "original", wall, block, cv=0.0) for block, wall in walls.items()]
    trials += [trial(build, "ours", wall / factor, block, cv=0.0) for block, wall in walls.items()]
    trials += [trial(build, "hand-tuned", wall * factor, block, cv=0.0) for block, wall in walls.items()]
    found = side_by_side.told(plan(), trials)["ratios"]
    there, back = found["ours / original"], found["hand-tuned / original"]
    assert there["estimate"] == pytest.approx(factor, rel=1e-4)
    assert back["estimate"] == pytest.approx(1 / factor, rel=1e-4)
    assert there["blocks"] == back["blocks"] == len(walls)


def test_processes_that_only_one_side_has_count_for_nothing(build):
    trials = [trial(build, name, wall, 0) for name, wall in {"original": 0.02, "ours": 0.01}.items()]
    trials += [trial(build, "ours", 0.5, 1), trial(build, "hand-tuned", 0.5, 2)]
    found = side_by_side.told(plan(), trials)["ratios"]
    assert found["ours / original"]["estimate"] == pytest.approx(2.0, rel=0.02)
    assert found["ours / original"]["blocks"] == 1
    assert found["ours / hand-tuned"] is None


def rounds(build, walls, block, count, cv=0.02):
    """A process of each version that took so many turns."""
    steps = 12 * count
    number = {"round": np.repeat(np.arange(count), 12)}
    found = [trial(build, name, wall, block, steps=steps, cv=cv, columns=number) for name, wall in walls.items()]
    return [one.model_copy(update={"spec": one.spec.model_copy(update={"turns": True})}) for one in found]


def test_a_version_rests_after_half_the_rounds_of_the_first_processes_and_when_it_is_known_in_as_many_as_asked(build):
    found = plan().model_copy(update={"blocks": 2})
    walls = {"original": 0.04, "ours": 0.01, "hand-tuned": 0.01}
    half = side_by_side.ROUNDS // 2
    assert side_by_side.sure(found, rounds(build, walls, 0, half - 1)) == set()
    first = rounds(build, walls, 0, half)
    assert side_by_side.sure(found, first) == {"ours", "hand-tuned"}
    assert side_by_side.sure(found, [*first, *rounds(build, walls, 1, side_by_side.LEAST_ROUNDS - 1)]) == set()
    both = [*first, *rounds(build, walls, 1, side_by_side.LEAST_ROUNDS)]
    assert side_by_side.sure(found, both) == {"ours", "hand-tuned"}
    far = [*first, *rounds(build, walls | {"ours": 0.02}, 1, half)]
    assert "ours" not in side_by_side.sure(found, far)


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


def test_texts_are_compared_too():
    texts = [[np.array([b"ab", b"c"], object)]]
    assert yielded.same(texts, [[np.array([b"ab", b"c"], object)]])["how"] == "identical"
    assert not yielded.same(texts, [[np.array([b"ab", b"d"], object)]])["same"]


def test_an_original_that_differs_from_itself_says_nothing_of_the_fix():
    other = elements([[5.0], [6.0]], [[7.0], [8.0]])
    read = {"original": ORIGINAL, "ours": other}
    assert processes.judged(read)["same"] is False
    assert processes.judged(read | {"original again": ORIGINAL})["same"] is False
    assert processes.judged(read | {"original again": other[::-1]})["same"] is None


# The command and the readers


@pytest.fixture
def commands(monkeypatch):
    """What would be started, and how it ends."""
    seen = SimpleNamespace(commands=[], ends=(0, "", ""))

    def run(command, limit_s):
        seen.commands.append(command)
        return seen.ends

    monkeypatch.setattr(processes, "run", run)
    return seen


def test_the_command_gets_the_case_s_accelerator_and_settings(commands, tmp_path):
    found = processes.optimize(faulty.chosen(["interleave_in_turn"])[0], tmp_path / "files", tmp_path, 120.0)
    command = " ".join(commands.commands[0])
    assert "optimize" in command
    assert "--accelerator emulated:6 " in command
    assert f"--set folder={tmp_path / 'files'}" in command
    assert found["report"] is None
    assert found["error"]


def test_a_reader_that_dies_leaves_the_data_unknown(commands, tmp_path):
    commands.ends = (-9, "", "first\nKilled")
    found = processes.same_data(faulty.PROCESSOR_BOUND, tmp_path, tmp_path, "cache@MapDataset/_3")
    assert found["same"] is None
    assert "Killed" in found["why"]


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
