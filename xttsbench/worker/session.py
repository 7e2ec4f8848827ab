"""A session of training: the job's devices, memory and batches are set up, and the loop is run with its watch."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import tensorflow as tf

from xttsbench.errors import InvalidInputError, XttsbenchError
from xttsbench.fixes.processes.rewrite import in_processes
from xttsbench.probes.clock import EmulatedAccelerator
from xttsbench.probes.nvml import look_at_gpus
from xttsbench.probes.procfs import CpuAllowance, cpu_allowance
from xttsbench.records.training import CHECKPOINTS, Begun, Interval, Spoken, TrainJob
from xttsbench.records.trial import MeasurementOverhead
from xttsbench.training.checkpoints import Checkpoints
from xttsbench.training.course import Origin, Position, clip_frames, planned_epoch, with_parts
from xttsbench.training.evaluation import Hearing, HeldOutLoss, TensorBoard
from xttsbench.training.loop import HeldOut, Run, train
from xttsbench.training.state import TrainingState
from xttsbench.training.step import Replicas, StepResult, TrainingStep, Workers, make_strategy
from xttsbench.training.stream import Fetched, Loading, ahead, batch_stream, shapes
from xttsbench.worker.bench import overhead_of
from xttsbench.worker.channel import Channel, SilentChannel, shared_rows
from xttsbench.worker.failure import failure
from xttsbench.worker.others import agree, explained_by_others
from xttsbench.worker.training import Watch, tell
from xttsbench.worker.trial import devices_seen
from xttsbench.xtts.data.batches import LossCounts
from xttsbench.xtts.data.feature_cache import FeatureCache, open_cache
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.loaders import CACHED
from xttsbench.xtts.recipe import Recipe

_MIB: Final = 2**20
_AHEAD_OF_PROCESSES: Final = 2
"""Batches that wait beside what input processes make: one for the step to take, and one while it is taken."""
_AMPERE: Final = (8, 0)  # Compute capability from which on a GPU has TF32 and bfloat16
_NEED_AMPERE: Final = ("tf32", "mixed_bfloat16")


def configure(job: TrainJob) -> list[str]:
    """Set up what TensorFlow reads when its runtime starts; returns a sentence for each wish that had no effect.

    Raises:
        InvalidInputError: the job asks for what this machine cannot be.
        RuntimeError: the runtime has started already.
    """
    _configure_threads(cpu_allowance())
    return list(_configure_devices(job))


def _configure_threads(allowance: CpuAllowance) -> None:
    """Set no more threads than there are processors to run them.

    TensorFlow counts the machine's processors, and the kernel throttles what a control group may not use.
    """
    allowed = max(1, math.ceil(allowance.allowed_cpus))
    if allowed < allowance.machine_cpus:
        tf.config.threading.set_intra_op_parallelism_threads(allowed)
        tf.config.threading.set_inter_op_parallelism_threads(allowed)


def _configure_devices(job: TrainJob) -> Iterator[str]:
    gpus = tf.config.list_physical_devices("GPU")
    if job.logical_cpus is not None:
        yield from _divide_processor(job, job.logical_cpus, gpus)
        gpus = []
    if job.device_memory_mb is not None:
        yield from _limit_memory(job.device_memory_mb, gpus)
    else:
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
    # What is possible and hardly wanted.
    precision = job.config.get("precision", "float32")
    old = [gpu.name for gpu in gpus if _capability(gpu) < _AMPERE] if precision in _NEED_AMPERE else []
    if old:
        yield f"precision {precision} needs compute capability 8.0, which {', '.join(old)} lacks"
    if precision == "mixed_float16" and not gpus:
        yield "precision mixed_float16 is slower than float32 on a processor"


def _divide_processor(job: TrainJob, count: int, gpus: list[Any]) -> Iterator[str]:
    if count > 1 and job.strategy == "one":
        raise InvalidInputError(
            f"logical_cpus is {count}, and the strategy one trains on one device; take mirrored, or one logical CPU"
        )
    (processor, *_) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * count)
    if gpus:
        tf.config.set_visible_devices([], "GPU")
        yield f"{len(gpus)} GPU(s) stay idle, for logical_cpus asks for the processor"


def _limit_memory(limit_mb: int, gpus: list[Any]) -> Iterator[str]:
    if not gpus:
        yield f"device_memory_mb {limit_mb} limits a GPU's memory, and there is none in use: nothing is limited"
    elif (totals := _gpu_memory_bytes()) and limit_mb * _MIB > min(totals):
        raise InvalidInputError(
            f"device_memory_mb is {limit_mb}, and the smallest GPU has {min(totals) // _MIB} MiB; ask for less"
        )
    for gpu in gpus:
        tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=limit_mb)])


def _capability(gpu: Any) -> tuple[int, ...]:
    # Where the driver does not say, nothing is known against it.
    return tuple(tf.config.experimental.get_device_details(gpu).get("compute_capability", _AMPERE))


def _gpu_memory_bytes() -> list[int]:
    gpus, _, _ = look_at_gpus()
    return [gpu.memory_total_bytes for gpu in gpus if gpu.memory_total_bytes]


def cache_of(job: TrainJob, recipe: Recipe, data: SpeechData) -> FeatureCache | None:
    """The cached features of some clips, where the job's loader reads them."""
    if job.config["loader"] not in CACHED:
        return None
    return open_cache(data, recipe.features)


class EmulatedStep:
    """Takes batches as :class:`xttsbench.training.step.TrainingStep` does, so that the input has its real work to do.

    Attributes:
        waited_ns: what the last step waited.
    """

    def __init__(self, step_times_ms: Sequence[float]) -> None:
        self.waited_ns = 0
        self._accelerator = EmulatedAccelerator(step_times_ms)
        nothing = tf.constant(0.0)
        self._result = StepResult(nothing, nothing, nothing, nothing, nothing, tf.constant(True))

    def __call__(
        self, micro_batches: Sequence[Sequence[dict[str, Any]]], counts: LossCounts, **of_the_step: Any
    ) -> StepResult:
        """Wait."""
        self.waited_ns = self._accelerator.compute()
        return self._result


class Evaluating:
    """The held-out clips of a job, and what is done with them."""

    def __init__(self, job: TrainJob, recipe: Recipe, data: SpeechData, channel: Channel) -> None:
        self._job, self._recipe, self._data, self._channel = job, recipe, data, channel
        rate = recipe.features.sample_rate_hz
        self._held_out: SpeechData | None = None
        try:
            self._held_out = read_speech_data(Path(job.data), sample_rate_hz=rate, split="eval", seed=job.seed)
        except InvalidInputError as error:  # that all clips can be read was seen before the start
            tell(channel, warned=f"no held-out loss: {error}")

    def loss(self, state: TrainingState) -> Callable[[], HeldOut] | None:
        """Function that computes the held-out loss of a state; ``None`` where no clip is held out."""
        if self._held_out is None:
            return None
        loader, cache = str(self._job.config["loader"]), cache_of(self._job, self._recipe, self._held_out)
        return HeldOutLoss(state, self._recipe, self._held_out, loader=loader, cache=cache, seed=self._job.seed)

    def listen(self, state: TrainingState, step: int, board: TensorBoard) -> None:
        """Let the state's model speak after so many steps, and tell what was heard; a failure costs no training."""
        began = time.perf_counter()
        try:
            hearing = Hearing(state, self._recipe, self._data, self._held_out, Path(self._job.directory), board)
            found = hearing(step)
        except (InvalidInputError, OSError) as error:
            tell(self._channel, warned=f"the model's speech was not evaluated: {error}")
            return
        spoken = Spoken(step=step, metrics=found.metrics())
        tell(self._channel, spoken=spoken, took_s=time.perf_counter() - began)


def watching_overhead(fetched: Fetched) -> MeasurementOverhead:
    """Mean cost of watching a step of an interval, whose losses are told as well.

    Of the batch no tensor is looked at.
    """
    step = tf.function(lambda values: values + 1)
    values = tf.zeros([4, 4])
    step(values)
    watch = Watch(SilentChannel(), lambda _: _BEGUN)
    watch.begun(0)

    def watched(steps: int) -> None:
        for _ in range(steps):
            watch.fetching()
            watch.fetched(fetched)
            watch.stepped(step(values))
        watch.interval(_INTERVAL)

    def bare(steps: int) -> None:
        for _ in range(steps):
            step(values)

    return overhead_of(watched, bare, "one small compiled call each, reported as an interval")


_BEGUN: Final = Begun.model_validate(dict.fromkeys(Begun.model_fields, 1))
_INTERVAL: Final = Interval.model_validate(dict.fromkeys(Interval.model_fields, 1))


def serve(connection: socket.socket, rows: int, stop: Callable[[], bool], began_s: float) -> int:
    """Train as the parent says, and tell it how that ended; returns the exit code of this process.

    The descriptor ``rows`` is of the memory for rows; ``began_s`` is ``time.monotonic()`` at the start of this process.
    """
    channel = Channel(connection, shared_rows(rows))
    try:
        job = channel.receive(TrainJob)
        try:
            Session(job, channel, stop, began_s).train()
        except (Exception, SystemExit) as raised:
            error = raised if job.strategy != "multi_worker" else explained_by_others(raised)
            told = failure(error)
            channel.send(told | {"exit_code": error.exit_code if isinstance(error, XttsbenchError) else 1})
        channel.send({"done": True})
    except OSError:
        return 1  # the parent is gone; there is nobody to tell
    return 0


class Session:
    """Parts of a training job, built in the order in which TensorFlow wants them.

    The time ``began_s`` is ``time.monotonic()`` at the start of this process.
    """

    def __init__(self, job: TrainJob, channel: Channel, stop: Callable[[], bool], began_s: float) -> None:
        self._job, self._channel, self._stop, self._began_s = job, channel, stop, began_s
        channel.phase("setup")
        recipe = Recipe.model_validate(job.recipe)
        self._data = read_speech_data(Path(job.data), sample_rate_hz=recipe.features.sample_rate_hz, seed=job.seed)
        for note in configure(job):  # before anything else starts TensorFlow's runtime
            tell(self._channel, warned=note)
        self._recipe = recipe
        self._cache = cache_of(job, recipe, self._data)
        if job.strategy == "multi_worker":
            channel.phase("joining")
        strategy = make_strategy(job.strategy)
        self._replicas = Replicas(strategy)
        self._workers = Workers(strategy, self._replicas)
        self._origin = Origin.of(
            recipe, self._data, replicas=self._replicas.count, precision=job.config["precision"], seed=job.seed
        )
        agree(self._workers, self._origin, job)
        self._state = TrainingState(recipe, strategy, job.config["precision"], job.seed)
        self._step = TrainingStep(self._state, recipe, self._replicas, mode=job.config["mode"], seed=job.seed)
        settings = with_parts(recipe, self._replicas.count)
        self._epoch = planned_epoch(self._data, recipe, settings, job.seed, epoch=0)
        self._shapes = shapes(self._data, recipe, self._replicas)  # the largest first: it shows whether all fit
        self._setup_s = time.monotonic() - began_s

    def train(self) -> None:
        """Compile all shapes, train to the end of the run, and tell of it."""
        job, channel = self._job, self._channel
        channel.part("setup_s", self._setup_s)
        channel.part("target_kind", "workload")
        channel.part("devices", devices_seen())
        emulated = EmulatedStep(job.accelerator_ms) if job.accelerator_ms else None
        if emulated is None:
            channel.phase("warm_up")
            self._step.warm_up(self._shapes)
        watch = Watch(channel, self._begun, emulated_ns=lambda: emulated.waited_ns if emulated else 0)
        # Behind an emulated accelerator nothing is learnt, so there is nothing to evaluate.
        evaluating = Evaluating(job, self._recipe, self._data, channel) if emulated is None else None
        shown = job.tensorboard and evaluating is not None and self._replicas.is_chief
        board = TensorBoard(Path(job.directory)) if shown else None
        run = Run(
            recipe=self._recipe,
            origin=self._origin,
            state=self._state,
            step=self._step if emulated is None else cast(TrainingStep, emulated),
            batches=self._batches,
            checkpoints=Checkpoints(
                Path(job.checkpoints or Path(job.directory) / CHECKPOINTS), self._recipe.training.keep_checkpoints
            ),
            workers=self._workers,
            evaluate=evaluating.loss(self._state) if evaluating is not None else None,
            actions=(watch,) if board is None else (watch, board),
            stop=self._stop,
        )
        try:
            ended = train(run)
        finally:
            watch.flush()
        # The first batch of the first epoch but for its tensors, as the watch sees it.
        first = Fetched.of(Position(), self._epoch[0], self._data, self._recipe, clip_frames(self._data, self._recipe))
        channel.part("overhead", watching_overhead(first))
        if job.listen and ended.reason != "terminated" and evaluating is not None and board is not None:
            channel.phase("listening")
            evaluating.listen(self._state, ended.step, board)

    def _batches(self, position: Position) -> Iterator[Fetched]:
        config, count = self._job.config, self._job.input_workers
        loading = Loading(
            loader=config["loader"],
            keep=config["cache"],
            prefetch=_AHEAD_OF_PROCESSES if count and config["prefetch"] < 0 else config["prefetch"],
            device_prefetch=config["device_prefetch"],
            workers=count or config["workers"],
            threads=max(config["threads"], count),  # each waits for a process; the common pool has one for each core
            moved=partial(in_processes, count=count) if count else None,
            overlap=self._job.overlap,
        )
        stream = batch_stream(
            self._data, self._cache, self._recipe, loading, self._replicas, seed=self._job.seed, position=position
        )
        return ahead(stream, self._recipe.training.steps - position.step) if self._job.overlap else stream

    def _begun(self, step: int) -> Begun:
        return Begun(
            step=step,
            steps=self._recipe.training.steps,
            replicas=self._replicas.count,
            accumulation=self._recipe.training.accumulation,
            clips_per_update=len(self._epoch.clips) / len(self._epoch),
            updates_per_epoch=len(self._epoch),
            clips=len(self._data),
            parameters=sum(weight.size for weight in self._state.weights().values()),
            shapes=len(self._shapes),
            setup_s=self._setup_s,
            warm_up_s=max(time.monotonic() - self._began_s - self._setup_s, 0.0),
            learns=not self._job.accelerator_ms,
        )
