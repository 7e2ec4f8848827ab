"""Exact resume: a run that is killed again and again, at any moment, ends with the bits of one that was not.

Real processes, real clips, the real model in graph mode with dropout, averages, accumulation and a schedule.
"""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tf.forks import Forks
from xttsbench.training.checkpoints import Checkpoints
from xttsbench.training.step import Workers
from xttsbench.xtts.data.make import make_data

SCRIPT = Path(__file__).with_name("resumed_run.py")
STEPS = 14


@pytest.fixture(scope="module")
def session(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Trains in a process of its own until the end, or until it is killed after so many steps; returns its lines."""
    data = tmp_path_factory.mktemp("data") / "set"
    make_data(data, 14, seed=2, min_s=0.3, max_s=0.6)
    rng = random.Random(9)

    def run(directory: Path, replicas: int, *, kill_after: int | None = None) -> list[str]:
        lines = []
        with (
            tempfile.TemporaryFile("w+") as errors,
            forks.start(SCRIPT, str(data), str(directory), str(replicas), "graph", errors=errors.fileno()) as server,
        ):
            for line in server.stdout:
                lines.append(line.strip())
                if len(lines) == kill_after:
                    time.sleep(rng.uniform(0, 0.01))  # within a step, or within the writing of a checkpoint
                    server.kill()
            errors.seek(0)
            assert server.wait() == (-signal.SIGKILL if kill_after else 0), errors.read()
        return lines

    return run


@pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_killed_run_ends_with_the_bits_of_one_that_was_not(session: Any, tmp_path: Path, replicas: int) -> None:
    *losses, ended = session(tmp_path / "whole", replicas)
    assert len(losses) == STEPS
    for kill_after in (4, 3):
        killed = session(tmp_path / "killed", replicas, kill_after=kill_after)
        assert kill_after <= len(killed) < STEPS
        assert killed == losses[losses.index(killed[0]) :][: len(killed)]
    *rest, ended_again = session(tmp_path / "killed", replicas)
    assert rest == losses[-len(rest) :]
    assert len(rest) < STEPS
    assert json.loads(ended_again) == json.loads(ended)
    whole, again = (Checkpoints(tmp_path / name / "checkpoints", 2).entries[-1] for name in ("whole", "killed"))
    assert whole == again.model_copy(update={"state_sha256": whole.state_sha256})
    assert (whole.step, whole.samples_sha256) == (STEPS, json.loads(ended)["samples_sha256"])


WORKER = """
import json
import math
import os
from xttsbench.training.step import Replicas, make_strategy
from xttsbench.training.step import Workers

strategy = make_strategy("multi_worker")
workers = Workers(strategy, Replicas(strategy))
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
found = [workers.gather(value) for value in (index + 0.1, math.inf if index else -1, index == 1)]
print("FOUND", json.dumps([workers.is_chief, workers.are_several, found]), flush=True)
workers.gather(0)  # until the other has printed as well; who comes out first may end the other's connection
"""


def test_two_processes_see_the_values_of_both(forks: Forks, loopback_tasks: list[str], tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    environments = [os.environ | {"TF_CONFIG": task} for task in loopback_tasks]
    processes = [forks.start(script, environment=own) for own in environments]
    told = []
    for process in processes:
        with process:
            output = process.finish()
        (line,) = [line for line in output.splitlines() if line.startswith("FOUND")] or [output]
        told.append(json.loads(line.removeprefix("FOUND")))
    both: list[Any] = [[0.1, 1.1], [-1, float("inf")], [0, 1]]
    assert told == [[True, True, both], [False, True, both]]


def test_a_single_process_asks_nobody() -> None:
    replicas: Any = SimpleNamespace(count=2, local=("/CPU:0", "/CPU:1"), is_chief=True)
    workers = Workers(None, replicas)
    assert not workers.are_several
    assert workers.gather(3) == [3]
