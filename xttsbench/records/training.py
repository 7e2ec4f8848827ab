"""What crosses between a training run's two processes and its files: the job, the manifest, and what is told."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field

from xttsbench.records.base import SCHEMA_VERSION, Record

CHECKPOINTS: Final = "checkpoints"
"""Directory of the checkpoints in that of a run."""
MANIFEST: Final = "manifest.json"
"""In that directory; where it is, there is something to go on from."""
STRATEGIES: Final = ("one", "mirrored", "multi_worker")


class TrainJob(Record):
    """What the process that trains is told: everything, since it knows nothing else."""

    directory: str
    """The run's directory; nothing is written outside of it."""
    checkpoints: str | None = None
    """Where the checkpoints are, for a process that follows the one which writes them; by default in the directory."""
    recipe: dict[str, Any]
    """The recipe with everything that was changed of it, as ``Recipe.model_dump(mode="json")`` gives it."""
    config: dict[str, Any]
    """Keys of ``best.yaml``: loader, mode, precision, batch_size or tokens_per_batch, prefetch, threads and so on."""
    data: str
    features: str | None = None
    seed: int = Field(0, ge=0, lt=2**31)
    strategy: Literal["one", "mirrored", "multi_worker"] = "one"
    logical_cpus: int | None = Field(None, gt=0)
    """Logical CPU devices to divide the processor into, so that a strategy has replicas without a GPU."""
    device_memory_mb: int | None = Field(None, gt=0)
    """Limit on each GPU's memory; without it memory grows as needed."""
    intra_op_threads: int | None = Field(None, gt=0)
    """Threads that divide one operation among them; without it as many as processors may be used."""
    inter_op_threads: int | None = Field(None, gt=0)
    """Threads that run operations side by side; likewise."""
    input_workers: int = Field(0, ge=0)
    """Processes that make the batches in place of this one's threads; 0 makes none."""
    overlap: bool = True
    """Whether the next batch is made while a step runs."""
    warm_up: bool = True
    """Whether all shapes are compiled before the first step."""
    fit_memory: bool = False
    """Whether the largest ``tokens_per_batch`` that fits into memory is looked for, and taken."""
    listen: bool = True
    """Whether the model is let speak at the end, and what comes out is measured."""
    accelerator_ms: tuple[float, ...] = ()
    """Waits of an emulated accelerator in milliseconds that take the place of the step's own work; empty for none."""


class CheckpointEntry(Record):
    """One whole checkpoint in ``checkpoints/manifest.json``."""

    step: int
    epoch: int
    batch: int
    files: tuple[str, ...]
    """Relative to ``checkpoints/``."""
    weights_sha256: str
    """Of names, types, shapes and bytes of all weights, in the order of their names."""
    optimizer_sha256: str
    """The same of the optimizer's variables, averages, loss scale and counters."""
    samples_sha256: str
    """Running hash of the ids of the samples consumed."""
    state_sha256: str
    """Of the file ``state.json``, which holds all of the run's state but its arrays."""
    best: bool = False
    """Whether its held-out loss was the lowest so far when it was written."""


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
    """Mean, before clipping."""
    skipped: int
    """Steps left out for a gradient that was not finite."""
    learning_rate: float
    """Of the last step."""
    loss_scale: float | None = None
    epoch: int
    samples: int
    valid_frames: int
    frames: int
    """Padding included."""
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
    """Whether it is the lowest loss so far."""
    metrics: dict[str, float | None] = {}
    """Phone error rates, lengths and so on, where they were asked for."""


class Ended(Record):
    """How a session of training ended."""

    reason: Literal["steps", "early_stopping", "terminated"]
    """All steps, no improvement, or a signal at whose step boundary it ended."""
    step: int
    samples_sha256: str
    weights_sha256: str
    optimizer_sha256: str
