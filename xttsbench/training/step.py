"""The training step under a strategy: which devices train together, parts forward and backward, one sum, one update.

Each replica takes its own parts of the global batch one after the other, adds their gradients up, and all replicas add
theirs. Since the loss is divided by the global batch's counts and dropout goes by the place in it, the sum is the same
however the batch is divided.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from xttsbench.cluster import read_cluster
from xttsbench.training.state import TrainingState, update
from xttsbench.xtts.data.batches import LossCounts
from xttsbench.xtts.model.loss import CompiledGradients, Losses, batch_counts, losses_and_gradients
from xttsbench.xtts.model.speech_model import open_spec
from xttsbench.xtts.recipe import Recipe


def make_strategy(kind: str) -> tf.distribute.Strategy:
    """Return the strategy of a kind, over the GPUs of this process, or its logical CPUs where there is none.

    Args:
        kind: ``one`` (the first device), ``mirrored`` (all devices of this process) or ``multi_worker`` (all of the
            processes that ``TF_CONFIG`` names, which all have to be started; it waits for them, and has to be made
            before TensorFlow has looked at its devices).

    Raises:
        UsageError: ``multi_worker`` has no cluster in ``TF_CONFIG``.
    """
    if kind == "one":
        return tf.distribute.OneDeviceStrategy(_devices()[0])
    if kind == "mirrored":
        return tf.distribute.MirroredStrategy(_devices())
    if kind == "multi_worker":
        read_cluster(os.environ)
        return tf.distribute.MultiWorkerMirroredStrategy()
    raise ValueError(f"no strategy is called {kind!r}")


class Replicas:
    """The replicas of a strategy.

    Attributes:
        count: of all processes.
        local: device of each replica of this process, in their order.
        first_local: place of this process's first replica in the order of all.
        is_chief: whether this process is the one that writes for all.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self.count: int = strategy.num_replicas_in_sync
        self.local: tuple[str, ...] = tuple(strategy.extended.worker_devices)
        places = strategy.experimental_local_results(strategy.run(_place_on_device))
        self.first_local = int(places[0])
        self.is_chief = self.first_local == 0


def place() -> int:
    """Return where the replica whose step is being traced or run stands in the order of all."""
    return int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))


@tf.function(autograph=False)
def _place_on_device() -> tf.Tensor:
    return tf.identity(tf.distribute.get_replica_context().replica_id_in_sync_group)


def _devices() -> list[str]:
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return [device.name for device in devices]


class Workers:
    """The processes of a run; most runs have one, which agrees with itself and waits for nobody.

    Attributes:
        is_chief: whether this is the one that writes.
        are_several: whether there are others.
    """

    def __init__(self, strategy: tf.distribute.Strategy, replicas: Replicas) -> None:
        """Take the processes that a strategy spans, and its replicas."""
        self.is_chief, self.are_several = replicas.is_chief, replicas.count > len(replicas.local)
        self._strategy, self._replicas = strategy, replicas
        self._gather = tf.function(self._gathered, autograph=False)

    def gather(self, value: float) -> list[float]:
        """Return what each process gave, the chief's first; waits until all of them have given theirs."""
        if not self.are_several:
            return [value]
        everywhere = self._gather(tf.constant(value, tf.float64))
        gathered: list[float] = self._strategy.experimental_local_results(everywhere)[0].numpy().tolist()
        return gathered[:: len(self._replicas.local)]

    def _gathered(self, value: tf.Tensor) -> tf.Tensor:
        return self._strategy.run(self._all_of_replicas, args=(value,))

    def _all_of_replicas(self, value: tf.Tensor) -> tf.Tensor:
        """Return ``[replicas]``: a sum of vectors that have one replica's value each, and 0 else."""
        own = tf.pad(value[None], [[place(), self._replicas.count - 1 - place()]])
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, own)


Batch = dict[str, tf.Tensor]


class Shape(NamedTuple):
    """The sizes of one replica's batch."""

    rows: int
    frames: int
    characters: int
    reference_frames: int


class StepResult(NamedTuple):
    """Scalar tensors of the global batch, the same on all replicas; nothing is fetched from the device."""

    total: tf.Tensor
    mel: tf.Tensor
    stop: tf.Tensor
    guided: tf.Tensor
    gradient_norm: tf.Tensor
    """Joint norm of all gradients before clipping."""
    applied: tf.Tensor
    """False where a gradient was not finite: then all replicas left the step out."""


class TrainingStep:
    """``step(micro_batches, counts, number=..., learning_rate=...)`` trains on one global batch.

    ``eager`` dispatches operation by operation. ``graph`` is one trace for all shapes. ``xla`` is a graph too, whose
    arithmetic is compiled: the decoder for each shape, the conditioning for each number of rows, the update once.
    Under ``mixed_float16`` the loss is scaled (see :mod:`xttsbench.training.state`).

    Attributes:
        function: the compiled step, a ``tf.function``, or None in eager mode.
    """

    def __init__(self, state: TrainingState, recipe: Recipe, replicas: Replicas, *, mode: str, seed: int) -> None:
        """Make the step of a state.

        The state was made under the strategy of ``replicas``; the mode is ``eager``, ``graph`` or ``xla``, the seed
        below 2**31.
        """
        self.state, self.recipe, self.replicas, self.seed = state, recipe, replicas, seed
        self._spec = open_spec(recipe.features.n_mels)
        self._gradients: Callable[..., tuple[Losses, list[tf.Tensor]]] = self._gradients_at_once
        ema_decay = recipe.training.ema_decay
        self._updates: list[Callable[..., tuple[tf.Tensor, tf.Tensor]]] = [
            partial(update, variables, settings=recipe.optimizer, ema_decay=ema_decay) for variables in state.replicas
        ]
        if mode == "xla":
            self._gradients = CompiledGradients(state.model, recipe.loss)
            self._updates = [tf.function(one, jit_compile=True, autograph=False) for one in self._updates]
        elif mode == "graph":
            # Traced once and called for each part; the runtime puts it into the step's own graph.
            self._gradients = tf.function(self._gradients_at_once, autograph=False)
        self.function: Any = None
        if mode != "eager":
            parts = [[self._spec] * len(replicas.local)] * recipe.training.accumulation
            numbers = [tf.TensorSpec([4], tf.float32), tf.TensorSpec([2], tf.int32)]
            self.function = tf.function(self._step, input_signature=[parts, *numbers], autograph=False)

    def __call__(
        self,
        micro_batches: Sequence[Sequence[Batch]],
        counts: LossCounts,
        *,
        number: int | tf.Tensor,
        learning_rate: float | tf.Tensor,
        learn: bool = True,
    ) -> StepResult:
        """Train on a global batch; numbers may be scalar tensors, int32 and float32.

        Args:
            micro_batches: ``[accumulation][local replicas]`` equal parts of it, each as
                :func:`xttsbench.xtts.model.speech_model.open_spec` describes a batch, on the device of its replica.
            counts: of the global batch, from :func:`xttsbench.xtts.data.batches.loss_counts`.
            number: steps that ended before, those left out included; with the seed it decides the dropout.
            learning_rate: of this step.
            learn: if not, all is computed and nothing is changed.
        """
        parts = [[{key: batch[key] for key in self._spec} for batch in batches] for batches in micro_batches]
        floats = tf.convert_to_tensor([*counts, learning_rate], tf.float32)
        integers = tf.convert_to_tensor([number, int(learn)], tf.int32)
        run = self._step if self.function is None else self.function
        return StepResult(*run(parts, floats, integers))

    def warm_up(self, shapes: Iterable[Shape]) -> float:
        """Run a step of each shape that changes nothing, so that all is traced and compiled; return its seconds."""
        start = perf_counter()
        for shape in shapes:
            batches = [self._blank(shape, device) for device in self.replicas.local]
            parts = [batches] * self.recipe.training.accumulation
            result = self(parts, LossCounts(1.0, 1.0, 1.0), number=0, learning_rate=0.0, learn=False)
            float(result.total)  # it is over when its result is there
        return perf_counter() - start

    @tf.autograph.experimental.do_not_convert
    def _step(self, parts: Sequence[Sequence[Batch]], floats: tf.Tensor, integers: tf.Tensor) -> tuple[tf.Tensor, ...]:
        of_replicas = self.state.strategy.run(self._replica_step, args=(parts, floats, integers))
        return tuple(self.state.strategy.experimental_local_results(result)[0] for result in of_replicas)

    @tf.autograph.experimental.do_not_convert
    def _replica_step(
        self, parts: Sequence[Sequence[Batch]], floats: tf.Tensor, integers: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        own = place()
        local = own - self.replicas.first_local
        *counts, learning_rate = tf.unstack(floats)
        number, learn = tf.unstack(integers)
        seed = tf.stack([tf.constant(self.seed, tf.int32), number])
        loss_scale = self.state.replicas[local].loss_scale
        scale = None if loss_scale is None else tf.identity(loss_scale.scale)

        sums: list[tf.Tensor] = []
        for micro, batches in enumerate(parts):
            # One after the other: side by side they would need the memory of all.
            with tf.control_dependencies(sums):
                bits = self.state.model.draw_dropout(batches[local], seed, micro * self.replicas.count + own)
                found, gradients = self._gradients(batches[local], bits, scale, LossCounts(*counts))
                added = [tf.stack(found), *gradients]
                sums = [one + other for one, other in zip(sums, added, strict=True)] if sums else added
        if self.replicas.count > 1:
            sums = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, sums)
        total, *gradients = sums
        norm, applied = self._updates[local](
            gradients=gradients, learning_rate=learning_rate, learn=tf.cast(learn, tf.bool)
        )
        return *tf.unstack(total), norm, applied

    def _gradients_at_once(
        self, batch: Batch, dropout_bits: tf.Tensor, scale: tf.Tensor | None, counts: LossCounts
    ) -> tuple[Losses, list[tf.Tensor]]:
        return losses_and_gradients(self.state.model, batch, self.recipe.loss, dropout_bits, scale, counts)

    def _blank(self, shape: Shape, device: str) -> Batch:
        rows, n_mels = shape.rows, self.recipe.features.n_mels
        arrays = {
            "text": np.zeros([rows, shape.characters], np.int32),
            "text_length": np.full(rows, shape.characters, np.int32),
            "mel": np.zeros([rows, shape.frames, n_mels], np.float32),
            "mel_length": np.full(rows, shape.frames, np.int32),
            "reference": np.zeros([rows, shape.reference_frames, n_mels], np.float32),
            "reference_start": np.full(rows, -1, np.int32),
        }
        with tf.device(device):
            return {key: tf.constant(array) for key, array in arrays.items()}


class OneDeviceStep:
    """``step(batch)`` trains a new model on a batch and returns its loss, a scalar tensor that nobody waits for.

    It calls :class:`~xttsbench.training.step.TrainingStep`. What the trainer's loop tells that one from the host (the
    batch's counts, the number of the step, the learning rate) is computed on the device, from the batch and from the
    state: the step keeps nothing in Python, so that others can trace it as a part of theirs. The learning rate is the
    recipe's highest, and each batch makes an update of its own, whatever the recipe accumulates.

    Attributes:
        state: what is trained. Its count of updates numbers the steps.
        function: the compiled step, a ``tf.function``, or None in eager mode.
    """

    def __init__(self, recipe: Recipe, *, mode: str, precision: str = "float32", seed: int = 0) -> None:
        """Make a new model and its step on the first device.

        The mode is ``eager``, ``graph`` or ``xla``; the precision may set TF32 for the whole process; the seed is below
        2**31.
        """
        alone = recipe.training.model_copy(update={"accumulation": 1})
        self._recipe = recipe.model_copy(update={"training": alone})
        strategy = make_strategy("one")
        self.state = TrainingState(self._recipe, strategy, precision, seed)
        self._step = TrainingStep(self.state, self._recipe, Replicas(strategy), mode=mode, seed=seed)
        self._spec = open_spec(recipe.features.n_mels)
        self.function: Any = None
        if mode != "eager":
            self.function = tf.function(self._take, input_signature=[self._spec], autograph=False)

    def __call__(self, batch: Batch) -> tf.Tensor:
        """Train on a batch; :func:`xttsbench.xtts.model.speech_model.open_spec` says what it must hold."""
        needed = {key: batch[key] for key in self._spec}
        return self._take(needed) if self.function is None else self.function(needed)

    @tf.autograph.experimental.do_not_convert
    def _take(self, batch: Batch) -> tf.Tensor:
        return self._step(
            [[batch]],
            batch_counts(batch, self._recipe.model),
            number=tf.cast(self.state.replicas[0].updates, tf.int32),
            learning_rate=self._recipe.optimizer.learning_rate,
        ).total
