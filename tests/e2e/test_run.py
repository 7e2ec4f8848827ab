"""``xttsbench run`` on targets of known speed: decided, refused, ended, interrupted, and scenarios that are none.

Most run the command in this process on one helper that is started once; that each block has a helper of its own is
shown without TensorFlow, in ``tests/unit/workflows``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.e2e.parent import WITH_CTRL_C, WITHOUT_TENSORFLOW, python
from xttsbench.execution.journal import read_trials
from xttsbench.records.base import FASTER

ROOT = Path(__file__).parents[2]
ARMS = ROOT / "tests" / "targets" / "arms.py"
HEAD = f"name: mine\ndescription: a test\ntarget: {ARMS}:waits\nsteps: 20\nwindow_s: 0.3\n"
TWO = HEAD + "base: {ms: 20}\narms:\n- {id: slow}\n- {id: fast, config: {ms: 10}}\n"


@pytest.fixture
def run(on_one_helper, called, monkeypatch, tmp_path):
    """``run(text, *options)``: a scenario of that text, run in this process: exit code, standard output and error.

    Of the report only the record is written: drawing it takes longer than most of these runs.
    """

    def write(directory, report, trials):
        (directory / "report.json").write_text(report.model_dump_json(), encoding="utf-8")

    monkeypatch.setattr("xttsbench.reporting.page.write_run", write)
    monkeypatch.chdir(tmp_path)

    def command(text, *options):
        (tmp_path / "mine.yaml").write_text(text)
        shutil.rmtree("out", ignore_errors=True)  # of a first try
        return call("mine.yaml", "--out", "out", *options)

    def call(*arguments):
        code, out, err = called("run", *arguments)
        assert "Traceback" not in err
        return code, out, err

    command.call = call
    return command


def record(directory=Path("out")):
    return json.loads((directory / "report.json").read_text(encoding="utf-8"))


@pytest.mark.measured
def test_a_known_speed_ratio_is_found_with_its_interval(run, tmp_path):
    # Long waits, so that what a busy machine adds to each is small beside them, and turns of which none is too short.
    text = TWO.replace("ms: 20", "ms: 60").replace("ms: 10", "ms: 30").replace("window_s: 0.3", "window_s: 1")
    code, out, err = run(text + "blocks: 6\n")
    report = record()
    arms = {arm["id"]: arm for arm in report["arms"]}
    assert arms["fast"]["effect"]["estimate"] == pytest.approx(2, rel=0.2)
    assert arms["fast"]["effect"]["low"] > 1.2
    assert arms["slow:again"]["role"] == "aa"
    assert arms["fast"]["padding_efficiency"] == pytest.approx(20 / 32)
    assert arms["fast"]["valid_frames_per_s"]["estimate"] == pytest.approx(
        5 * arms["fast"]["throughput_per_s"]["estimate"], rel=1e-6
    )
    assert report["parity"]["same"] is True
    assert (code, arms["fast"]["decision"] in FASTER) == (0, True), err
    assert "faster than slow" in out
    # The quotient of what stands beside one another.
    times = [arms[name]["step_time_s"]["estimate"] for name in ("slow", "fast")]
    assert times[0] / times[1] == pytest.approx(arms["fast"]["effect"]["estimate"])
    trials = read_trials(Path("out"))
    # The first one is parity's; then two processes of each, until each shows what it can.
    assert [trial.spec.arm for trial in trials] == ["slow", *["slow", "fast", "slow:again"] * 2]
    assert all(1 <= len(trial.rounds) <= 6 for trial in trials[1:])
    assert arms["fast"]["processes"] == 2
    # All of them measured the same batches, and nothing else.
    for process in (trials[1:4], trials[4:]):
        assert len({trial.segment("as_is").columns["batch"] for trial in process}) == 1
    assert all(
        {segment.name for segment in trial.segments} == {"settling", "turn_start", "as_is"} for trial in trials[1:]
    )
    assert all(trial.overhead is None and trial.anatomy is None and trial.pipeline is None for trial in trials)


def test_a_step_is_warmed_up_and_waits_are_added_behind_an_emulated_accelerator(run):
    text = HEAD.replace(":waits", ":steps") + "base: {ms: 2, shapes: 3}\naccelerator: [real, 'emulated:5']\nblocks: 1\n"
    code, _, err = run(text)
    assert code == 0, err
    report = record()
    real, emulated = report["arms"]
    assert real["utilization_of"] == "processor: share of the wall time inside the step"
    assert emulated["utilization_of"] == "emulated accelerator"
    assert emulated["step_time_s"]["estimate"] - real["step_time_s"]["estimate"] == pytest.approx(0.005, rel=0.5)
    assert report["verdict"]["bottleneck"] == "inconclusive"
    assert "diagnose" in report["verdict"]["summary"]
    for trial in read_trials(Path("out")):
        warm_up, as_is = trial.segments
        assert warm_up.steps == 3
        assert sum(as_is.columns["traces"]) == 0


def test_dying_arms_are_results_and_the_others_are_measured(run):
    # A longer window than the steps take: the tenth batch has to come on a slow machine too.
    text = TWO.replace("window_s: 0.3", "window_s: 2.5") + (
        "- {id: killed, config: {act: kill}}\n- {id: raises, config: {act: raise}}\n"
        "- {id: hangs, config: {act: hang}}\n- {id: other, config: {ms: 15}}\n"
        "blocks: 1\nlimits: {trial_s: 60, stall_s: 3}\n"
    )
    code, _, err = run(text)
    assert code == 0, err
    arms = {arm["id"]: arm for arm in record()["arms"]}
    ended = {name for name, arm in arms.items() if arm["decision"] == "ended"}
    assert ended == {"killed", "raises", "hangs"}
    assert arms["fast"]["effect"]["estimate"] > 1.4
    assert arms["killed"]["status"].startswith("killed: killed by SIGKILL")
    assert "the tenth batch is broken" in arms["raises"]["status"]
    assert arms["hangs"]["status"].startswith("stalled: no step ended")
    assert (arms["killed"]["rounds"], arms["other"]["rounds"]) == (0, 1)
    assert sum(t.spec.arm == "hangs" for t in read_trials(Path("out"))) == 1


def test_a_baseline_that_dies_is_told_clearly(run):
    code, _, err = run(TWO.replace("{ms: 20}", "{ms: 20, act: kill}") + "blocks: 2\n")
    assert code == 4
    assert "the baseline slow ended (killed: killed by SIGKILL" in err
    # Every arm has the fault here; what ran before the baseline has its own cause.
    assert "missing" in record()["verdict"]["step_time_s"]


def test_an_arm_with_other_data_is_refused_and_the_rest_is_measured(run):
    code, out, err = run(TWO + "- {id: shifted, config: {offset: 0.5, ms: 5}}\nblocks: 1\n")
    assert code == 5
    assert "Refused, since the data are not those of slow: shifted: batch 0, mel: row 0 (clip 0), frame 0" in err
    assert "0 against 0.5" in err
    report = record()
    arms = {arm["id"]: arm for arm in report["arms"]}
    assert arms["shifted"]["status"].startswith("refused")
    assert (arms["shifted"]["blocks"], arms["shifted"]["effect"]) == (0, {"missing": "refused, so not measured"})
    assert arms["fast"]["blocks"] == 1
    assert report["parity"]["same"] is False
    assert "REFUSED" in out


def test_options_stand_in_for_the_scenario_s_own(run):
    options = ("--blocks", 1, "--steps", 5, "--seed", 9, "--budget", 77, "--set", "batch=2")
    options += ("--accelerator", "emulated:3")
    code, out, err = run(HEAD + "blocks: 6\n", *options, "--json")
    assert code == 0, err
    assert json.loads(out) == record()
    plan = json.loads(Path("out/plan.json").read_text(encoding="utf-8"))
    assert (plan["comparison"]["blocks"], plan["comparison"]["steps"], plan["seed"], plan["budget_s"]) == (1, 5, 9, 77)
    (trial,) = read_trials(Path("out"))
    assert trial.spec.kwargs == {"batch": 2}
    assert trial.spec.emulated_ms == (3.0,)
    assert trial.spec.seed == 9


def test_a_scenario_that_is_none_runs_nothing(run, tmp_path):
    code, out, err = run(TWO + "blocks: eight\nstep: 5\n")
    assert (code, out) == (5, "")
    for word in ("2 problems", "line 10, blocks", "'eight'", "line 11, step", "'steps'"):
        assert word in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_an_option_that_cannot_be_is_a_usage_error(run, tmp_path):
    code, _, err = run(TWO, "--budget", "1")
    assert (code, "--budget" in err) == (2, True)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def start(tmp_path):
    """``start(script, *arguments)``: the command in processes of its own."""
    started = []
    (tmp_path / "mine.yaml").write_text(TWO + "blocks: 2\naccelerator: 'emulated:5'\n")

    def begin(script, *arguments):
        process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_a_whole_run_without_tensorflow_in_the_parent_and_its_report_again(start, tmp_path):
    process = start(WITHOUT_TENSORFLOW, "run", "mine.yaml", "--blocks", "1", "--json", "--out", "out")
    out, err = process.communicate(timeout=180)
    code = process.returncode
    assert code == 0, err
    assert json.loads(out) == record(tmp_path / "out")
    pages = {name: (tmp_path / "out" / name).read_bytes() for name in ("report.json", "report.md", "report.html")}
    for name in pages:
        (tmp_path / "out" / name).unlink()
    again = start(WITHOUT_TENSORFLOW, "report", "out", "--json")
    assert again.communicate(timeout=180)[0] == out
    assert again.returncode == code
    assert {name: (tmp_path / "out" / name).read_bytes() for name in pages} == pages


@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGTERM, signal.SIGHUP))]
)
def test_a_signal_leaves_a_report_of_what_there_is(start, tmp_path, number):
    process = start(WITH_CTRL_C, "run", "mine.yaml", "--set", "batch=3", "--blocks", "60", "--out", "out")
    err = ""
    for line in process.stderr:
        err += line
        if "round 1 of" in line and "is done" in line:
            break
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    err += process.communicate(timeout=120)[1]
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err
    assert len(children) >= 1 + 3  # the helper, and three that took turns
    assert not psutil.wait_procs(children, timeout=10)[1]
    assert "Interrupted; what was measured before is in the report." in err
    trials = read_trials(tmp_path / "out")
    assert [trial.status for trial in trials] == ["ok", "ok", "ok", "interrupted"]
    assert all(trial.rounds for trial in trials[1:])
    assert record(tmp_path / "out")["parity"]["same"] is True
    assert not (tmp_path / "out" / "rounds.jsonl").exists()


@pytest.mark.slow
def test_a_run_that_is_killed_in_its_turns_has_its_whole_rounds_on_disk(start, tmp_path):
    process = start(WITH_CTRL_C, "run", "mine.yaml", "--set", "batch=3", "--blocks", "60", "--out", "out")
    for line in process.stderr:
        if "round 2 of" in line and "is done" in line:
            break
    process.kill()
    process.communicate()
    trials = read_trials(tmp_path / "out")
    assert [(trial.spec.kind, trial.status) for trial in trials] == [("parity", "ok"), *[("arm", "interrupted")] * 3]
    assert [len(trial.rounds) >= 2 for trial in trials[1:]] == [True] * 3
    again = python("-m", "xttsbench", "report", "out", "--json", cwd=tmp_path)
    assert again.returncode == 130, again.stderr
    assert [arm["step_time_s"]["estimate"] > 0 for arm in json.loads(again.stdout)["arms"]] == [True] * 3
