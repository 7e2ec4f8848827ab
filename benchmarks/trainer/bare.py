"""The loop that one would write by hand, on the trainer's model and batches; a process of its own.

``bare.py INTERVALS`` reads the job from standard input and prints one line of JSON. The step is a plain function of a
batch: GradientTape, the losses, ``clip_by_global_norm`` and Keras's Adam (with its average of the weights where the
recipe keeps one), under ``tf.function``, with ``jit_compile``, or as it is. TensorFlow traces it for each shape anew,
so the graphs have fixed sizes. The batches are those of the trainer's first steps, made before and kept in memory; the
learning rate is constant. There is no input pipeline, no schedule, no check of the numbers, no watch and no checkpoint.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from xttsbench.records.training import TrainJob
from xttsbench.training.course import Position
from xttsbench.training.step import Replicas, make_strategy
from xttsbench.training.stream import Loading, batch_stream
from xttsbench.worker import session
from xttsbench.xtts.data.feature_cache import open_cache
from xttsbench.xtts.data.metadata import VOCABULARY
from xttsbench.xtts.data.speech_data import read_speech_data
from xttsbench.xtts.model.loss import losses
from xttsbench.xtts.model.speech_model import SpeechModel, open_spec, use_precision
from xttsbench.xtts.recipe import Recipe

Batch = dict[str, tf.Tensor]
Step = Callable[[Batch], tf.Tensor]


def make_step(recipe: Recipe, mode: str, precision: str, seed: int) -> Step:
    """Return the step of a new model: a batch in, its loss out.

    Args:
        recipe: model, loss and optimizer.
        mode: ``eager``, ``graph`` or ``xla``.
        precision: as the trainer has it.
        seed: of weights and dropout.
    """
    model = SpeechModel(recipe.model, recipe.features.n_mels, VOCABULARY, seed=seed, dtype=use_precision(precision))
    ema_decay, settings = recipe.training.ema_decay, recipe.optimizer
    average = {} if ema_decay is None else {"use_ema": True, "ema_momentum": ema_decay}
    optimizer = keras.optimizers.Adam(
        settings.learning_rate, beta_1=settings.beta_1, beta_2=settings.beta_2, epsilon=settings.epsilon, **average
    )
    optimizer.build(model.trainable_variables)
    variables = [variable.value for variable in model.trainable_variables]

    def step(batch: Batch) -> tf.Tensor:
        dropout = model.draw_dropout(batch, tf.stack([seed, tf.cast(optimizer.iterations.value, tf.int32)]))
        with tf.GradientTape() as tape:
            loss = losses(batch, model(batch, dropout_bits=dropout), recipe.model, recipe.loss).total
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), settings.clip_norm)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    if mode == "eager":
        return step
    compiled: Step = tf.function(step, jit_compile=mode == "xla")
    return compiled


def cached_batches(job: TrainJob, recipe: Recipe, steps: int) -> list[Batch]:
    """Return what the trainer's first steps take, in memory."""
    data = read_speech_data(Path(job.data), sample_rate_hz=recipe.features.sample_rate_hz, seed=job.seed)
    cache, replicas = open_cache(data, recipe.features), Replicas(make_strategy(job.strategy))
    loading = Loading(loader=job.config["loader"])
    stream = batch_stream(data, cache, recipe, loading, replicas, seed=job.seed, position=Position())
    keys = open_spec(recipe.features.n_mels)
    return [{key: fetched.micro_batches[0][0][key] for key in keys} for fetched in islice(stream, steps)]


def measure(job: TrainJob, intervals: int) -> dict[str, Any]:
    """Train, and return samples and seconds of so many intervals, in order."""
    session.configure(job)
    recipe, mode = Recipe.model_validate(job.recipe), job.config["mode"]
    length = recipe.training.log_every
    batches = cached_batches(job, recipe, (1 + intervals) * length)
    step = make_step(recipe, mode, job.config["precision"], job.seed)
    by_shape = {(batch["mel"].shape, batch["text"].shape): batch for batch in batches}
    for batch in by_shape.values():
        float(step(batch))
    if mode != "eager":  # which has nothing left to trace, and takes long
        for batch in batches[:length]:
            loss = step(batch)
        float(loss)
    samples, seconds = [], []
    for first in range(length, len(batches), length):
        timed, began = batches[first : first + length], time.perf_counter()
        for batch in timed:
            loss = step(batch)
        float(loss)  # it is over when its loss is there
        seconds.append(time.perf_counter() - began)
        samples.append(sum(len(batch["mel_length"]) for batch in timed))
    return {"samples": samples, "seconds": seconds}


if __name__ == "__main__":
    print(json.dumps(measure(TrainJob.model_validate_json(sys.stdin.read()), int(sys.argv[1]))))
