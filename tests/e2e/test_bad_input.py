"""Bad input through the command line: one clear sentence, the exit code for it, and nothing measured is lost.

Most run the command in this process on one helper that is started once (TensorFlow takes seconds to import); what
depends on signals or on the processes themselves runs the command as a user does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.parent import WITH_CTRL_C
from tests.processes import still_running
from xttsbench.execution.helper import Helper
from xttsbench.execution.journal import read_trials
from xttsbench.workflows.runs import DONE, NOTHING

BAD = Path(__file__).parents[1] / "targets" / "bad.py"
PROGRESS = ("[", "Report: ", "Warning: ", "000-", "001-", "002-", "003-", "004-", "005-", "006-", "007-")


@pytest.fixture(scope="module")
def helper(tmp_path_factory):
    """A helper whose output, and that of its trials, goes to a file."""
    log = tmp_path_factory.mktemp("helper") / "output"
    with log.open("wb") as file:
        own = [os.dup(descriptor) for descriptor in (1, 2)]
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
        try:
            started = Helper()
            started.__enter__()
        finally:
            for descriptor, saved in zip((1, 2), own, strict=True):
                os.dup2(saved, descriptor)
                os.close(saved)
    try:
        started.wait_ready()
        yield started, log
    finally:
        started.__exit__(None, None, None)


class Result:
    """What a user sees of a run."""

    def __init__(self, code, out, err, directory):
        self.code, self.out, self.err, self.directory = code, out, err, directory

    @property
    def sentence(self):
        """The one line on standard error that is neither progress nor the place of the report."""
        said = [line for line in self.err.splitlines() if line.strip() and not line.startswith(PROGRESS)]
        assert len(said) == 1, self.err
        assert "Traceback" not in self.err
        assert "\x1b" not in self.err
        return said[0]

    @property
    def report(self):
        return json.loads((self.directory / "report.json").read_text(encoding="utf-8"))

    @property
    def rows(self):
        return sum(segment.steps for trial in read_trials(self.directory) for segment in trial.segments)


@pytest.fixture
def diagnose(helper, share, called, monkeypatch, tmp_path):
    """``diagnose(target, *options)``: run the command in this process."""
    share(helper[0])
    monkeypatch.chdir(tmp_path)

    def run(target, *options):
        directory = tmp_path / "run"
        out = [] if "--out" in options else ["--out", str(directory)]
        return Result(*called("diagnose", target, "--budget", "10", *options, *out), directory)

    return run


@pytest.mark.parametrize(
    ("target", "options", "words"),
    [
        ("goood", (), ["has no 'goood'", "Did you mean 'good'?"]),
        ("exits_while_built", (), ["SystemExit: 7"]),
        ("raises_deep", (), ["every record is broken"]),
    ],
)
def test_an_unusable_target(diagnose, target, options, words):
    result = diagnose(f"{BAD}:{target}", *options)
    assert result.code == 5
    assert [word for word in words if word not in result.sentence] == []
    # The run's directory is whole nevertheless, and says the same.
    assert result.report["target"]["status"] == "raised"
    assert result.report["verdict"]["bottleneck"] == "inconclusive"
    assert "missing" in result.report["verdict"]["step_time_s"]
    assert [trial.status for trial in read_trials(result.directory)] == ["raised"]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere/no.py:make", ["'nowhere/no.py' does not exist", "Check the path"]),
        ("train.py", ["train.py", "does not exist"]),
    ],
)
def test_a_target_that_is_wrong_by_its_name_runs_nothing(diagnose, tmp_path, target, words):
    result = diagnose(target)
    assert result.code == 5
    assert [word for word in words if word not in result.sentence] == []
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_target_s_traceback(diagnose):
    result = diagnose(f"{BAD}:raises_later", "--debug")
    assert result.code == 5
    assert "Traceback (most recent call last)" in result.err
    assert "in _raise" in result.err


def test_nan_batches_are_measured_and_refused(diagnose):
    result = diagnose(f"{BAD}:nan_batches")
    assert result.code == 5
    assert "NaN" in result.sentence
    assert result.report["verdict"]["step_time_s"] is not None
    assert result.rows > 20


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        ("kills_itself", "killed", ["SIGKILL"]),
        ("out_of_memory", "out_of_memory", []),
        ("out_of_memory_while_built", "out_of_memory", ["MemoryError"]),
    ],
)
def test_a_trial_that_ends_badly_ends_the_run_in_words(diagnose, target, status, words):
    result = diagnose(f"{BAD}:{target}", "--steps", "500")
    assert result.code == (NOTHING if target == "out_of_memory_while_built" else DONE)
    assert result.sentence
    trial = read_trials(result.directory)[0]
    assert trial.status == status
    assert [word for word in words if word not in trial.cause] == []
    assert result.report["target"]["status"] == status
    assert trial.cause in json.dumps(result.report, ensure_ascii=False)
    # What there is speaks: without any step nothing was measured, and that is said.
    assert (result.rows == 0) == (target == "out_of_memory_while_built")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--data", "/tmp"), ["--data is for the bundled workload"]),
        (("--", "--epochs", "3"), ["are for scripts"]),
    ],
)
def test_a_wrong_option_runs_nothing(diagnose, tmp_path, options, words):
    before = [] if "--" not in options else ["--out", str(tmp_path / "run")]
    result = diagnose(f"{BAD}:good", *before, *options) if before else diagnose(f"{BAD}:good", *options)
    assert result.code == 2
    assert [word for word in words if word not in result.sentence] == []
    assert list(tmp_path.iterdir()) == []


def test_markup_escapes_and_newlines_of_a_name_stay_text(diagnose, tmp_path):
    folder = tmp_path / "[bold]\x1b[31m<b>\nsecond"
    folder.mkdir()
    path = folder / "[red]x[-].py"
    path.write_text(BAD.read_text(encoding="utf-8"), encoding="utf-8")
    result = diagnose(f"{path}:good_dataset")
    assert result.code == 0
    page = (result.directory / "report.html").read_text(encoding="utf-8")
    for text in (result.out, result.err, page, (result.directory / "report.md").read_text(encoding="utf-8")):
        assert "\x1b" not in text
    assert "[red]x[-].py:good_dataset" in page
    assert "&lt;b&gt;" in page
    assert "[bold]<b>" not in page
    assert result.report["target"]["name"] == f"{path}:good_dataset"


@pytest.fixture
def command(tmp_path):
    """``command(*arguments)``: the command in processes of its own, in a session that the test can end."""
    started = []

    def start(*arguments):
        process = subprocess.Popen(
            [sys.executable, "-c", WITH_CTRL_C, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(BAD.parents[2]), "PYTHONUNBUFFERED": "1"},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]


ENDS = pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGTERM, signal.SIGHUP))]
)


@ENDS
def test_a_signal_during_a_trial(command, tmp_path, number):
    pids, out = tmp_path / "pids", tmp_path / "run"
    process = command("diagnose", f"{BAD}:never_ends_with_a_child", "--set", f"pids={pids}", "--out", str(out))
    end = time.monotonic() + 90
    while not pids.exists() and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(2.5)  # steps have been sent by then
    left = [*map(int, pids.read_text(encoding="utf-8").split()), *children_of(process.pid)]
    assert len(left) == 3
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    assert "Interrupted; what was measured before is in the report." in err
    assert still_running(left) == []
    (trial,) = read_trials(out)
    assert trial.status == "interrupted"
    assert sum(segment.steps for segment in trial.segments) > 10
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert report["target"]["status"] == "interrupted"


@ENDS
def test_a_signal_before_the_first_trial(command, tmp_path, number):
    out = tmp_path / "run"
    process = command("diagnose", f"{BAD}:good", "--out", str(out))
    assert "starting TensorFlow" in process.stderr.readline()
    time.sleep(0.3)
    helpers = children_of(process.pid)
    assert len(helpers) == 1
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    assert still_running(helpers) == []
    assert json.loads((out / "report.json").read_text(encoding="utf-8"))["verdict"]["bottleneck"] == "inconclusive"
    assert [trial.status for trial in read_trials(out)] == ["interrupted"]


@pytest.mark.slow
def test_a_helper_that_dies_is_replaced_and_nothing_is_lost(command, tmp_path):
    out = tmp_path / "run"
    process = command("diagnose", f"{BAD}:good", "--out", str(out), "--budget", "60")
    for line in process.stderr:
        if "] 001-input" in line:
            os.kill(children_of(process.pid)[0], signal.SIGKILL)
        if "] 003-" in line:  # one trial has ended since on another helper: enough seen
            process.send_signal(signal.SIGINT)
            break
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in err
    trials = read_trials(out)
    assert [trial.status for trial in trials[:3]] == ["ok", "killed", "ok"]
    assert "helper" in trials[1].cause
    assert (out / "report.json").exists()
