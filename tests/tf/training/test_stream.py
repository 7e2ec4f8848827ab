"""The stream of batches: parts for each replica, in one order from any position on, and what goes wrong in between."""

from __future__ import annotations

import shutil
import threading
import time
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from xttsbench.errors import InvalidInputError
from xttsbench.shipped import shipped
from xttsbench.training.course import Position, with_parts
from xttsbench.training.stream import Loading, ahead, batch_stream, shapes
from xttsbench.xtts.data.batches import loss_counts, plan
from xttsbench.xtts.data.make import make_data
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.recipe import Recipe, TrainingSettings, load_recipe

TINY = load_recipe(shipped("training", "tiny"))


def recipe(accumulation: int = 1, batch_size: int = 4, steps: int = 30) -> Recipe:
    batches = {"batch_size": batch_size, "frame_edges": (64, 128), "reference_frames": 32}
    return TINY.model_copy(
        update={
            "batches": TINY.batches.model_copy(update=batches),
            "training": TrainingSettings(accumulation=accumulation, steps=steps),
        }
    )


def replicas(count: int = 1, local: int | None = None, first: int = 0) -> Any:
    return SimpleNamespace(count=count, local=("/CPU:0",) * (local or count), first_local=first)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data") / "set"
    make_data(directory, 22, seed=3, min_s=0.3, max_s=1.4)
    return directory


@pytest.fixture(scope="module")
def data(made: Path) -> SpeechData:
    return read_speech_data(made, sample_rate_hz=22_050, split="all")


def stream(data: SpeechData, chosen: Recipe, places: Any, position: Position | None = None, **loading: Any) -> Any:
    rows = {"stretch_rows": loading.pop("stretch_rows")} if "stretch_rows" in loading else {}
    how = Loading(loader="numpy_wav", **loading)
    return batch_stream(data, None, chosen, how, places, seed=5, position=position or Position(), **rows)


def rows_of(fetched: Any, key: str) -> np.ndarray:
    """A column of the global batch, put together from its parts in their order."""
    return np.concatenate([batch[key].numpy() for batches in fetched.micro_batches for batch in batches])


@pytest.mark.parametrize(("count", "accumulation"), [(1, 1), (2, 1), (1, 2), (2, 2), (1, 4)])
def test_parts_make_up_the_planned_batch(data: SpeechData, count: int, accumulation: int) -> None:
    chosen = recipe(accumulation, 4 // (count * accumulation))
    found = list(islice(stream(data, chosen, replicas(count)), 7))
    expected = list(islice(stream(data, recipe(), replicas()), 7))
    frames = data.samples // TINY.features.hop_samples
    settings = with_parts(chosen, count)
    first = plan(frames, data.text_lengths, data.speakers, settings, seed=5, epoch=0)
    for number, (batch, whole) in enumerate(zip(found, expected, strict=True)):
        assert [len(batches) for batches in batch.micro_batches] == [count] * accumulation
        for key in whole.micro_batches[0][0]:
            np.testing.assert_array_equal(rows_of(batch, key), whole.micro_batches[0][0][key].numpy(), strict=True)
        assert batch.batch == whole.batch
        assert batch.ids == whole.ids == tuple(data.id(clip) for clip in rows_of(batch, "id"))
        assert batch.counts == whole.counts == loss_counts(whole.batch, frames, data.text_lengths, TINY.model)
        assert (batch.position, batch.samples) == (whole.position, 4)
        assert batch.frames == 4 * batch.batch.frames
        assert batch.valid_frames == rows_of(batch, "mel_length").sum()
        if number < len(first):
            assert batch.batch == first[number]
    assert [batch.position.step for batch in found] == list(range(1, 8))
    assert found[-1].position.epoch == 7 // len(first)


def test_each_process_makes_its_own_parts(data: SpeechData) -> None:
    chosen = recipe(accumulation=2, batch_size=1)
    everything = list(islice(stream(data, chosen, replicas(4)), 3))
    for first in (0, 2):
        mine = islice(stream(data, chosen, replicas(4, local=2, first=first)), 3)
        for batch, whole in zip(mine, everything, strict=True):
            assert batch.ids == whole.ids
            for own, of_all in zip(batch.micro_batches, whole.micro_batches, strict=True):
                for place, part in enumerate(own):
                    np.testing.assert_array_equal(part["id"], of_all[first + place]["id"])


@pytest.mark.parametrize("loading", [{}, {"stretch_rows": 9}, {"overlap": False}, {"keep": True}, {"workers": 3}])
def test_from_any_position_the_batches_are_the_same(data: SpeechData, loading: dict[str, Any]) -> None:
    whole = list(islice(stream(data, recipe(), replicas()), 12))
    for done in (0, 3, 5, 11):
        position = whole[done - 1].position if done else Position()
        rest = list(islice(stream(data, recipe(), replicas(), position, **loading), 12 - done))
        assert [batch.position for batch in rest] == [batch.position for batch in whole[done:]]
        for batch, expected in zip(rest, whole[done:], strict=True):
            for key in ("id", "mel", "reference", "reference_start", "text"):
                np.testing.assert_array_equal(rows_of(batch, key), rows_of(expected, key))


def test_it_goes_on_after_the_last_step(data: SpeechData) -> None:
    found = list(islice(stream(data, recipe(steps=2), replicas()), 5))
    assert [batch.position.step for batch in found] == [1, 2, 3, 4, 5]


def test_without_overlap_nothing_is_made_ahead(made: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(made, tmp_path / "set")
    batches = stream(read_speech_data(copied, sample_rate_hz=22_050, split="all"), recipe(), replicas(), overlap=False)
    next(batches)
    time.sleep(0.2)  # long enough for a batch that is made ahead
    shutil.rmtree(copied)
    with pytest.raises(InvalidInputError, match=r"\.wav"):
        next(batches)


@pytest.mark.parametrize("loader", ["numpy_wav", "tf_wav"])
@pytest.mark.parametrize("harm", ["cut", "gone"])
def test_a_clip_that_is_harmed_while_training_is_named(made: Path, tmp_path: Path, loader: str, harm: str) -> None:
    copied = shutil.copytree(made, tmp_path / "set")
    data = read_speech_data(copied, sample_rate_hz=22_050, split="all")
    how = Loading(loader=loader, overlap=False)
    batches = batch_stream(data, None, recipe(), how, replicas(), seed=5, position=Position())
    upcoming = list(islice(stream(data, recipe(), replicas()), 3))
    harmed = copied / "wavs" / f"{upcoming[2].ids[1]}.wav"
    next(batches)
    if harm == "cut":
        harmed.write_bytes(harmed.read_bytes()[:1000])
    else:
        harmed.unlink()
    with pytest.raises(InvalidInputError, match=harmed.name) as error:
        list(islice(batches, 4))
    assert str(harmed) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_shapes_of_all_epochs_are_known_before(data: SpeechData, seed: int) -> None:
    chosen, places = recipe(accumulation=2, batch_size=1), replicas(2)
    known = shapes(data, chosen, places)
    assert [shape.frames for shape in known] == sorted((shape.frames for shape in known), reverse=True)
    how = Loading(loader="numpy_wav")
    batches = batch_stream(data, None, chosen, how, places, seed=seed, position=Position())
    met = set()
    for fetched in islice(batches, 12):
        for part in [part for parts in fetched.micro_batches for part in parts]:
            rows, frames, _ = part["mel"].shape
            met.add((rows, frames, part["text"].shape[1], part["reference"].shape[1]))
    assert met == set(known)


def test_the_order_is_the_source_s_and_it_ends_after_the_count():
    asked = []

    def source():
        for number in count():
            asked.append(number)
            yield number

    assert list(ahead(source(), 5)) == [0, 1, 2, 3, 4]
    assert asked == [0, 1, 2, 3, 4]


def test_one_item_is_taken_while_another_is_used_and_not_two():
    taken = threading.Semaphore(0)
    asked = []

    def source():
        for number in count():
            asked.append(number)
            taken.release()
            yield number

    items = ahead(source(), 10)
    assert taken.acquire(timeout=10)  # the first, before anything was asked for
    assert next(items) == 0
    assert taken.acquire(timeout=10)  # the second, while the first is used
    assert not taken.acquire(timeout=0.1)
    assert asked == [0, 1]


def test_an_error_comes_in_its_place_and_ends_it():
    def source():
        yield 1
        raise OSError("the disk is gone")

    items = ahead(source(), 5)
    assert next(items) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(items)
    with pytest.raises(StopIteration):
        next(items)


def test_nothing_is_asked_for_where_nothing_is_wanted():
    assert list(ahead(iter([1]), 0)) == []
