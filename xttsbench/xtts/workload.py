"""The bundled workload as a target: ``make_workload()`` gives a dataset of speech and the step that trains on it.

It is an ordinary target, written as a user would write one: WAV files through a Python function, padded to buckets,
batched, prefetched, and a model trained by Adam.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import keras
import numpy as np
import platformdirs
import tensorflow as tf
from pydantic import Field, ValidationError

from xttsbench.errors import InvalidInputError
from xttsbench.records.base import Record
from xttsbench.shipped import shipped
from xttsbench.xtts import batches, ljspeech, model, text
from xttsbench.xtts.features import FeatureSettings, log_mel
from xttsbench.xtts.recipe import Recipe, load_recipe

Batch = dict[str, tf.Tensor]
Step = Callable[[Batch], tf.Tensor]

LOADERS: Final = ("numpy_wav",)
MODES: Final = ("graph", "eager")
MIN_S: Final = 1.0
MAX_S: Final = 4.0
"""Bounds of the synthetic clips' lengths in seconds."""


class WorkloadSettings(Record):
    """What can be chosen about the workload; see :func:`make_workload`."""

    utterances: int = Field(ge=1, le=100_000)
    batch_size: int = Field(ge=1)
    prefetch: int = Field(ge=-1)
    workers: int = Field(ge=-1)
    seed: int = Field(ge=0, lt=2**31)
    loader: str
    mode: str
    data: str | None


def make_workload(
    utterances: int = 64,
    batch_size: int = 8,
    loader: str = "numpy_wav",
    mode: str = "graph",
    prefetch: int = -1,
    workers: int = -1,
    seed: int = 0,
    data: str | None = None,
) -> tuple[tf.data.Dataset, Step]:
    """Return an endless dataset of speech, and a step that trains the tiny model on one of its batches.

    A batch holds ``id`` (number of the clip in the metadata), ``text`` (ids, 0 is padding), ``text_length``, ``mel``
    (log-mels, padded with the floor's logarithm) and ``mel_length`` (frames). The same arguments give the same batches
    and the same losses.

    Args:
        utterances: clips of the synthetic data set, made once in the user's cache directory.
        batch_size: clips of a batch.
        loader: how a clip becomes a mel: ``numpy_wav``, a ``tf.numpy_function`` that reads the WAV file.
        mode: ``graph`` compiles the step with tf.function, ``eager`` dispatches it op by op.
        prefetch: batches made ahead; -1 lets tf.data decide, 0 makes none.
        workers: clips loaded in parallel; -1 lets tf.data decide, 0 loads one after the other.
        seed: seed of the data, the order, and the model.
        data: directory of a data set in LJSpeech format in place of the synthetic one.

    Raises:
        InvalidInputError: an argument is out of range, or the data cannot be used.
    """
    settings = _validated(
        utterances=utterances,
        batch_size=batch_size,
        loader=loader,
        mode=mode,
        prefetch=prefetch,
        workers=workers,
        seed=seed,
        data=data,
    )
    recipe = load_recipe(shipped("training", "tiny"))
    dataset = make_dataset(_data_directory(settings), recipe, settings)
    return dataset, make_step(dataset.element_spec, recipe, settings)


def make_dataset(directory: Path, recipe: Recipe, settings: WorkloadSettings) -> tf.data.Dataset:
    """Return the endless dataset of :func:`make_workload` over a directory in LJSpeech format."""
    features = recipe.features
    clips = ljspeech.read_clips(directory)
    texts = [text.encode(clip.text) for clip in clips]
    lengths = [features.frames(ljspeech.wav_frames(clip.wav, features.sample_rate_hz)) for clip in clips]
    planned = batches.plan(lengths, recipe.batches.frame_edges, settings.batch_size, settings.seed)
    characters = max(len(ids) for ids in texts)

    def load_clip(clip: np.int32, frames: np.int32) -> tuple[Any, ...]:
        """Read a clip, and pad its text and mel; runs in Python, inside tf.data."""
        ids = texts[clip]
        mel = _padded_mel(clips[clip].wav, features, int(frames))
        return np.pad(ids, (0, characters - len(ids))), np.int32(len(ids)), mel, np.int32(lengths[clip])

    def element(clip: tf.Tensor, frames: tf.Tensor) -> Batch:
        ids, text_length, mel, mel_length = tf.numpy_function(
            load_clip, [clip, frames], [tf.int32, tf.int32, tf.float32, tf.int32]
        )
        return {
            "id": clip,
            "text": tf.ensure_shape(ids, [characters]),
            "text_length": tf.ensure_shape(text_length, []),
            "mel": tf.ensure_shape(mel, [None, features.n_mels]),
            "mel_length": tf.ensure_shape(mel_length, []),
        }

    order = (
        np.asarray([batch.clips for batch in planned], np.int32),
        np.asarray([[batch.frames] * settings.batch_size for batch in planned], np.int32),
    )
    dataset = tf.data.Dataset.from_tensor_slices(order).shuffle(len(planned), seed=settings.seed).repeat().unbatch()
    dataset = dataset.map(element, num_parallel_calls=settings.workers or None)
    dataset = dataset.batch(settings.batch_size, drop_remainder=True)
    return dataset.prefetch(settings.prefetch) if settings.prefetch else dataset


def make_step(spec: dict[str, tf.TensorSpec], recipe: Recipe, settings: WorkloadSettings) -> Step:
    """Return the step of :func:`make_workload` for batches of a spec: forward, backward, Adam; the loss as a scalar."""
    # One process runs one trial, so that the process-wide seed is ours to set.
    keras.utils.set_random_seed(settings.seed)
    decoder = model.build(recipe.model, recipe.features.n_mels, text.VOCABULARY)
    optimizer = keras.optimizers.Adam(recipe.optimizer.learning_rate)
    optimizer.build(decoder.trainable_variables)

    def train_step(batch: Batch) -> tf.Tensor:
        with tf.GradientTape() as tape:
            predicted, stop_logits = decoder({"text": batch["text"], "mel": batch["mel"]}, training=True)
            value = model.loss(batch["mel"], batch["mel_length"], predicted, stop_logits, recipe.model)
        variables = decoder.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
        return value

    # The dataset's own signature, whose frames are open: one trace serves all buckets.
    return tf.function(train_step, input_signature=[spec]) if settings.mode == "graph" else train_step


def cache_directory() -> Path:
    """Return where made data are kept: ``XTTSBENCH_CACHE``, else the user's cache directory."""
    return Path(os.environ.get("XTTSBENCH_CACHE") or platformdirs.user_cache_dir("xttsbench"))


def _validated(**values: Any) -> WorkloadSettings:
    try:
        settings = WorkloadSettings.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}, got {problem['input']!r}"
            for problem in error.errors()
        )
        raise InvalidInputError(f"make_workload: {problems}") from error
    for name, value, known in (("loader", settings.loader, LOADERS), ("mode", settings.mode, MODES)):
        if value not in known:
            raise InvalidInputError(f"make_workload: {name}: one of {', '.join(known)} is expected, got {value!r}")
    return settings


def _data_directory(settings: WorkloadSettings) -> Path:
    if settings.data is not None:
        return Path(settings.data)
    name = f"speech-v1-{settings.utterances}x{MIN_S:g}-{MAX_S:g}s-seed{settings.seed}"
    return ljspeech.make_synthetic(cache_directory() / name, settings.utterances, settings.seed, MIN_S, MAX_S)


def _padded_mel(wav: Path, features: FeatureSettings, frames: int) -> np.ndarray:
    """Return the log-mel of a file, ``[frames, n_mels]``, with silence below what it lacks."""
    mel = log_mel(ljspeech.read_wav(wav, features.sample_rate_hz), features)
    return np.pad(mel, ((0, frames - len(mel)), (0, 0)), constant_values=np.log(np.float32(features.log_floor)))
