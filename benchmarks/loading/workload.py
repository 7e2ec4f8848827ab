"""The work of the comparison: clips of about 5 s, their feature cache, and one epoch of the project's own plan."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from manifest import Manifest

from xttsbench.shipped import shipped
from xttsbench.xtts.data.batches import plan
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.make import made_data, make_data
from xttsbench.xtts.data.precompute import precompute
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.features import FeatureSettings
from xttsbench.xtts.recipe import Recipe, load_recipe

MIN_S, MAX_S = 4.3, 6.3
"""5.3 s have 456 frames at 86 a second: 146 kB of 80 float32 each."""

SEED = 0


@lru_cache(maxsize=1)
def recipe() -> Recipe:
    """Return the smallest bundled recipe: its features, edges and batches of 16."""
    return load_recipe(shipped("training", "tiny"))


def features() -> FeatureSettings:
    """Return what determines the mels."""
    return recipe().features


def speech_data(directory: Path) -> SpeechData:
    """Return every clip of a data set, in the one order that all sides number them by."""
    return read_speech_data(directory, sample_rate_hz=features().sample_rate_hz, split="all")


def prepare(utterances: int) -> tuple[Path, Manifest]:
    """Make the data set and its features unless they are there; return its directory, and what all sides read."""
    directory = made_data(utterances, SEED, MIN_S, MAX_S)
    make_data(directory, utterances, SEED, MIN_S, MAX_S)
    data = speech_data(directory)
    return directory, manifest_of(data, precompute(data, features()))


def manifest_of(data: SpeechData, cache: FeatureCache) -> Manifest:
    """Return the plan of the first epoch, with all that a side without this package needs to follow it."""
    batches = plan(cache.frames, data.text_lengths, data.speakers, recipe().batches, seed=SEED, epoch=0)
    texts = [data.text_ids(clip) for clip in range(len(data))]
    return Manifest(
        files=np.array([str(cache.npy(clip)) for clip in range(len(data))]),
        mel_lengths=cache.frames.astype(np.int32),
        text_ids=np.concatenate(texts),
        text_starts=np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64),
        packed=np.array([str(cache.packed)]),
        packed_rows=cache.offsets.astype(np.int64),
        batch_starts=np.concatenate([[0], np.cumsum([len(batch.clips) for batch in batches])]).astype(np.int64),
        clips=np.concatenate([batch.clips for batch in batches]),
        references=np.concatenate([batch.references for batch in batches]),
        reference_starts=np.concatenate([batch.reference_starts for batch in batches]),
        frames=np.array([batch.frames for batch in batches], np.int32),
        characters=np.array([batch.characters for batch in batches], np.int32),
        reference_frames=recipe().batches.reference_frames,
        n_mels=features().n_mels,
        pad=float(np.log(np.float32(features().log_floor))),
    )
