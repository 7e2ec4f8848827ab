"""What a training run tells while it goes on, a line each in ``history.jsonl``, and what its report says of it."""

from __future__ import annotations

from typing import Any

from xttsbench.records.base import SCHEMA_VERSION, Record
from xttsbench.records.training import CheckpointEntry, Ended, Evaluated, Interval, TrainJob


class Begun(Record):
    """A session of training whose data, model and shapes are ready."""

    step: int
    """Steps that ended in earlier sessions."""
    steps: int
    """When the run is over."""
    replicas: int
    accumulation: int
    clips_per_update: float
    """Mean clips of an update, over all replicas and all batches that are accumulated: the effective batch."""
    updates_per_epoch: int
    clips: int
    parameters: int
    shapes: int
    """Shapes of batches, each of which is compiled once."""
    setup_s: float
    """Seconds from the process's start until its data and model were built."""
    warm_up_s: float
    """Seconds from then until the first batch was asked for, compilation and reading of a checkpoint included."""
    learns: bool = True
    """False behind an emulated accelerator."""


class Watched(Record):
    """Seconds of an interval by what the loop did in them, on the watch's own clock."""

    wall_s: float
    """From the end of the interval before to the end of this one, evaluations left out."""
    wait_s: float
    """Waiting for a batch."""
    step_s: float
    """Inside the step, and until the device was done where the losses were fetched."""
    outside_s: float
    """Between the steps: what is reported, checkpoints."""
    valid_frames: int
    samples: int
    steps: int


class Spoken(Record):
    """What was heard of the model's own speech."""

    step: int
    metrics: dict[str, float | None]


class Fitted(Record):
    """The size of a batch that was found to fit into memory."""

    tokens_per_batch: int
    peak_bytes: int
    """The most that a step took."""
    limit_bytes: int


class HistoryLine(Record):
    """One line of ``history.jsonl``: a session's number, and what was told."""

    session: int
    begun: Begun | None = None
    interval: Interval | None = None
    watched: Watched | None = None
    """With ``interval``."""
    evaluated: Evaluated | None = None
    saved: CheckpointEntry | None = None
    took_s: float | None = None
    """With ``evaluated`` and ``spoken``."""
    warned: str | None = None
    ended: Ended | None = None
    spoken: Spoken | None = None
    fitted: Fitted | None = None


class WatchedInterval(Interval):
    """An interval, and where its time went."""

    session: int
    wait_fraction: float | None = None
    """Share of its time, evaluations left out, that was waiting for batches."""
    valid_frames_per_s: float | None = None


class TimedEvaluation(Evaluated):
    """An evaluation, and how long it took."""

    took_s: float | None = None


class TakenOver(Record):
    """What a run took from a ``best.yaml``."""

    path: str
    proven: bool
    why: str
    """The decision in the words of the sweep."""
    config: dict[str, Any]
    """What was taken."""
    differences: tuple[str, ...] = ()
    """What is other here than where it was found."""
    overridden: dict[str, str] = {}
    """Key -> what it became, by the command line or since training keeps the order."""


class TrainSetup(Record):
    """``train.json``: what the process that trains was told in the last session, and where that came from."""

    schema_version: int = SCHEMA_VERSION
    job: TrainJob
    taken_over: TakenOver | None = None
    said: tuple[str, ...] = ()
    """What was said of the choices before the start."""


class Training(Record):
    """What a report says of a training run beside its speed."""

    recipe: str
    sessions: tuple[Begun, ...] = ()
    intervals: tuple[WatchedInterval, ...] = ()
    evaluations: tuple[TimedEvaluation, ...] = ()
    checkpoints: tuple[CheckpointEntry, ...] = ()
    ended: Ended | None = None
    """``None`` where the last session did not end by itself."""
    spoken: Spoken | None = None
    fitted: Fitted | None = None
    taken_over: TakenOver | None = None
