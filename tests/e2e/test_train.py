"""``xttsbench train`` in real processes: reported, gone on with, compared, ended by signals, and broken by its data."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from xttsbench.execution.journal import read_history, read_trials
from xttsbench.xtts.data.make import make_data

SMALL = ("--no-listening", "--set", "batch_size=4", "--set", "training.log_every=2", "--set", "model.layers=1")
SMALL += ("--set", "model.guided_layers=1", "--set", "training.evaluate_every=4")
ENDLESS = ("--steps", "100000", "--checkpoint-every", "1000")
SHORTEST_S, LONGEST_S = 0.6, 1.2
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data") / "speech"
    make_data(directory, 40, 1, SHORTEST_S, LONGEST_S)
    return directory


@pytest.fixture
def train(monkeypatch, called, speech) -> Callable[..., Any]:
    """``train(*arguments)``: run in this process: exit code, standard output and error."""
    monkeypatch.setenv("XTTSBENCH_CACHE", str(speech.parent / "cache"))

    def command(*arguments: Any, name: str = "train", options: tuple[str, ...] = SMALL) -> tuple[Any, str, str]:
        code, out, err = called(name, *arguments, *options)
        assert "Traceback" not in err
        return code, out, err

    return command


@pytest.fixture
def started(tmp_path: Path, speech: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """``started(data, *arguments)``: the command in a process of its own, after the first interval of its session."""
    processes = []

    def start(data: Path, *arguments: str) -> subprocess.Popen[str]:
        code = "from xttsbench.cli import main; main()"
        before = len(read_history(tmp_path / "run"))
        process = subprocess.Popen(
            [sys.executable, "-c", code, "train", "--data", str(data), "--out", "run", *ENDLESS, *SMALL, *arguments],
            cwd=tmp_path,
            env=os.environ | {"XTTSBENCH_CACHE": str(speech.parent / "cache")},
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        until = time.monotonic() + PATIENCE_S
        while not any(line.interval for line in read_history(tmp_path / "run")[before:]):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < until, "no interval ended"
            time.sleep(0.1)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def child_of(process: subprocess.Popen[str]) -> psutil.Process:
    children = psutil.Process(process.pid).children()
    return next(child for child in children if "xttsbench.worker.training" in child.cmdline())


def test_a_run_is_reported_gone_on_with_and_compared(train, tmp_path: Path, speech: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # another one in a second try
    code, out, err = train("--data", speech, "--steps", 6, "--out", "run", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert report == json.loads((tmp_path / "run" / "report.json").read_text())
    assert (report["kind"], report["arms"][0]["id"], report["arms"][0]["status"]) == ("train", "train", "ok")
    assert [one["first_step"] for one in report["training"]["intervals"]] == [1, 3, 5]
    assert all(one["loss"] > 0 and one["wait_fraction"] >= 0 for one in report["training"]["intervals"])
    assert [one["step"] for one in report["training"]["evaluations"]] == [4, 6]
    assert report["training"]["ended"]["reason"] == "steps"
    assert report["overhead"]["overhead_s_per_step"] > 0
    assert "effective batch: 4 clips = 4 x 1 accumulated x 1 replica" in err
    assert "step 6 of 6: loss" in err
    for name in ("report.md", "report.html", "plots/training.png", "train.json", "plan.json", "environment.json"):
        assert (tmp_path / "run" / name).stat().st_size > 0
    assert "Losses over the steps" in (tmp_path / "run" / "report.md").read_text()

    shutil.copytree("run", "before")
    code, out, err = train("--data", speech, "--steps", 8, "--out", "run", "--json")
    assert (code, "going on after step 6 of 8" in err) == (0, True)
    longer = json.loads(out)["training"]
    assert longer["intervals"][:3] == report["training"]["intervals"]
    assert [one["first_step"] for one in longer["intervals"]] == [1, 3, 5, 7]
    assert [trial.spec.block for trial in read_trials(tmp_path / "run")] == [0, 1]
    manifest = json.loads((tmp_path / "run" / "checkpoints" / "manifest.json").read_text())
    assert manifest["checkpoints"][-1]["step"] == 8

    written = (tmp_path / "run" / "report.json").read_bytes()
    assert train("run", name="report", options=())[0] == 0
    assert (tmp_path / "run" / "report.json").read_bytes() == written
    code, out, err = train("before", "run", "--max-input-wait", "99%", name="compare", options=())
    if "processes of B: 1" in err:  # one of the two was disturbed and is left out: undecided, as it should be
        assert code == 3, err
    else:
        assert (code, "pass" in out) == (0, True), err

    for arguments, ends_with, said in (
        (("--data", speech, "--out", "run", "--seed", 3), 2, "seed was 0 and is 3"),
        (("--data", speech, "--out", "run", "--no-resume"), 2, "a run needs a directory of its own"),
        (("tinny", "--data", speech), 5, "the nearest names: tiny"),
        (("--data", tmp_path / "nowhere"), 5, "nowhere"),
        (("--data", speech, "--best"), 5, "run 'xttsbench sweep"),
    ):
        code, _, err = train(*arguments)
        assert (code, said in err) == (ends_with, True), err
    assert (tmp_path / "run" / "report.json").read_bytes() == written


def test_signals_and_kills_leave_a_run_that_goes_on(started, tmp_path: Path, speech: Path) -> None:
    process = started(speech)
    for _ in range(2):  # a terminal that closes sends it itself, and so does its shell
        process.send_signal(signal.SIGHUP)
        time.sleep(0.05)
    err = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 129, err
    assert "Ended by a signal after step" in err
    lines = read_history(tmp_path / "run")
    (ended,) = [line.ended for line in lines if line.ended]
    assert (ended.reason, lines[-2].saved and lines[-2].saved.step) == ("terminated", ended.step)

    process = started(speech)
    child_of(process).kill()
    err = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 1, err
    assert "Memory ran out with a batch of 4 clips" in err
    assert f"going on after step {ended.step} of" in err

    process = started(speech)
    child = child_of(process)
    process.kill()
    process.wait()
    assert _gone(child)
    statuses = [trial.status for trial in read_trials(tmp_path / "run")]
    assert statuses == ["ok", "out_of_memory"]


def _gone(process: psutil.Process) -> bool:
    """Whether a process that nobody waits for any more ended within two seconds."""
    for _ in range(20):
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.1)
    return False


def test_data_that_vanish_while_it_trains_are_named(started, tmp_path: Path, speech: Path) -> None:
    moving = tmp_path / "moving"
    shutil.copytree(speech, moving)
    process = started(moving, "--no-native-loader", "--no-overlap")
    shutil.rmtree(moving / "wavs")
    err = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 5, err
    assert str(moving / "wavs") in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_two_processes_on_loopback_train_as_one(
    train, tmp_path: Path, speech: Path, loopback_tasks: list[str], monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)  # another one in a second try
    out = tmp_path / "together"
    arguments = [sys.executable, "-m", "xttsbench", "train", "--strategy", "multi_worker", "--data", str(speech)]
    processes = [
        subprocess.Popen(
            [*arguments, "--steps", "6", "--out", str(out), *SMALL],
            env=os.environ | {"TF_CONFIG": task},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for task in loopback_tasks
    ]
    try:
        said = [process.communicate(timeout=2 * PATIENCE_S)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], said
    code, _, err = train("--data", speech, "--steps", "6", "--accumulation", "2", "--out", "alone")
    assert code == 0, err
    leader, follower, alone = (
        next(line.ended for line in reversed(read_history(Path(run))) if line.ended is not None)
        for run in (out, f"{out}.worker-1", "alone")
    )
    assert leader == follower
    assert leader.samples_sha256 == alone.samples_sha256
    assert (out / "checkpoints" / "manifest.json").exists()
    assert not Path(f"{out}.worker-1/checkpoints").exists()
