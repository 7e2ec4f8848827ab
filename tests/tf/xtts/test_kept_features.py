"""Features kept in memory: the same bits in every epoch, files read once, and not what no loader can keep."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.shipped import shipped
from xttsbench.xtts.data.batches import Batch, plan
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.make import make_data
from xttsbench.xtts.data.precompute import precompute
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.loaders import CACHED, KEEPING, LOADERS
from xttsbench.xtts.loaders.loader import make_dataset
from xttsbench.xtts.recipe import BatchSettings, load_recipe

FEATURES = load_recipe(shipped("training", "tiny")).features
CLIPS, EPOCHS = 12, 3
SETTINGS = BatchSettings(
    batch_size=3, frame_edges=(64, 128, 192), text_edges=(8, 16, 32, 64), reference_frames=60, bucketing=True
)


@pytest.fixture
def speech(tmp_path: Path) -> tuple[SpeechData, FeatureCache]:
    make_data(tmp_path / "speech", CLIPS, seed=5, min_s=0.3, max_s=2.0)
    data = read_speech_data(tmp_path / "speech", sample_rate_hz=22_050, split="all")
    return data, precompute(data, FEATURES, tmp_path / "cache")


def epochs(speech: tuple[SpeechData, FeatureCache], count: int = EPOCHS) -> list[Batch]:
    data, cache = speech
    of = (cache.frames, data.text_lengths, data.speakers, SETTINGS)
    return [batch for epoch in range(count) for batch in plan(*of, seed=3, epoch=epoch)]


def dataset(speech: tuple[SpeechData, FeatureCache], loader: str, batches: list[Batch], **chosen: Any) -> Any:
    data, cache = speech
    return make_dataset(loader, data, cache if loader in CACHED else None, batches, FEATURES, repeat=False, **chosen)


def assert_same_bits(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs) > 0
    for first, second in zip(ours, theirs, strict=True):
        assert first.keys() == second.keys()
        for key in first:
            np.testing.assert_array_equal(first[key].numpy(), second[key].numpy())


@pytest.mark.parametrize("loader", KEEPING)
def test_batches_are_the_same_bits_in_every_epoch(speech: Any, loader: str) -> None:
    batches = epochs(speech)
    assert len(batches) > EPOCHS
    assert batches[: len(batches) // EPOCHS] != batches[len(batches) // EPOCHS : 2 * len(batches) // EPOCHS]
    assert_same_bits(
        list(dataset(speech, loader, batches)), list(dataset(speech, loader, batches, keep=True, workers=4))
    )


@pytest.mark.parametrize("loader", KEEPING)
def test_files_are_read_in_the_first_epoch_alone(speech: Any, loader: str) -> None:
    batches = epochs(speech)
    first = len(batches) // EPOCHS
    expected = list(dataset(speech, loader, batches))
    # One after the other and none ahead, so that nothing of the second epoch is read before the files are gone.
    made = dataset(speech, loader, batches, keep=True, workers=0, prefetch=0)
    named = {int(clip) for batch in batches for clip in (*batch.clips, *batch.references)}
    seen = {int(clip) for batch in batches[:first] for clip in (*batch.clips, *batch.references)}
    assert named <= seen  # else this test would prove nothing
    iterator = iter(made)
    found = [next(iterator) for _ in range(first)]
    for directory in ((speech[0].directory / "wavs"), speech[1].npy(0).parent):
        shutil.rmtree(directory)
    found += list(iterator)
    assert_same_bits(found, expected)
    # What is kept belongs to the dataset, and a second iterator has it.
    del found, iterator
    gc.collect()
    assert_same_bits(list(made), expected)


def test_without_it_the_files_are_needed(speech: Any) -> None:
    batches = epochs(speech)
    iterator = iter(dataset(speech, "numpy_wav", batches, workers=0, prefetch=0))
    next(iterator)
    shutil.rmtree(speech[0].directory / "wavs")
    with pytest.raises(tf.errors.OpError):
        list(iterator)


def test_packed_cannot_keep_what_the_system_keeps(speech: Any) -> None:
    assert set(LOADERS) - set(KEEPING) == {"packed"}
    with pytest.raises(InvalidInputError, match=r"keep: the loader packed reads one file .* take one of numpy_wav"):
        dataset(speech, "packed", epochs(speech), keep=True)


@pytest.mark.parametrize("count", [1, 3])
def test_batches_ahead_on_the_device_are_the_same(speech: Any, count: int) -> None:
    batches = epochs(speech, 1)
    ahead = dataset(speech, "numpy_cache", batches, device_prefetch=count, prefetch=0)
    assert ahead._variant_tensor is not None
    assert_same_bits(list(ahead), list(dataset(speech, "numpy_cache", batches)))


def test_a_gpu_gets_its_copies_last(speech: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # The processor stands for a GPU: the same ops, copying from it to itself.
    (processor,) = tf.config.list_logical_devices("CPU")
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: [processor])
    batches = epochs(speech, 1)
    ahead = dataset(speech, "numpy_cache", batches, device_prefetch=2)
    assert "Prefetch" in type(ahead).__name__
    assert_same_bits(list(ahead), list(dataset(speech, "numpy_cache", batches)))


def test_a_negative_number_ahead_is_refused(speech: Any) -> None:
    with pytest.raises(InvalidInputError, match="device_prefetch must be 0 or more, got -1"):
        dataset(speech, "numpy_cache", epochs(speech, 1), device_prefetch=-1)
