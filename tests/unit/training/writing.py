"""A process that writes checkpoints until it is killed."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import numpy as np

from xttsbench.training.checkpoints import Checkpoints
from xttsbench.training.course import Position


def no_warning(sentence: str) -> NoReturn:
    raise AssertionError(sentence)


def writes_on(pipe: Connection, directory: Path) -> None:
    """Say at which step it begins, then write one after the other."""
    checkpoints = Checkpoints(directory, 2)
    found = checkpoints.newest(no_warning)
    assert found is not None
    run = found.run
    pipe.send(found.entry.step)
    checkpoints.clear()
    for step in range(found.entry.step + 1, 10**6):
        run = run.model_copy(update={"position": Position(step=step)})
        checkpoints.save(run, {"w": np.full(20_000, step)}, {"m": np.full(40_000, -step)})
