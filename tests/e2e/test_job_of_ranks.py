"""Ranks of a job, real processes under MultiWorkerMirroredStrategy, watched and reported together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

TARGETS = Path(__file__).parents[1] / "targets"


def started(script: str, case: str, steps: int, tasks: list[str], folder: Path) -> list[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "xttsbench", "watch", "--out", str(folder / "job"), str(TARGETS / script)]
    own = {"RANKS_FOLDER": str(folder), "XTTSBENCH_RUNTIME": str(folder / "runtime")}
    return [
        subprocess.Popen(
            [*command, "--", case, str(steps)],
            env=os.environ | own | {"TF_CONFIG": task},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for task in tasks
    ]


def reported(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "xttsbench", "report", "--json", str(folder / "job")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    return found


def text_at(finding: dict[str, Any]) -> str:
    return Path(finding["line"]["file"]).read_text().splitlines()[finding["line"]["line"] - 1]


def end(processes: list[subprocess.Popen[str]]) -> None:
    for one in processes:
        if one.poll() is None:
            os.killpg(one.pid, signal.SIGKILL)
        one.communicate()


def test_the_rank_that_hangs_is_named_while_it_hangs(loopback_tasks: list[str], tmp_path: Path) -> None:
    processes = started("ranks.py", "waits-elsewhere", 40, loopback_tasks, tmp_path)
    try:
        until = time.monotonic() + 120
        while not (report := reported(tmp_path)).get("findings"):
            assert time.monotonic() < until, report
            assert all(one.poll() is None for one in processes)
            time.sleep(1)
    finally:
        end(processes)
    first = report["findings"][0]
    assert (first["fault"], first["rank"]) == ("hang", 1)
    assert "os.read(" in text_at(first)
    assert report["seen_once"] is not False
    assert (tmp_path / "job" / "ranks.json").is_file()


@pytest.mark.slow
@pytest.mark.measured
@pytest.mark.parametrize(
    ("script", "case", "text"),
    [("ranks.py", "slow-read", "time.sleep(0.01)"), ("ranks_fit.py", "fit-slow-callback", "time.sleep(0.03)")],
)
def test_the_late_rank_is_named_with_its_line(
    loopback_tasks: list[str], tmp_path: Path, script: str, case: str, text: str
) -> None:
    processes = started(script, case, 60, loopback_tasks, tmp_path)
    for one in processes:
        one.communicate(timeout=240)
    assert [one.returncode for one in processes] == [0, 0]
    report = reported(tmp_path)
    first = report["findings"][0]
    assert (first["fault"], first["rank"]) == ("straggler", 1)
    assert text in text_at(first)
    assert report["rows"][0]["samples"] == report["rows"][1]["samples"]


@pytest.mark.slow
def test_fit_of_keras_3_on_several_workers_is_explained_before_it_fails(
    loopback_tasks: list[str], tmp_path: Path
) -> None:
    script = tmp_path / "fit.py"
    script.write_text(
        "import tensorflow as tf\n"
        "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
        "import keras\n"
        "with strategy.scope():\n"
        "    model = keras.Sequential([keras.layers.Dense(1)])\n"
        "    model.compile('sgd', 'mse')\n"
        "model.fit(tf.data.Dataset.from_tensors((tf.zeros([4, 2]), tf.zeros([4, 1]))), verbose=0)\n"
    )
    processes = started(str(script), "", 0, loopback_tasks, tmp_path)
    said = [one.communicate(timeout=240)[0] for one in processes]
    assert all("keras-team/keras#20585" in one and "TF_USE_LEGACY_KERAS=1" in one for one in said)


def test_diagnose_leaves_a_rank_alone(loopback_tasks: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "xttsbench", "diagnose", str(TARGETS / "ranks.py"), "--", "healthy", "20"],
        env=os.environ | {"TF_CONFIG": loopback_tasks[0]},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert "rank 0 of 2" in done.stderr
    assert "xttsbench watch" in done.stderr
