"""The order of a run's batches, and hashes of what it consumed."""

from __future__ import annotations

import hashlib
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xttsbench.files import shipped
from xttsbench.training.order import (
    NONE,
    Origin,
    Position,
    consumed,
    data_sha256,
    differences,
    planned_from,
    with_parts,
)
from xttsbench.xtts.data.make import make_data
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.recipe import Recipe, TrainingSettings, load_recipe

TINY = load_recipe(shipped("training", "tiny"))


def recipe(accumulation: int = 1, **batches: Any) -> Recipe:
    changes = {"batch_size": 2, "frame_edges": (64, 128), **batches}
    return TINY.model_copy(
        update={
            "batches": TINY.batches.model_copy(update=changes),
            "training": TrainingSettings(accumulation=accumulation),
        }
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> SpeechData:
    directory = tmp_path_factory.mktemp("data") / "set"
    make_data(directory, 13, seed=3, min_s=0.3, max_s=1.4)
    return read_speech_data(directory, sample_rate_hz=22_050, split="all")


def test_from_any_position_the_rest_is_the_same(data: SpeechData) -> None:
    chosen = recipe()
    whole = list(islice(planned_from(data, chosen, chosen.batches, 4, Position()), 20))
    assert [position.step for position, _ in whole] == list(range(1, 21))
    assert {position.epoch for position, _ in whole} == {0, 1, 2, 3}
    for done, (position, _) in enumerate(whole[:-1], start=1):
        rest = list(islice(planned_from(data, chosen, chosen.batches, 4, position), 20 - done))
        assert rest == whole[done:]
    of_an_epoch = [batch for position, batch in whole[:6]]
    assert len(np.unique(np.concatenate([batch.clips for batch in of_an_epoch]))) == 12, "no clip twice"
    assert whole[5][0] == Position(step=6, epoch=1, batch=0)


def test_replicas_and_accumulation_count_by_their_product() -> None:
    assert with_parts(recipe(2), 3) == with_parts(recipe(3), 2) == with_parts(recipe(6), 1)
    assert with_parts(recipe(2), 3).parts == 6


def test_origins_differ_in_what_changes_a_run_and_in_nothing_else(data: SpeechData) -> None:
    def origin(chosen: Recipe, replicas: int = 1, **fields: Any) -> Origin:
        return Origin.of(chosen, data, **{"replicas": replicas, "precision": "float32", "seed": 0, **fields})

    here = origin(recipe(2))
    longer = recipe(2).model_copy(update={"training": TrainingSettings(accumulation=2, steps=9, log_every=7)})
    assert differences(origin(longer), here) == []
    assert differences(origin(recipe(1), 2), here) == []
    bigger = TINY.model.model_copy(update={"d_model": 128})
    assert differences(origin(recipe(2).model_copy(update={"model": bigger})), here) == [
        "model.d_model: 128 there, 96 here"
    ]
    assert differences(origin(recipe(1, batch_size=4)), here) == [
        "batches.batch_size: 4 there, 2 here",
        "batches.parts: 1 there, 2 here",
    ]
    part = Origin.of(recipe(2), data.subset(np.arange(12)), replicas=1, precision="tf32", seed=1)
    assert differences(part, here) == [
        "precision: tf32 there, float32 here",
        "seed: 1 there, 0 here",
        "data: another set, or its metadata changed",
    ]


def test_the_running_hash_is_a_chain() -> None:
    expected = hashlib.sha256(f"{NONE}\0a\0b".encode()).hexdigest()
    assert consumed(NONE, ["a", "b"]) == expected
    assert hashlib.sha256(b"").hexdigest() == NONE


def test_it_tells_order_batches_and_ids_apart() -> None:
    orders: list[Any] = [[["a", "b"]], [["b", "a"]], [["a"], ["b"]], [["ab"]], [["a", "b"], []], []]
    assert len({reduce(consumed, batches, NONE) for batches in orders}) == len(orders)


@pytest.fixture(scope="module")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> SpeechData:
    directory = tmp_path_factory.mktemp("small_data") / "set"
    make_data(directory, 5, seed=3, min_s=0.3, max_s=0.5)
    return read_speech_data(directory, sample_rate_hz=22_050, split="all")


def test_a_moved_data_set_is_the_same_and_another_text_or_clip_is_not(small_data: SpeechData, tmp_path: Path) -> None:
    moved = small_data.directory.rename(tmp_path / "moved")
    again = read_speech_data(moved, sample_rate_hz=22_050, split="all")
    assert data_sha256(again) == data_sha256(small_data)
    others = [again.subset(np.array(clips)) for clips in ([0, 1, 2, 3], [1, 0, 2, 3, 4])]
    metadata = moved / "metadata.csv"
    before, _, last = metadata.read_text().rpartition("|")
    metadata.write_text(f"{before}|so {last}")
    others.append(read_speech_data(moved, sample_rate_hz=22_050, split="all"))
    assert len({data_sha256(small_data), *map(data_sha256, others)}) == 4
    moved.rename(small_data.directory)
