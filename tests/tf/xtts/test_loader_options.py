"""Options of loaders: features kept in memory, and batches made in processes of their own; the same elements."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError, XttsbenchError
from xttsbench.files import shipped
from xttsbench.samedata.tolerance import difference
from xttsbench.xtts.data.batches import Batch, plan
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.make import make_data
from xttsbench.xtts.data.precompute import precompute
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.loaders import CACHED, KEEPING, LOADERS
from xttsbench.xtts.loaders.loader import explained, make_dataset
from xttsbench.xtts.loaders.numpy_loaders import Arrays, InputProcesses
from xttsbench.xtts.recipe import BatchSettings, load_recipe
from xttsbench.xtts.wav import write_wav

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


NOISE_SETTINGS = BatchSettings(batch_size=2, frame_edges=(24, 40), text_edges=(16,), reference_frames=30)


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> SpeechData:
    """Eight clips of noise of 17 to 38 frames."""
    directory = tmp_path_factory.mktemp("speech")
    (directory / "wavs").mkdir()
    rng = np.random.default_rng(0)
    for number in range(8):
        write_wav(directory / f"wavs/c{number}.wav", 0.1 * rng.normal(size=4500 + 777 * number), 22_050)
    (directory / "metadata.csv").write_text("".join(f"c{number}|some words\n" for number in range(8)))
    return read_speech_data(directory, sample_rate_hz=22_050, split="all")


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    gc.collect()
    deadline = time.monotonic() + 60  # where an element failed, TensorFlow may still be making another beside it
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.05)
        gc.collect()  # what that other one held
    assert not multiprocessing.active_children()


def batches(noise: SpeechData, epochs: int = 2) -> list[Batch]:
    of = (noise.samples // FEATURES.hop_samples, noise.text_lengths, noise.speakers, NOISE_SETTINGS)
    return [batch for epoch in range(epochs) for batch in plan(*of, seed=3, epoch=epoch)]


def noise_dataset(noise: SpeechData, planned: list[Batch], loader: str = "numpy_wav", **chosen: Any) -> Any:
    return make_dataset(loader, noise, None, planned, FEATURES, **{"processes": 2, "repeat": False, **chosen})


def test_the_elements_are_the_same_bits_in_the_same_order(noise: SpeechData) -> None:
    planned = batches(noise)
    ours, theirs = noise_dataset(noise, planned), noise_dataset(noise, planned, processes=0)
    assert ours.element_spec == theirs.element_spec
    found = list(ours)  # all are held while others are made
    assert len(found) == len(planned)
    for number, (one, other) in enumerate(zip(found, theirs, strict=True)):
        assert difference(other, one, batch=number) is None
        np.testing.assert_array_equal(one["mel"], other["mel"])


@pytest.mark.parametrize("prefetch", [0, 3, -1])
def test_no_more_are_made_ahead_than_are_allowed(
    noise: SpeechData, prefetch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    made = InputProcesses.__call__

    def noted(self: InputProcesses, number: int) -> Arrays:
        asked.append(number)
        return made(self, number)

    monkeypatch.setattr(InputProcesses, "__call__", noted)
    iterator = iter(noise_dataset(noise, batches(noise, 20), prefetch=prefetch))
    for taken in range(1, 4):
        next(iterator)
        before = -1
        while before != len(asked):  # until nothing more is begun
            before = len(asked)
            time.sleep(0.3)
        assert len(asked) <= taken + 2 + (2 if prefetch < 0 else prefetch)
    assert sorted(asked) == list(range(len(asked)))  # by two threads, which may overtake each other


def test_a_bad_file_is_named(noise: SpeechData) -> None:
    path = noise.wav(1)
    whole = path.read_bytes()
    iterator = iter(noise_dataset(noise, batches(noise, 1), repeat=True, prefetch=0))
    next(iterator)
    path.write_bytes(whole[:200])
    try:
        with pytest.raises(InvalidInputError) as caught, explained():
            list(islice(iterator, 20))
    finally:
        path.write_bytes(whole)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_killed_process_is_a_sentence_and_no_hang(noise: SpeechData) -> None:
    iterator = iter(noise_dataset(noise, batches(noise, 1), repeat=True, prefetch=0))
    next(iterator)
    for process in multiprocessing.active_children():
        os.kill(process.pid or 0, signal.SIGKILL)
    with pytest.raises(XttsbenchError) as caught, explained():
        list(islice(iterator, 20))
    assert type(caught.value) is XttsbenchError
    assert str(caught.value).startswith("one of 2 processes that make batches died")


def test_they_end_with_the_dataset(noise: SpeechData) -> None:
    made = noise_dataset(noise, batches(noise))
    iterator = iter(made)
    next(iterator)
    assert len(multiprocessing.active_children()) == 2
    del made, iterator
    gc.collect()
    deadline = time.monotonic() + 60
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"loader": "tf_wav"}, "the loader tf_wav is TensorFlow's own work"),
        ({"keep": True}, "each of 2 would keep the features"),
        ({"processes": -1}, "input processes must be 0 to 256, got -1"),
    ],
)
def test_what_cannot_be_is_refused(noise: SpeechData, chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        noise_dataset(noise, batches(noise), **chosen)
