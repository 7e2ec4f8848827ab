"""A session of training in its own process: what the job says is built, and handed to the loop with its watch."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import tensorflow as tf

from xttsbench.errors import InvalidInputError, XttsbenchError
from xttsbench.probes.clock import EmulatedAccelerator
from xttsbench.records.training import CHECKPOINTS, Begun, HistoryLine, Interval, Spoken, TrainJob
from xttsbench.records.trial import MeasurementOverhead
from xttsbench.training.checkpoints import Checkpoints
from xttsbench.training.evaluation import Hearing, HeldOutLoss, TensorBoard
from xttsbench.training.loop import HeldOut, Run, train
from xttsbench.training.order import Origin, Position, clip_frames, planned_epoch, with_parts
from xttsbench.training.state import TrainingState
from xttsbench.training.step import Replicas, StepResult, TrainingStep, Workers, make_strategy
from xttsbench.training.stream import Ahead, BatchStream, Fetched, Loading, shapes
from xttsbench.worker.channel import Channel, SilentChannel, shared_rows
from xttsbench.worker.overhead import overhead_of
from xttsbench.worker.training import devices
from xttsbench.worker.training.devices import fitted, with_tokens
from xttsbench.worker.training.watch import Watch
from xttsbench.worker.trial import devices_seen, failure
from xttsbench.xtts.data import feature_cache, speech_data
from xttsbench.xtts.data.batches import LossCounts
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.loaders import CACHED
from xttsbench.xtts.recipe import Recipe


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

    def __init__(self, job: TrainJob, recipe: Recipe, data: SpeechData, tell: Callable[[HistoryLine], None]) -> None:
        self._job, self._recipe, self._data, self._tell = job, recipe, data, tell
        rate = recipe.features.sample_rate_hz
        self._held_out: SpeechData | None = None
        try:
            self._held_out = read_speech_data(Path(job.data), sample_rate_hz=rate, split="eval", seed=job.seed)
        except InvalidInputError as error:  # that all clips can be read was seen before the start
            tell(HistoryLine(session=0, warned=f"no held-out loss: {error}"))

    def loss(self, state: TrainingState) -> Callable[[], HeldOut] | None:
        """What gives the held-out loss of a state; ``None`` where no clip is held out."""
        if self._held_out is None:
            return None
        loader = str(self._job.config["loader"])
        root = None if self._job.features is None else Path(self._job.features)
        cache = feature_cache.open_cache(self._held_out, self._recipe.features, root) if loader in CACHED else None
        return HeldOutLoss(state, self._recipe, self._held_out, loader=loader, cache=cache, seed=self._job.seed)

    def listen(self, state: TrainingState, step: int, board: TensorBoard) -> None:
        """Let the state's model speak after so many steps, and tell what was heard; a failure costs no training."""
        began = time.perf_counter()
        try:
            hearing = Hearing(state, self._recipe, self._data, self._held_out, Path(self._job.directory), board)
            found = hearing(step)
        except (InvalidInputError, OSError) as error:
            self._tell(HistoryLine(session=0, warned=f"the model's speech was not evaluated: {error}"))
            return
        spoken = Spoken(step=step, metrics=found.metrics())
        self._tell(HistoryLine(session=0, spoken=spoken, took_s=time.perf_counter() - began))


def watching_overhead(fetched: Fetched) -> MeasurementOverhead:
    """Mean cost of watching a step of an interval, whose losses are told as well.

    Of the batch no tensor is looked at.
    """
    step = tf.function(lambda values: values + 1)
    values = tf.zeros([4, 4])
    step(values)
    watch = Watch(SilentChannel(in_words=True), lambda _: _BEGUN)
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
        with connection.makefile("r", encoding="utf-8") as lines:
            job = TrainJob.model_validate_json(lines.readline())
        try:
            Session(job, channel, stop, began_s).train()
        except (Exception, SystemExit) as error:
            told = failure(error)
            channel.send(told | {"exit_code": error.exit_code if isinstance(error, XttsbenchError) else 1})
        channel.send({"done": True})
    except OSError:
        return 1  # the parent is gone; there is nobody to tell
    return 0


class Session:
    """What a job needs to be trained, built in the order in which TensorFlow wants it.

    The time ``began_s`` is ``time.monotonic()`` at the start of this process.
    """

    def __init__(self, job: TrainJob, channel: Channel, stop: Callable[[], bool], began_s: float) -> None:
        self._job, self._channel, self._stop, self._began_s = job, channel, stop, began_s
        channel.phase("setup")
        recipe = Recipe.model_validate(job.recipe)
        self._data = speech_data.read_speech_data(
            Path(job.data), sample_rate_hz=recipe.features.sample_rate_hz, seed=job.seed
        )
        for note in devices.configure(job):  # before anything else starts TensorFlow's runtime
            self._tell(HistoryLine(session=0, warned=note))
        if job.fit_memory:
            channel.phase("fit")
            found = fitted(job, recipe, self._data, parts=recipe.training.accumulation)
            recipe = with_tokens(recipe, found.tokens_per_batch)
            self._tell(HistoryLine(session=0, fitted=found))
            channel.phase("setup")
        self._recipe = recipe
        self._cache = None
        if job.config["loader"] in CACHED:
            root = None if job.features is None else Path(job.features)
            self._cache = feature_cache.open_cache(self._data, recipe.features, root)
        strategy = make_strategy(job.strategy)
        self._replicas = Replicas(strategy)
        self._workers = Workers(strategy, self._replicas)
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
        if job.warm_up and emulated is None:
            channel.phase("warm_up")
            self._step.warm_up(self._shapes)
        watch = Watch(channel, self._begun, emulated_ns=lambda: emulated.waited_ns if emulated else 0)
        # Behind an emulated accelerator nothing is learnt, so there is nothing to evaluate.
        evaluating = Evaluating(job, self._recipe, self._data, self._tell) if emulated is None else None
        board = TensorBoard(Path(job.directory)) if evaluating is not None and self._replicas.is_chief else None
        run = Run(
            recipe=self._recipe,
            origin=Origin.of(
                self._recipe,
                self._data,
                replicas=self._replicas.count,
                precision=job.config["precision"],
                seed=job.seed,
            ),
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

    def _tell(self, line: HistoryLine) -> None:
        self._channel.send({"told": line.model_dump(mode="json", exclude_none=True)})

    def _batches(self, position: Position) -> Iterator[Fetched]:
        config = self._job.config
        loading = Loading(
            loader=config["loader"],
            keep=config["cache"],
            prefetch=config["prefetch"],
            device_prefetch=config["device_prefetch"],
            workers=config["workers"],
            threads=config["threads"],
            processes=self._job.input_workers,
            overlap=self._job.overlap,
        )
        stream = BatchStream(
            self._data, self._cache, self._recipe, loading, self._replicas, seed=self._job.seed, position=position
        )
        return Ahead(stream, self._recipe.training.steps - position.step) if self._job.overlap else stream

    def _begun(self, step: int) -> Begun:
        """What is told when the first batch is asked for."""
        return Begun(
            step=step,
            steps=self._recipe.training.steps,
            replicas=self._replicas.count,
            accumulation=self._recipe.training.accumulation,
            clips_per_update=sum(len(batch.clips) for batch in self._epoch) / len(self._epoch),
            updates_per_epoch=len(self._epoch),
            clips=len(self._data),
            parameters=sum(weight.size for weight in self._state.weights().values()),
            shapes=len(self._shapes),
            setup_s=self._setup_s,
            warm_up_s=max(time.monotonic() - self._began_s - self._setup_s, 0.0),
            learns=not self._job.accelerator_ms,
        )
