"""How the benchmark of fixes compares versions and data, and what it reads of a report."""

from __future__ import annotations

from pathlib import Path

import accepted
import faulty
import numpy as np
import processes
import pytest
import side_by_side
import yielded

# The session


def plan(fixes="cache@MapDataset/_3", name="never_cached"):
    case = faulty.chosen([name])[0]
    return side_by_side.planned(case, Path("files"), fixes, blocks=4, window_s=2.0)


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


def test_an_original_that_differs_from_itself_says_nothing_of_the_fix():
    other = elements([[5.0], [6.0]], [[7.0], [8.0]])
    read = {"original": ORIGINAL, "ours": other}
    assert processes.judged(read)["same"] is False
    assert processes.judged(read | {"original again": ORIGINAL})["same"] is False
    assert processes.judged(read | {"original again": other[::-1]})["same"] is None


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
