"""Scripts run unchanged, through the command line to report.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.parent import python

SCRIPTS = Path(__file__).parents[1] / "targets" / "scripts"


def diagnose(script: str | Path, out: Path, *options: str, budget_s: int = 40) -> tuple[int, dict[str, Any], str]:
    """Exit code, report (empty where none was written) and standard error; ``options`` may end in ``--`` and ARGS."""
    words = ("diagnose", SCRIPTS / script, "--json", "--out", out, "--budget", budget_s, *options)
    done = python("-m", "xttsbench", *words)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def limiting(report: dict[str, Any]) -> set[str]:
    return {finding["rule"] for finding in report["findings"] if finding["limiting"]}


@pytest.mark.slow
@pytest.mark.measured
def test_a_loop_that_runs_op_by_op_is_told_what_compiling_it_gives(tmp_path: Path) -> None:
    code, report, said = diagnose("eager_loop.py", tmp_path / "run", "--", "60")
    assert (code, report["verdict"]["bottleneck"]) == (0, "dispatch"), said
    assert "eager-step" in limiting(report)
    target = report["target"]
    assert (target["kind"], target["arguments"], target["iterations"]) == ("script", ["60"], ["next()"])
    assert target["step_function"].startswith("train_step (")
    (graph,) = [arm for arm in report["arms"] if arm["id"] == "step:graph"]
    assert graph["effect"]["low"] > 1.5
    (found,) = [finding for finding in report["findings"] if finding["rule"] == "eager-step"]
    assert Path(found["location"]["file"]) == SCRIPTS / "eager_loop.py"
    assert report["step"]["ops"]["phases"]["backward"] > 0.05


@pytest.mark.measured
def test_an_emulated_accelerator_replaces_the_step_and_is_the_limit_beside_a_fast_input(tmp_path: Path) -> None:
    options = "--accelerator", "emulated:30", "--steps", "60"
    code, report, said = diagnose("what_if.py", tmp_path / "run", *options, "--", "1")
    assert (code, report["verdict"]["bottleneck"]) == (0, "compute"), said
    assert report["verdict"]["summary"].startswith("The emulated accelerator is the limit (")
    assert 0.03 < report["verdict"]["step_time_s"]["estimate"] < 0.06
    assert (limiting(report), report["step"]) == (set(), None)


@pytest.mark.measured
def test_a_compiled_loop_that_waits_for_its_input_is_told_the_line(tmp_path: Path) -> None:
    code, report, said = diagnose("custom_loop.py", tmp_path / "run", "--", "9", "60")
    assert (code, report["verdict"]["bottleneck"]) == (0, "input"), said
    lines = (SCRIPTS / "custom_loop.py").read_text().splitlines()
    (function,) = [finding for finding in report["findings"] if finding["rule"] == "python-function"]
    assert lines[function["location"]["line"] - 1].startswith("def slow")
    assert function["limiting"]
    assert report["pipeline"]["ops"][-1]["location"]["line"] == 1 + next(
        number for number, line in enumerate(lines) if ".prefetch(1)" in line
    )


def test_a_script_s_own_exit_code_is_recorded_and_is_not_ours(tmp_path: Path) -> None:
    code, report, _ = diagnose("plain.py", tmp_path / "run", "--steps", "4000", "--", "exit", "150")
    assert code == 0
    assert (report["target"]["ended"], report["target"]["exit_code"]) == ("exited", 3)
    assert report["verdict"]["step_time_s"] is not None


@pytest.mark.slow  # how it ends is shown in tests/tf/worker/script/test_watched.py
def test_enough_steps_end_a_script_that_has_many(tmp_path: Path) -> None:
    code, report, _ = diagnose("plain.py", tmp_path / "run", "--steps", "40", "--", "losses", "1000000")
    assert code == 0
    assert (report["target"]["ended"], report["target"]["exit_code"]) == ("stopped", None)


def test_a_script_that_raises_is_invalid_input_with_its_place(tmp_path: Path) -> None:
    code, report, said = diagnose("plain.py", tmp_path / "run", "--", "raise", "1000")
    assert code == 5
    assert "by the script" in said
    error = report["target"]["error"]
    assert (error["type"], Path(error["file"]).name) == ("ValueError", "plain.py")
    assert 'raise ValueError("by the script")' in (SCRIPTS / "plain.py").read_text().splitlines()[error["line"] - 1]


@pytest.mark.parametrize(("options", "times"), [(("--repeat",), 2), pytest.param((), 1, marks=pytest.mark.slow)])
def test_a_script_may_run_twice_where_that_is_said(options: tuple[str, ...], times: int, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    script = tmp_path / "counts.py"
    script.write_text(
        "import sys\nimport tensorflow as tf\n"
        "open(sys.argv[1], 'a').write('x')\n"
        "for batch in tf.data.Dataset.range(200).batch(2):\n    tf.reduce_sum(batch)\n"
    )
    _, report, said = diagnose(script, tmp_path / "run", "--keep-writes", *options, "--", str(marks), budget_s=60)
    assert marks.read_text() == "x" * times, said
    assert [one["id"].partition("-")[2] for one in report["trials"]].count("script") == times


@pytest.mark.parametrize(
    ("name", "options", "code", "message"),
    [
        ("no_such.py", (), 5, "does not exist"),
        ("plain.py", ("--set", "a=1"), 2, "give .* its own after --"),
        ("plain.py:train", ("--", "x"), 2, "are for scripts"),
    ],
)
def test_a_wrong_call_is_one_sentence(name: str, options: tuple[str, ...], code: int, message: str, tmp_path) -> None:
    found, report, said = diagnose(name, tmp_path / "run", *options)
    assert (found, report) == (code, {})
    assert len(said.strip().splitlines()) == 1
    assert message.split(".*", maxsplit=1)[0].strip() in said


@pytest.mark.parametrize(("text", "said"), [("print('no steps')\n", "did not import TensorFlow"), ("", "")])
def test_a_script_without_a_step_measures_nothing(text: str, said: str, tmp_path: Path) -> None:
    script = tmp_path / "idle.py"
    script.write_text(text or "import tensorflow as tf\nprint(tf.reduce_sum(tf.ones([3])).numpy())\n")
    code, report, error = diagnose(script, tmp_path / "run")
    assert code == 4, error
    assert said in " ".join([*report["warnings"], *report["notes"]])
