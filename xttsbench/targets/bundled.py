"""The bundled speech workload as a target: a dataset of one of the five loaders, and the trainer's step.

An ordinary target, written as a user would write one. Its keyword arguments are the configuration keys of a scenario
and of ``best.yaml``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from xttsbench.errors import InvalidInputError
from xttsbench.probes.procfs import obtainable_bytes
from xttsbench.shipped import shipped
from xttsbench.targets.configuration import MODES, PRECISIONS, Configuration, configuration_problems
from xttsbench.targets.spec import Workload
from xttsbench.xtts.data import batches, feature_cache, make, speech_data
from xttsbench.xtts.loaders import CACHED, LOADERS, loader
from xttsbench.xtts.recipe import Recipe, load_recipe

_PLANNED: Final = 400  # batches that are planned at least: as many as a segment measures, of new epochs and not of one
_MOST_PLANNED: Final = 2**16
"""Batches of an epoch of a very large data set, hours of them; more are not measured."""
_CACHE_SHARE: Final = 0.8
"""Share of the available memory for the features of all clips; batches and the model need some too."""


def make_workload(
    loader: str = "numpy_wav",
    mode: str = "graph",
    precision: str = "float32",
    batch_size: int | None = None,
    tokens_per_batch: int | None = None,
    prefetch: int = -1,
    device_prefetch: int = 0,
    workers: int = -1,
    threads: int = 0,
    deterministic: bool = True,
    cache: bool = False,
    bucketing: bool = True,
    seed: int = 0,
    recipe: str = "tiny",
    data: str | None = None,
    features: str | None = None,
    with_step: bool = True,
) -> Workload:
    """Return an endless dataset of speech, and a step that trains the recipe's model on one of its batches.

    The same arguments give the same batches and the same losses; ``loader``, ``prefetch``, ``device_prefetch``,
    ``workers``, ``threads`` and ``cache`` change neither. What a batch holds is described in
    :mod:`xttsbench.xtts.loaders.loader`.

    Args:
        loader: ``numpy_wav``, ``tf_wav``, ``numpy_cache``, ``tf_cache`` or ``packed``; the last three read the feature
            cache that ``xttsbench data precompute`` makes.
        mode: ``graph`` compiles the step with tf.function, ``xla`` through XLA, ``eager`` dispatches it op by op.
        precision: ``float32``; ``tf32``, whose products take factors of ten bits on a GPU that can; or
            ``mixed_bfloat16`` or ``mixed_float16``, which compute in sixteen bits with weights, means and losses in
            float32, and with a loss scale where it is float16.
        batch_size: clips of a batch; ``None`` takes the recipe's.
        tokens_per_batch: mel frames of a batch, padding included, in place of a number of clips.
        prefetch: batches made ahead; -1 lets tf.data decide, 0 makes none.
        device_prefetch: batches copied to the first GPU ahead of the step; without a GPU so many more made ahead.
        workers: clips (of ``packed`` batches) loaded in parallel; -1 lets tf.data decide, 0 loads one after the other.
        threads: threads of a private pool for the dataset; 0 uses the common one.
        deterministic: whether the order is kept where a later element is ready first.
        cache: keep the features of each clip in memory from their first use on, so that the first epoch alone reads and
            computes them; ``packed``, whose one file the system keeps in memory, cannot have it.
        bucketing: pad to fixed edges by length; without it all to the edge that the longest clip needs.
        seed: seed of the split, the order, and the model.
        recipe: name of a shipped training recipe.
        data: directory of a data set in LJSpeech format in place of the default one.
        features: directory for feature caches in place of the user's cache directory.
        with_step: without it the dataset alone is returned, for an emulated accelerator that stands for the device.

    Raises:
        InvalidInputError: an argument is out of range, the data or their cache cannot be used, or the features of all
            clips do not fit into memory and ``cache`` is asked for.
    """
    given = dict(locals())
    paths = {name: os.fspath(path) for name, path in (("data", data), ("features", features)) if path is not None}
    if problems := configuration_problems(given | paths):
        raise InvalidInputError(f"make_workload: {'; '.join(f'{key}: {sentence}' for key, sentence in problems)}")
    chosen = Configuration(**given | paths)
    trained = load_recipe(shipped("training", chosen.recipe))
    directory = Path(chosen.data) if chosen.data is not None else make.ensure_default_data()
    root = Path(chosen.features) if chosen.features is not None else None
    dataset = make_dataset(directory, root, trained, chosen)
    step = None
    if chosen.with_step:  # a dataset alone does not need Keras, whose import and model cost a second
        from xttsbench.training.step import OneDeviceStep

        step = OneDeviceStep(trained, mode=chosen.mode, precision=chosen.precision, seed=chosen.seed)
    unusual = [] if chosen.precision == "float32" else [chosen.precision]
    unusual += ["features kept in memory"] if chosen.cache else []
    return Workload(
        dataset=dataset,
        step=step,
        tunables={"loader": tuple(LOADERS), "mode": MODES, "precision": PRECISIONS},
        name=", ".join([trained.name, chosen.loader, chosen.mode, *unusual]),
        frames="mel",
        lengths="mel_length",
    )


def make_dataset(directory: Path, features_root: Path | None, recipe: Recipe, chosen: Configuration) -> Any:
    """Return the endless ``tf.data.Dataset`` of :func:`make_workload` over a directory in LJSpeech format."""
    data = speech_data.read_speech_data(directory, sample_rate_hz=recipe.features.sample_rate_hz, seed=chosen.seed)
    cache = feature_cache.open_cache(data, recipe.features, features_root) if chosen.loader in CACHED else None
    if chosen.cache:
        _check_memory(data, recipe)
    return loader.make_dataset(
        chosen.loader,
        data,
        cache,
        _planned(data, recipe, chosen),
        recipe.features,
        keep=chosen.cache,
        prefetch=chosen.prefetch,
        device_prefetch=chosen.device_prefetch,
        workers=chosen.workers,
        threads=chosen.threads,
        deterministic=chosen.deterministic,
    )


def _planned(data: speech_data.SpeechData, recipe: Recipe, chosen: Configuration) -> Sequence[batches.Batch]:
    """Return the batches of so many epochs that a run does not come to their end soon."""
    settings = recipe.batches.model_copy(
        update={
            "bucketing": chosen.bucketing,
            "batch_size": chosen.batch_size or (None if chosen.tokens_per_batch else recipe.batches.batch_size),
            "tokens_per_batch": chosen.tokens_per_batch,
        }
    )
    frames = data.samples // recipe.features.hop_samples
    columns = frames, data.text_lengths, data.speakers
    planned: list[batches.Batch] = []
    epoch = 0
    while len(planned) < _PLANNED:
        planned += batches.plan(*columns, settings, seed=chosen.seed, epoch=epoch, name=data.id)[:_MOST_PLANNED]
        epoch += 1
    return planned


def _check_memory(data: speech_data.SpeechData, recipe: Recipe) -> None:
    frames = int((data.samples // recipe.features.hop_samples).sum())
    needed_bytes, available_bytes = 4 * recipe.features.n_mels * frames, obtainable_bytes()
    if needed_bytes > _CACHE_SHARE * available_bytes:
        raise InvalidInputError(
            f"make_workload: cache: the features of {len(data)} clips of {data.directory} take {needed_bytes} bytes, "
            f"and of the {available_bytes} bytes of memory that are available they may take {_CACHE_SHARE:.0%}; "
            "leave cache out, or take the loader packed"
        )
