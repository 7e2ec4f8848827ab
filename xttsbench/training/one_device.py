"""The trainer's step on one device, for whoever has no more than a batch: what is measured is what trains."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from xttsbench.training.state import TrainingState
from xttsbench.training.step import Batch, TrainingStep
from xttsbench.training.strategy import Replicas, make_strategy
from xttsbench.xtts.model import batch_counts, open_spec
from xttsbench.xtts.recipe import Recipe


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

        Args:
            recipe: model, loss and optimizer.
            mode: ``eager``, ``graph`` or ``xla``.
            precision: one of :data:`xttsbench.xtts.model.PRECISIONS`, which may set TF32 for the whole process.
            seed: of the weights and of dropout, below 2**31.
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
        """Train on a batch; :func:`xttsbench.xtts.model.open_spec` says what it must hold."""
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
