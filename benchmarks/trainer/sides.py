"""The two sides of the comparison, each in a fresh process: the trainer as the command starts it, and the bare loop."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from blocks import Timed

from xttsbench.execution.child import child_environment
from xttsbench.execution.training import run_training, training_environment
from xttsbench.probes.monitor import Monitor
from xttsbench.probes.nvml import open_gpus
from xttsbench.records.training import HistoryLine, TrainJob, Watched
from xttsbench.records.trial import TrialSpec

BARE = Path(__file__).resolve().with_name("bare.py")
READINGS_S = 1.0  # between two readings beside the trainer, as the command has it


class FailedError(Exception):
    """A process ended without what was to be measured."""


class MeasuredError(Exception):
    """All intervals were heard; whoever runs the process ends it then."""


class Intervals:
    """Hears the trainer, and times its intervals by the clock of this process, from the end of the first one on.

    Raises out of :meth:`told` when it has heard enough.

    Args:
        wanted: intervals after the first one.
        clock: seconds.
    """

    def __init__(self, wanted: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._watched: list[Watched] = []
        self._ends_s: list[float] = []
        self._wanted, self._clock = wanted, clock

    def phase(self, name: str) -> None:
        """Nothing to note."""

    def stopping(self) -> None:
        """Nothing to note."""

    def told(self, line: HistoryLine) -> None:
        """Note when an interval ended."""
        if line.watched is None:
            return
        self._ends_s.append(self._clock())
        self._watched.append(line.watched)
        if len(self._watched) > self._wanted:
            raise MeasuredError

    def timed(self) -> Timed:
        """Return the intervals after the first one, and where their time went by the trainer's own watch."""
        own = self._watched[1:]
        wall_s = sum(interval.wall_s for interval in own)
        return Timed(
            samples=tuple(interval.samples for interval in own),
            seconds=tuple(end - begin for begin, end in pairwise(self._ends_s)),
            shares={
                "waiting": sum(interval.wait_s for interval in own) / wall_s,
                "step": sum(interval.step_s for interval in own) / wall_s,
                "between": sum(interval.outside_s for interval in own) / wall_s,
            },
        )


def trainer(job: TrainJob, intervals: int) -> Timed:
    """Run the trainer as ``xttsbench train`` does, and end it after so many timed intervals.

    Raises:
        FailedError: it ended before.
    """
    heard, gpus = Intervals(intervals), open_gpus()
    has_gpu = gpus[0] is not None
    spec = TrialSpec(trial_id="trainer", kind="arm", target=job.recipe["name"], seed=job.seed)
    try:
        trained = run_training(
            job,
            spec,
            heard,
            variables=training_environment(job, has_gpu=has_gpu),
            monitor=lambda pid: Monitor(pid, gpus=gpus, interval_s=READINGS_S),
            print_to_stderr=True,
            has_gpu=has_gpu,
        )
    except MeasuredError:
        return heard.timed()
    finally:
        if gpus[0] is not None:
            gpus[0].close()
    raise FailedError(f"the trainer ended too early: {trained.record.status}, {trained.record.cause}")


def bare(job: TrainJob, intervals: int) -> Timed:
    """Run the bare loop for so many timed intervals.

    Raises:
        FailedError: it ended with an error.
    """
    gpu, _ = open_gpus()
    if gpu is not None:
        gpu.close()
    variables = training_environment(job, has_gpu=gpu is not None)
    done = subprocess.run(
        [sys.executable, str(BARE), str(intervals)],
        input=job.model_dump_json(),
        env=child_environment(variables, has_gpu=gpu is not None),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise FailedError(f"the bare loop ended with exit code {done.returncode}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout.strip().rpartition("\n")[2])
    return Timed(tuple(found["samples"]), tuple(found["seconds"]))
