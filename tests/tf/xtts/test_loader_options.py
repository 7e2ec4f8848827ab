"""Options of loaders: features kept in memory, and batches made in processes of their own; the same elements."""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError, XttsbenchError
from xttsbench.fixes.processes.rewrite import in_processes
from xttsbench.shipped import shipped
from xttsbench.xtts.data.batches import Batch, plan
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.make import make_data
from xttsbench.xtts.data.precompute import precompute
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.loaders import CACHED, KEEPING, LOADERS
from xttsbench.xtts.loaders.loader import explained, make_dataset
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


def assert_same_bits(ours: list[Any], theirs: list[Any], *, rounded: str | None = None) -> None:
    """The same bits under each key, but for one under which floats may be ``rounded`` otherwise."""
    assert len(ours) == len(theirs) > 0
    for first, second in zip(ours, theirs, strict=True):
        assert first.keys() == second.keys()
        for key in first:
            tolerance = 1e-6 if key == rounded else 0.0
            np.testing.assert_allclose(first[key].numpy(), second[key].numpy(), rtol=tolerance, atol=tolerance)


def rounded_by(loader: str) -> str | None:
    """Key of floats that a loader makes of fewer frames where it keeps none: some processors round them otherwise."""
    return "reference" if loader == "tf_wav" else None


@pytest.mark.parametrize("loader", KEEPING)
def test_batches_are_the_same_bits_in_every_epoch(speech: Any, loader: str) -> None:
    batches = epochs(speech)
    assert len(batches) > EPOCHS
    assert batches[: len(batches) // EPOCHS] != batches[len(batches) // EPOCHS : 2 * len(batches) // EPOCHS]
    kept = list(dataset(speech, loader, batches, keep=True, workers=4))
    assert_same_bits(list(dataset(speech, loader, batches)), kept, rounded=rounded_by(loader))


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
    assert_same_bits(found, expected, rounded=rounded_by(loader))
    # What is kept belongs to the dataset, and a second iterator has it.
    del found, iterator
    gc.collect()
    assert_same_bits(list(made), expected, rounded=rounded_by(loader))


def test_without_it_the_files_are_needed(speech: Any) -> None:
    batches = epochs(speech)
    iterator = iter(dataset(speech, "numpy_wav", batches, workers=0, prefetch=0))
    next(iterator)
    shutil.rmtree(speech[0].directory / "wavs")
    with pytest.raises(tf.errors.OpError):
        list(iterator)


def test_packed_cannot_keep_what_the_system_keeps() -> None:
    assert set(LOADERS) - set(KEEPING) == {"packed"}


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


@pytest.fixture
def in_two_processes(noise: SpeechData) -> Iterator[Callable[..., Any]]:
    """Batches as ``--input-workers 2`` makes them; no process is left after the test."""
    before = {child.pid for child in psutil.Process().children()}
    of = (noise.samples // FEATURES.hop_samples, noise.text_lengths, noise.speakers, NOISE_SETTINGS)
    planned = [batch for epoch in range(2) for batch in plan(*of, seed=3, epoch=epoch)]

    def made(count: int = 2) -> Any:
        moved = partial(in_processes, count=count) if count else None
        return make_dataset("numpy_wav", noise, None, planned, FEATURES, repeat=False, workers=2, moved=moved)

    yield made
    deadline = time.monotonic() + 60  # where an element failed, TensorFlow may still be making another beside it
    while (left := {child.pid for child in psutil.Process().children()} - before) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
    assert not left


def test_the_elements_are_the_same_bits_in_the_same_order(in_two_processes: Callable[..., Any]) -> None:
    ours, theirs = in_two_processes(), in_two_processes(0)
    assert ours.element_spec == theirs.element_spec
    assert_same_bits(list(ours), list(theirs))


def test_processes_import_no_tensorflow(in_two_processes: Callable[..., Any]) -> None:
    before = {child.pid for child in psutil.Process().children()}
    dataset = in_two_processes()
    next(iter(dataset))
    own = {child.pid for child in psutil.Process().children()} - before
    assert len(own) == 2
    assert not any("_pywrap_tensorflow" in Path(f"/proc/{pid}/maps").read_text() for pid in own)


def test_a_bad_file_is_named(noise: SpeechData, in_two_processes: Callable[..., Any]) -> None:
    path = noise.wav(1)
    whole = path.read_bytes()
    dataset = in_two_processes()
    path.write_bytes(whole[:200])
    try:
        with pytest.raises(InvalidInputError) as caught, explained():
            list(dataset)
    finally:
        path.write_bytes(whole)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_process_that_cannot_live_is_a_sentence() -> None:
    message = "WorkerDiedError: The process that ran load ended during the call.\nTraceback (most recent"
    with (
        pytest.raises(XttsbenchError, match=r"^The process that ran load ended during the call\.$") as caught,
        explained(),
    ):
        raise tf.errors.UnknownError(None, None, message)
    assert type(caught.value) is XttsbenchError
