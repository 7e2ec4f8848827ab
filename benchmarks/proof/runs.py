"""A training run by the command itself, and the loss of each of its steps."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xttsbench.execution.journal import read_history
from xttsbench.records.training import HistoryLine, TrainSetup
from xttsbench.xtts.recipe import Recipe

RECIPE = "tiny"


class FailedError(Exception):
    """A run ended without what was to be judged."""


@dataclass(frozen=True)
class Run:
    """A run that ended."""

    directory: Path
    losses: dict[int, float]  # by the number of the step, from 1
    warned: tuple[str, ...]
    """What the trainer warned of, such as steps left out."""
    took_s: float

    def recipe(self) -> Recipe:
        """Return the recipe with everything that was changed of it."""
        setup = TrainSetup.model_validate_json((self.directory / "train.json").read_bytes())
        return Recipe.model_validate(setup.job.recipe)


def train(data: Path, directory: Path, *, steps: int, seed: int, settings: Sequence[str] = ()) -> Run:
    """Run ``xttsbench train tiny``, with an interval for each step so that the first one's loss is told.

    Args:
        data: directory of the clips.
        directory: of the run; it is made.
        steps: how many.
        seed: of weights, order and dropout.
        settings: ``KEY=VALUE`` for ``--set``.

    Raises:
        FailedError: the command failed.
    """
    options = ["--data", str(data), "--steps", str(steps), "--seed", str(seed), "--no-listening"]
    for setting in ("training.log_every=1", *settings):
        options += ["--set", setting]
    command = [sys.executable, "-P", "-m", "xttsbench", "train", RECIPE, *options, "--out", str(directory)]
    began_s = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FailedError(f"xttsbench train ended with exit code {done.returncode}: {done.stderr[-2000:]}")
    lines = read_history(directory)
    warned = tuple(line.warned for line in lines if line.warned is not None)
    return Run(directory, losses(lines), warned, time.monotonic() - began_s)


def losses(lines: Sequence[HistoryLine]) -> dict[int, float]:
    """Return the loss of each step, of those that were taken twice the later one; none of a step that was left out."""
    return {
        line.interval.first_step: line.interval.loss
        for line in lines
        if line.interval is not None and line.interval.loss is not None
    }
