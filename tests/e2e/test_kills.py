"""Kills at random moments through sweeps and trainings: each, resumed to its end, gives the result of the undisturbed.

``KILLS`` says how many of each (60), ``KILLS_SEED`` which. What is killed is the command itself, its helper or the
process that trains, or a trial, with everything else left to what it does about that.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from xttsbench.execution.journal import read_history, read_trials
from xttsbench.execution.run_directory import PLAN
from xttsbench.workflows.runs import DONE, rebuild
from xttsbench.xtts.data.make import make_data

pytestmark = [pytest.mark.slow, pytest.mark.alone]

KILLS, SEED = int(os.environ.get("KILLS", "60")), int(os.environ.get("KILLS_SEED", "1"))
OF_ONE = 5  # kills of one run, after which it is left to end
PATIENCE_S = 600.0
ARMS = Path(__file__).parents[1] / "targets" / "arms.py"
SWEEP = (
    f"name: mine\ndescription: a test\ntarget: {ARMS}:waits\nsteps: 10\nwindow_s: 0.4\n"
    "grid: {ms: [60, 10]}\nsweep: {blocks: 2}\nbudget_s: 3600\n"
)
TRAIN = ("--no-listening", "--set", "batch_size=4", "--set", "training.log_every=2", "--set", "model.layers=1")
TRAIN += ("--set", "model.guided_layers=1", "--set", "training.evaluate_every=20", "--input-workers", "1")
TRAIN += ("--set", "loader=numpy_wav", "--steps", "60", "--checkpoint-every", "3", "--seed", "3")
Start = Callable[[], subprocess.Popen[str]]


def command(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    with (folder / "err.log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "xttsbench", *arguments],
            cwd=folder,
            env=os.environ | environment,
            stdout=subprocess.DEVNULL,
            stderr=log,
            text=True,
        )


def victims(process: subprocess.Popen[str]) -> dict[str, list[psutil.Process]]:
    """What runs of a command, by what it is."""
    found: dict[str, list[psutil.Process]] = {"parent": [psutil.Process(process.pid)]}
    for child in found["parent"][0].children():
        found.setdefault("child", []).append(child)
        found.setdefault("grandchild", []).extend(child.children())
    return {name: some for name, some in found.items() if some}


def kill_one(process: subprocess.Popen[str], chance: random.Random) -> str | None:
    """Kill something of a command that runs; what it was, or ``None`` where it was over."""
    try:
        found = victims(process)
        name = chance.choice(sorted(found))
        chance.choice(found[name]).kill()
    except psutil.Error:
        return None
    return name if process.poll() is None or name == "parent" else None


def nothing_is_left_of(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not [one for one in alive if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def with_kills(start: Start, most: int, longest_s: float, chance: random.Random, said: Callable[..., None]) -> int:
    """Run a command again and again, with something killed each time, and then to its end; how many kills there were.

    Where only a child was killed the command ends by itself, and is run again.
    """
    done = 0
    while done < most:
        process, began = start(), time.monotonic()
        until = began + chance.uniform(0.0, longest_s)
        while time.monotonic() < until and process.poll() is None:
            time.sleep(0.01)
        if process.poll() is not None:
            break
        whole = [one for some in victims(process).values() for one in some]
        name = kill_one(process, chance)
        process.wait(PATIENCE_S)
        nothing_is_left_of(whole)
        done += name is not None
        said(kill=name, after_s=round(until - began, 1), took_s=round(time.monotonic() - began, 1))
    process = start()
    assert process.wait(PATIENCE_S) == DONE
    return done


def log(test: str) -> Callable[..., None]:
    """Writes a line for each kill and each run that ended, where ``KILLS_LOG`` names a file."""

    def said(**values: Any) -> None:
        if name := os.environ.get("KILLS_LOG"):
            with Path(name).open("a") as file:
                file.write(json.dumps({"test": test, "at": time.strftime("%H:%M:%S"), **values}) + "\n")

    return said


def test_a_sweep_that_is_killed_again_and_again_names_the_same_winner(tmp_path: Path) -> None:
    chance, said, done, number = random.Random(SEED), log("sweep"), 0, 0
    while done < KILLS:
        folder, number = tmp_path / str(number), number + 1
        folder.mkdir()
        (folder / "mine.yaml").write_text(SWEEP)
        start = lambda folder=folder: command(folder, "sweep", "--grid", "mine.yaml", "--out", "out", "--resume")  # noqa: E731
        done += with_kills(start, min(OF_ONE, KILLS - done), 40.0, chance, said)
        out = folder / "out"
        trials = read_trials(out)
        ids = [json.loads(line)["spec"]["trial_id"] for line in (out / "trials.jsonl").read_bytes().splitlines()]
        assert [trial.status for trial in trials] == ["ok"] * len(trials)
        assert set(ids) == {trial.spec.trial_id for trial in trials}
        assert len(trials) >= 1 + 2 * 3  # parity; the baseline, its second run and the candidate in two processes
        assert (len(trials) - 1) % 3 == 0
        best = yaml.safe_load((out / "best.yaml").read_text())
        assert (best["config"], best["proven"]) == ({"ms": 10}, True)
        report, plan = (out / "report.json").read_bytes(), (out / PLAN).read_bytes()
        assert rebuild(out).exit_code == DONE
        assert ((out / "report.json").read_bytes(), (out / PLAN).read_bytes()) == (report, plan)
        assert yaml.safe_load((out / "best.yaml").read_text()) == best
        assert not [
            path.name for path in out.iterdir() if path.name.startswith(".draft-") or path.name == "rounds.jsonl"
        ]
        said(whole=number, kills=done)


def test_a_training_that_is_killed_again_and_again_ends_with_the_same_weights(tmp_path: Path) -> None:
    chance, said, done, number = random.Random(SEED), log("train"), 0, 0
    speech = tmp_path / "speech"
    make_data(speech, 40, 1, 0.6, 1.2)

    def starts(folder: Path) -> Start:
        folder.mkdir()
        arguments = ("train", "--data", str(speech), "--out", "run", *TRAIN)
        return lambda: command(folder, *arguments, XTTSBENCH_CACHE=str(tmp_path / "cache"))

    def last(folder: Path) -> dict[str, Any]:
        whole = json.loads((folder / "run" / "checkpoints" / "manifest.json").read_text())
        entry = (whole["checkpoints"] if isinstance(whole, dict) else whole)[-1]
        return {name: entry[name] for name in ("step", "weights_sha256", "optimizer_sha256", "samples_sha256")}

    undisturbed, began = tmp_path / "undisturbed", time.monotonic()
    assert starts(undisturbed)().wait(PATIENCE_S) == DONE
    took_s = time.monotonic() - began
    expected = last(undisturbed)
    said(undisturbed=expected, took_s=round(took_s, 1))
    while done < KILLS:
        folder, number = tmp_path / str(number), number + 1
        done += with_kills(starts(folder), min(OF_ONE, KILLS - done), took_s, chance, said)
        assert last(folder) == expected
        out = folder / "run"
        assert {step for line in read_history(out) if line.saved for step in [line.saved.step]} >= {60}
        blocks = [trial.spec.block for trial in read_trials(out)]
        assert blocks == sorted(set(blocks))
        assert rebuild(out).exit_code == DONE
        said(whole=number, kills=done)
