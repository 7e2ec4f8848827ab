"""``xttsbench watch`` with real processes: run as python would, signalled, killed, and what is left then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.parent import python

SCRIPTS = Path(__file__).parents[1] / "targets" / "scripts"
PLAIN = SCRIPTS / "no_tensorflow.py"


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XTTSBENCH_RUNTIME", str(tmp_path / "runtime"))
    return tmp_path / "runtime" / "watched"


def command(script: Path, out: Path, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    given = ["-m", "xttsbench", "watch", str(script), "--out", str(out), *options]
    return [*given, "--", *arguments] if arguments else given


def started(script: Path, out: Path, *arguments: str) -> subprocess.Popen[str]:
    given = [sys.executable, *command(script, out, *arguments)]
    return subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)


def summary(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return found


def takes_a_signal(task: Path, number: signal.Signals) -> bool:
    held = next(line for line in (task / "status").read_text().splitlines() if line.startswith("SigBlk:"))
    return not int(held.split()[1], 16) >> (number - 1) & 1


def until(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.1)


def test_a_script_is_run_as_python_runs_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, *command(PLAIN, tmp_path / "run", "show", "--flag")],
        input="from stdin",
        capture_output=True,
        text=True,
        check=False,
    )
    told = json.loads(done.stdout)
    assert told["argv"] == [str(PLAIN), "show", "--flag"]
    assert (told["name"], told["file"], told["path"]) == ("__main__", str(PLAIN), str(SCRIPTS))
    assert (told["stdin"], told["own"], told["spawned"]) == ("from stdin", True, [3])
    assert told["group"] == os.getpgrp()  # whatever a terminal sends to us reaches it
    assert done.returncode == 4, done.stderr
    assert "No training step was seen" in done.stderr


@pytest.mark.parametrize(("what", "code", "ended"), [("raise", 1, "raised"), ("exit", 7, "exited")])
def test_a_script_s_own_failure_is_recorded_and_is_no_success(tmp_path: Path, what: str, code: int, ended: str) -> None:
    done = python(*command(PLAIN, tmp_path / "run", what))
    assert done.returncode == 5
    found = summary(tmp_path / "run")
    assert (found["ended"], found["exit_code"], found["over"]) == (ended, code, True)
    if what == "raise":
        assert done.stderr.count("Traceback") == 1
        assert "worker" not in done.stderr.split("ValueError")[0]  # no frame of ours
        assert "\x1b" not in done.stderr.split("Error: ")[-1].splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_who_ends_a_watched_run_by_a_signal_gets_that_signals_code(tmp_path: Path, number: signal.Signals) -> None:
    process = started(PLAIN, tmp_path / "run", "wait")
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 128 + number, said


def test_an_interruption_reaches_the_script_once_and_ends_with_130(tmp_path: Path) -> None:
    process = started(PLAIN, tmp_path / "run", "wait")
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert said.count("KeyboardInterrupt") == 1
    assert summary(tmp_path / "run")["ended"] == "interrupted"


def test_a_handler_of_the_script_s_own_gets_the_signal(tmp_path: Path) -> None:
    process = started(PLAIN, tmp_path / "run", "handle")
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    time.sleep(1.0)  # until it was told that the script has a handler
    process.send_signal(signal.SIGUSR1)
    printed, _ = process.communicate(timeout=30)
    assert printed == "handled\n"


def test_what_was_seen_until_a_kill_is_kept_and_shown_from_elsewhere(tmp_path: Path, runtime: Path) -> None:
    """One run whose script is killed, and beside it one that is killed with everything around it."""
    runs = [tmp_path / "script", tmp_path / "group"]
    processes = [started(SCRIPTS / "steps_until_killed.py", out) for out in runs]
    until(lambda: all((out / "summary.json").exists() and summary(out)["steps"] > 200 for out in runs), 90)
    pids = {json.loads(file.read_text())["run"]: int(file.stem) for file in runtime.iterdir()}
    assert set(pids) == {str(out) for out in runs}
    live = json.loads((runs[0] / "live.json").read_text())
    assert (live["pid"], live["over"]) == (pids[str(runs[0])], False)
    assert live["recent"]["steps"] > 0

    shown = python("-m", "xttsbench", "report", runs[1])
    assert "still running" in shown.stdout
    threads = [task for task in Path(f"/proc/{processes[0].pid}/task").iterdir() if int(task.name) != processes[0].pid]
    for number in (signal.SIGUSR1, signal.SIGTERM):  # by which the whole process would end
        assert not [task for task in threads if takes_a_signal(task, number)]
    processes[0].send_signal(signal.SIGUSR1)
    time.sleep(1.5)
    os.killpg(processes[1].pid, signal.SIGKILL)
    os.kill(pids[str(runs[0])], signal.SIGKILL)
    _, said = processes[0].communicate(timeout=60)
    processes[1].communicate(timeout=60)

    assert processes[0].returncode == 5, said
    assert "still running" in said  # what the signal showed
    assert "was killed by SIGKILL" in said
    found = summary(runs[0])
    assert (found["ended"], found["signal"], found["exit_code"]) == ("killed", "SIGKILL", None)
    assert found["bottleneck"] in ("compute", "dispatch", "input", "host", "inconclusive")
    assert found["steps"] >= live["steps"] - found["warm_up_steps"] - 1
    assert json.loads((runs[0] / "report.json").read_text())["kind"] == "watch"
    assert summary(runs[1])["steps"] > 200
    assert not summary(runs[1])["over"]
    until(lambda: not Path("/proc", str(pids[str(runs[1])])).exists(), 10)
    shown = python("-m", "xttsbench", "report", runs[1])
    assert "was killed" in shown.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--fail-on", "inputs>3"), "--fail-on 'inputs>3'"),
        (("--fail-on", "input>+3%"), "--baseline"),
        (("--baseline", "/nowhere.json"), "/nowhere.json cannot be read"),
    ],
)
def test_what_was_asked_for_wrongly_is_refused_before_anything_is_run(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    done = python(*command(PLAIN, tmp_path / "run", "show", options=options))
    assert done.returncode in (2, 5)
    assert said in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("keras", ["3", pytest.param("2", marks=pytest.mark.slow)])
def test_a_callback_and_a_loop_are_one_run_that_changes_no_loss(keras: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = python(SCRIPTS / "watched_inside.py", out, TF_USE_LEGACY_KERAS=str(int(keras == "2")))
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["equal"]
    bottleneck, steps, iterations = told["first"]
    assert (bottleneck, iterations) == ("input", ["fit"])
    assert 110 <= steps <= 120  # two epochs of 60, but for the warm-up
    assert told["again"] > 220
    assert told["all"] > told["again"] + 60
    assert told["length"] == 40
    assert "watched already" in told["refused"]
    assert summary(out)["ended"] == "returned"
    (events,) = (out / "scalars").iterdir()
    assert b"xttsbench/input_wait_fraction" in events.read_bytes()
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_gate_that_fails_ends_with_1_and_says_why(tmp_path: Path) -> None:
    gated = ("--fail-on", "input>20%", "--json")
    done = python(*command(SCRIPTS / "custom_loop.py", tmp_path / "run", "9", "150", options=gated))
    assert done.returncode == 1, done.stderr
    assert "--fail-on input>20%: share of the step that waits for input" in done.stderr
    found = json.loads(done.stdout)
    assert (found["bottleneck"], found["fail_on"][0]["outcome"]) == ("input", "failed")
    assert found["next_command"].startswith("xttsbench diagnose ")
    nulls = {name for name, value in found.items() if value is None}
    assert nulls <= set(found["unmeasured"])
