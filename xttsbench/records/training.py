"""Messages between the processes of training, and its files: job, manifest, history."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field

from xttsbench.records.base import SCHEMA_VERSION, Record

CHECKPOINTS: Final = "checkpoints"
"""Directory of the checkpoints in that of a run."""
MANIFEST: Final = "manifest.json"
"""In that directory; where it is, there is something to resume from."""


class TrainJob(Record):
    """The job of the process that trains: everything that it knows."""

    directory: str  # The run's directory; nothing is written outside of it
    checkpoints: str | None = None
    """Directory of the checkpoints, for a process that follows the one which writes them; by default within the run's.
    """
    recipe: dict[str, Any]
    """The recipe with everything that was changed of it, as ``Recipe.model_dump(mode="json")`` gives it."""
    config: dict[str, Any]
    """Keys of ``best.yaml``: loader, mode, precision, batch_size or tokens_per_batch, prefetch, threads and so on."""
    data: str
    seed: int = Field(0, ge=0, lt=2**31)
    strategy: Literal["one", "mirrored", "multi_worker"] = "one"
    logical_cpus: int | None = Field(None, gt=0)
    """Logical CPU devices to divide the processor into, so that a strategy has replicas without a GPU."""
    device_memory_mb: int | None = Field(None, gt=0)  # Limit on each GPU's memory; without it memory grows as needed
    input_workers: int = Field(0, ge=0)  # Processes that run the loader's Python; 0 makes none
    overlap: bool = True  # Whether the next batch is made while a step runs
    listen: bool = True  # Whether the model is let speak at the end, and what comes out is measured
    tensorboard: bool = True  # Whether scalars are written; TensorFlow puts the machine's name into their file names
    accelerator_ms: tuple[float, ...] = ()
    """Waits of an emulated accelerator in milliseconds that take the place of the step's own work; empty for none."""


class CheckpointEntry(Record):
    """One whole checkpoint in ``checkpoints/manifest.json``."""

    step: int
    epoch: int
    batch: int
    files: tuple[str, ...]
    """Paths of its files, relative to ``checkpoints/``."""
    weights_sha256: str
    optimizer_sha256: str
    samples_sha256: str
    """Running hash of the ids of the samples consumed."""
    state_sha256: str
    best: bool = False
    """Whether the held-out loss was the lowest so far."""


class Manifest(Record):
    """``checkpoints/manifest.json``: the whole checkpoints, newest last."""

    schema_version: int = SCHEMA_VERSION
    checkpoints: tuple[CheckpointEntry, ...] = ()


class Interval(Record):
    """Consecutive steps at whose end the losses were fetched."""

    first_step: int
    """Number of its first step, from 1."""
    steps: int
    loss: float | None
    """Mean over the steps that were applied; ``None`` where none was."""
    mel: float | None
    stop: float | None
    guided: float | None
    gradient_norm: float | None
    """Mean norm of the gradient, before clipping."""
    skipped: int
    """Steps left out, for a gradient or a loss that was not finite."""
    learning_rate: float
    loss_scale: float | None = None
    epoch: int
    samples: int
    valid_frames: int
    frames: int
    """Frames of the batches, padding included."""
    wall_s: float


class Evaluated(Record):
    """One evaluation on held-out clips."""

    step: int
    loss: float
    mel: float
    stop: float
    guided: float
    clips: int
    best: bool
    """Whether the loss is the lowest so far."""


class Ended(Record):
    """End of a session of training."""

    reason: Literal["steps", "terminated"]
    step: int
    samples_sha256: str
    weights_sha256: str
    optimizer_sha256: str


class Begun(Record):
    """A session of training whose data, model and shapes are ready."""

    step: int
    """Steps of earlier sessions."""
    steps: int
    """Steps after which the run is over."""
    replicas: int
    accumulation: int
    clips_per_update: float
    """Mean clips of an update, over all replicas and accumulated batches."""
    updates_per_epoch: int
    clips: int
    parameters: int
    shapes: int
    setup_s: float
    warm_up_s: float
    learns: bool = True
    """False behind an emulated accelerator."""


class Watched(Record):
    """Seconds of an interval by what the loop did in them, on the watch's own clock."""

    wall_s: float  # From the end of the interval before to the end of this one, evaluations left out
    wait_s: float  # Waiting for a batch
    step_s: float  # Inside the step, and until the device was done where the losses were fetched
    outside_s: float  # Between the steps: what is reported, checkpoints
    valid_frames: int
    samples: int
    steps: int


class Spoken(Record):
    """Metrics of the model's own speech at a step."""

    step: int
    metrics: dict[str, float | None]


class HistoryLine(Record):
    """One line of ``history.jsonl``: a session's number, and what was reported."""

    session: int
    begun: Begun | None = None
    interval: Interval | None = None
    watched: Watched | None = None  # With ``interval``
    evaluated: Evaluated | None = None
    saved: CheckpointEntry | None = None
    took_s: float | None = None  # With ``evaluated`` and ``spoken``
    warned: str | None = None
    ended: Ended | None = None
    spoken: Spoken | None = None


class WatchedInterval(Interval):
    """An interval, and where its time went."""

    session: int
    wait_fraction: float | None = None
    """Share of the interval, evaluations left out, that was waiting for batches."""
    valid_frames_per_s: float | None = None


class TimedEvaluation(Evaluated):
    """An evaluation, and how long it took."""

    took_s: float | None = None


class TakenOver(Record):
    """Configuration that a run took from a ``best.yaml``."""

    path: str
    proven: bool
    why: str
    config: dict[str, Any]
    differences: tuple[str, ...] = ()
    """Differences between what is here and where the sweep was made, a sentence each."""
    overridden: dict[str, str] = {}
    """Argument -> its value in place of the taken one."""


class TrainSetup(Record):
    """``train.json``: the job of the process that trained in the last session, and where it came from."""

    schema_version: int = SCHEMA_VERSION
    job: TrainJob
    taken_over: TakenOver | None = None
    said: tuple[str, ...] = ()  # What was said of the choices before the start


class Training(Record):
    """Report of a training run beside its speed."""

    recipe: str
    sessions: tuple[Begun, ...] = ()
    intervals: tuple[WatchedInterval, ...] = ()
    evaluations: tuple[TimedEvaluation, ...] = ()
    checkpoints: tuple[CheckpointEntry, ...] = ()
    """Checkpoints that were written, also replaced ones; of steps that were taken again, those of the last time."""
    ended: Ended | None = None
    """End of the last session; ``None`` where it did not end by itself."""
    spoken: Spoken | None = None
    taken_over: TakenOver | None = None
