"""Datasets whose batches are made in processes of their own: the same elements, so many ahead and no more, no hang."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

from xttsbench.errors import InvalidInputError, XttsbenchError
from xttsbench.samedata.tolerance import difference
from xttsbench.shipped import shipped
from xttsbench.xtts.audio.wav import write_wav
from xttsbench.xtts.data.batches import Batch, plan
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.loaders.loader import explained, make_dataset
from xttsbench.xtts.loaders.numpy_loaders import Arrays
from xttsbench.xtts.loaders.processes import InputProcesses
from xttsbench.xtts.recipe import BatchSettings, load_recipe

FEATURES = load_recipe(shipped("training", "tiny")).features
SETTINGS = BatchSettings(batch_size=2, frame_edges=(24, 40), text_edges=(16,), reference_frames=30)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> SpeechData:
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
    assert not multiprocessing.active_children()


def batches(data: SpeechData, epochs: int = 2) -> list[Batch]:
    of = (data.samples // FEATURES.hop_samples, data.text_lengths, data.speakers, SETTINGS)
    return [batch for epoch in range(epochs) for batch in plan(*of, seed=3, epoch=epoch)]


def dataset(data: SpeechData, planned: list[Batch], loader: str = "numpy_wav", **chosen: Any) -> Any:
    return make_dataset(loader, data, None, planned, FEATURES, **{"processes": 2, "repeat": False, **chosen})


def test_the_elements_are_the_same_bits_in_the_same_order(data: SpeechData) -> None:
    planned = batches(data)
    ours, theirs = dataset(data, planned), dataset(data, planned, processes=0)
    assert ours.element_spec == theirs.element_spec
    found = list(ours)  # all are held while others are made
    assert len(found) == len(planned)
    for number, (one, other) in enumerate(zip(found, theirs, strict=True)):
        assert difference(other, one, batch=number) is None
        np.testing.assert_array_equal(one["mel"], other["mel"])


@pytest.mark.parametrize("prefetch", [0, 3, -1])
def test_no_more_are_made_ahead_than_are_allowed(
    data: SpeechData, prefetch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    made = InputProcesses.__call__

    def noted(self: InputProcesses, number: int) -> Arrays:
        asked.append(number)
        return made(self, number)

    monkeypatch.setattr(InputProcesses, "__call__", noted)
    iterator = iter(dataset(data, batches(data, 20), prefetch=prefetch))
    for taken in range(1, 4):
        next(iterator)
        before = -1
        while before != len(asked):  # until nothing more is begun
            before = len(asked)
            time.sleep(0.3)
        assert len(asked) <= taken + 2 + (2 if prefetch < 0 else prefetch)
    assert sorted(asked) == list(range(len(asked)))  # by two threads, which may overtake each other


def test_a_bad_file_is_named(data: SpeechData) -> None:
    path = data.wav(1)
    whole = path.read_bytes()
    iterator = iter(dataset(data, batches(data, 1), repeat=True, prefetch=0))
    next(iterator)
    path.write_bytes(whole[:200])
    try:
        with pytest.raises(InvalidInputError) as caught, explained():
            list(islice(iterator, 20))
    finally:
        path.write_bytes(whole)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_killed_process_is_a_sentence_and_no_hang(data: SpeechData) -> None:
    iterator = iter(dataset(data, batches(data, 1), repeat=True, prefetch=0))
    next(iterator)
    for process in multiprocessing.active_children():
        os.kill(process.pid or 0, signal.SIGKILL)
    with pytest.raises(XttsbenchError) as caught, explained():
        list(islice(iterator, 20))
    assert type(caught.value) is XttsbenchError
    assert str(caught.value).startswith("one of 2 processes that make batches died")


def test_they_end_with_the_dataset(data: SpeechData) -> None:
    made = dataset(data, batches(data))
    iterator = iter(made)
    next(iterator)
    assert len(multiprocessing.active_children()) == 2
    del made, iterator
    gc.collect()
    deadline = time.monotonic() + 20
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
def test_what_cannot_be_is_refused(data: SpeechData, chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        dataset(data, batches(data), **chosen)
