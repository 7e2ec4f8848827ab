"""Signals to the command, in each phase of a run whose trials only pretend: the report, the exit code, the journal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from xttsbench.execution.ending import asked, finishes, heeded, interruptible
from xttsbench.execution.journal import read_trials
from xttsbench.execution.run_directory import lock_run

ROOT = Path(__file__).parents[3]
# A run whose helper, trial or report says where it is and then stays there: long enough to be sent a signal.
PROGRAM = """
import os, sys, time
from xttsbench.execution import trial
from xttsbench.execution.child import Collected
from xttsbench.records.readings import Readings
from xttsbench.reporting import page
from xttsbench.workflows import runs
from xttsbench.workflows.measure import session

def at(phase):
    print(phase, flush=True)
    until = time.monotonic() + (60 if phase in os.environ["STAYS"].split() else 0)
    while time.monotonic() < until:
        time.sleep(0.01)

class Helper:
    def __init__(self, **_): pass
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def wait_ready(self): at("import")
    def exit_code(self): return None

class Child:
    def __init__(self, spec, helper, **_):
        self.collected = Collected(spec)
        at("fork")
    def follow(self, limits):
        self.collected.take({"phase": "as_is"})
        at("trial")
        self.collected.take({"status": "raised", "cause": "pretends", "done": True})
    def end(self):
        return self.collected.record(started_utc="2026-01-01T00:00:00+00:00", duration_s=1.0, readings=Readings())

def write_run(directory, report, trials, real=page.atomic_write):
    real(directory / "report.json", page.to_json(report).encode())
    try:
        at("report")
    except BaseException:
        print("ended at once", flush=True)
        raise
    real(directory / "report.md", b"whole")
    return ()

page.write_run, trial.Child, session.Helper = write_run, Child, Helper
runs.require_tensorflow = lambda: None
runs.read_machine = lambda _: {"fingerprint": "f"}
session.open_gpus = lambda: (None, "none here")
from xttsbench.cli import main
main()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """``start("fork")``: a diagnosis that has come to that phase and stays there."""
    processes = []
    (tmp_path / "mine.py").write_text("def make(): ...\n")

    def started(stays: str, *before: str, stop_at: str | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*before, sys.executable, "-c", PROGRAM, "diagnose", "mine.py:make", "--no-verify", "--out", "out"],
            cwd=tmp_path,
            env=os.environ | {"STAYS": stays, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        wait_for(process, stop_at or stays.split(maxsplit=1)[0])
        return process

    yield started
    for process in processes:
        process.kill()
        process.communicate()


def wait_for(process: subprocess.Popen[str], said: str) -> None:
    for line in process.stdout:
        if line.strip() == said:
            return
    raise AssertionError(process.communicate()[1])


@pytest.mark.parametrize(
    ("number", "phase"),
    [
        (signal.SIGTERM, "import"),
        (signal.SIGHUP, "fork"),
        (signal.SIGTERM, "trial"),
        (signal.SIGHUP, "trial"),
    ],
)
def test_a_signal_ends_a_run_with_its_report_and_its_own_code(start, tmp_path: Path, number, phase: str) -> None:
    process = start(phase)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number, err
    assert "Interrupted; what was measured before is in the report." in err
    assert "Traceback" not in err
    assert [trial.status for trial in read_trials(tmp_path / "out")] == ["interrupted"]
    assert (tmp_path / "out" / "report.json").exists()
    assert (tmp_path / "out" / "report.md").exists()


def test_one_in_the_report_waits_for_it_and_a_second_ends_it_at_once(start, tmp_path: Path) -> None:
    process = start("report")
    process.send_signal(signal.SIGTERM)
    time.sleep(1.2)  # later than what counts as the same one
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, "ended at once" in out) == (143, True), err
    assert err.rstrip().endswith("Interrupted. What was measured is kept; its report: xttsbench report out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "environment.json",
        "plan.json",
        "report.json",
        "trials.jsonl",
    ]


def test_a_signal_that_comes_twice_within_a_moment_counts_once(start, tmp_path: Path) -> None:
    process = start("trial report", stop_at="trial")
    process.send_signal(signal.SIGTERM)
    wait_for(process, "report")
    process.send_signal(signal.SIGHUP)  # as ``timeout`` and a terminal that closes send them
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)  # a key is always meant
    assert "ended at once" in process.communicate(timeout=30)[0]
    assert process.returncode == 143


def test_under_nohup_a_hang_up_is_none(start, tmp_path: Path) -> None:
    process = start("trial", "nohup")
    process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143


def test_what_waited_is_raised_where_it_can_be_recorded() -> None:
    with heeded():
        with finishes():
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(KeyboardInterrupt), interruptible():
                pass
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
        assert asked == [signal.SIGTERM, signal.SIGINT]
    assert asked == []


def test_outside_of_a_run_it_is_raised_at_once_and_handlers_are_left_as_they_were() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with heeded(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGHUP)
    assert {number: signal.getsignal(number) for number in before} == before


def test_a_process_that_is_forked_does_not_keep_a_run_locked(tmp_path: Path) -> None:
    code = """
import os, sys, time
from pathlib import Path
from xttsbench.execution.run_directory import lock_run
with lock_run(Path(sys.argv[1])):
    if not os.fork():
        os.close(1)
        time.sleep(30)
        os._exit(0)
    print("held", flush=True)
    os.kill(os.getpid(), 9)
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        holder.communicate(timeout=30)
        with lock_run(tmp_path):
            pass
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
