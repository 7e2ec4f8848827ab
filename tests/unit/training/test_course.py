"""Whether a run is on course: learning rates, steps left out, blow-ups, and the end of improvement."""

from __future__ import annotations

import hashlib
import math
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xttsbench.shipped import shipped
from xttsbench.training.course import (
    NONE,
    HealthState,
    Origin,
    Position,
    blown_up,
    consumed,
    data_sha256,
    differences,
    learning_rate,
    planned_from,
    skipping,
    with_parts,
)
from xttsbench.xtts.data.make import make_data
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.recipe import (
    HealthSettings,
    Recipe,
    ScheduleSettings,
    TrainingSettings,
    load_recipe,
)

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


def rates(steps: int = 20, highest: float = 2.0, **settings: object) -> list[float]:
    chosen = ScheduleSettings.model_validate(settings)
    return [learning_rate(chosen, highest, step, steps) for step in range(steps)]


@pytest.mark.parametrize("kind", ["constant", "noam", "cosine"])
def test_the_warm_up_is_a_line_to_the_highest_rate(kind: str) -> None:
    assert rates(kind=kind, warmup_steps=8)[:8] == pytest.approx([2.0 * n / 8 for n in range(1, 9)])


def test_without_a_schedule_the_rate_is_the_same_in_all_steps() -> None:
    assert rates(kind="constant") == [2.0] * 20
    assert rates(kind="constant", warmup_steps=3)[3:] == [2.0] * 17


def test_noam_falls_with_the_root_of_the_step() -> None:
    assert rates(kind="noam", warmup_steps=4) == pytest.approx(
        [2.0 * min(n / 4, math.sqrt(4 / n)) for n in range(1, 21)]
    )


@pytest.mark.parametrize("final_share", [0.0, 0.1, 1.0])
def test_the_cosine_goes_from_the_highest_rate_to_the_final_one(final_share: float) -> None:
    found = rates(kind="cosine", warmup_steps=4, final_share=final_share)
    assert found[3] == found[4] == 2.0
    assert found[12] == pytest.approx(2.0 * (1 + final_share) / 2)  # half of the 16 steps after the warm-up
    assert found[19] == pytest.approx(2.0 * (final_share + (1 - final_share) * (1 + math.cos(math.pi * 15 / 16)) / 2))
    assert found[4:] == sorted(found[4:], reverse=True)


def test_beyond_the_last_step_the_cosine_stays_at_its_end() -> None:
    settings = ScheduleSettings(kind="cosine", final_share=0.25)
    assert [learning_rate(settings, 2.0, step, 20) for step in (20, 1000)] == pytest.approx([0.5, 0.5])


def test_a_run_that_ends_with_its_warm_up_has_a_rate_in_each_step() -> None:
    assert rates(steps=4, kind="cosine", warmup_steps=4) == [0.5, 1.0, 1.5, 2.0]


SETTINGS = HealthSettings(skipped_in_a_row=3, blow_up=4)


@pytest.mark.parametrize(
    ("pieces", "is_too_many"),
    [
        (["1001"], False),
        (["10001"], True),
        (["0", "00"], True),
        (["00", "", "0"], True),
        (["00", "10", "01"], False),
        (["1", "0001111"], True),
    ],
)
def test_steps_left_out_count_in_a_row_however_they_are_fetched(pieces: list[str], is_too_many: bool) -> None:
    state = HealthState()
    for piece in pieces:
        state = state.after_steps([step == "1" for step in piece])
    assert (skipping(state, SETTINGS) is not None) == is_too_many


def test_a_loss_is_compared_with_the_lowest_before_it() -> None:
    state = HealthState()
    assert blown_up(state, SETTINGS, 1e9) is None
    for loss in (3.0, 2.0, None, 5.0):
        assert blown_up(state, SETTINGS, loss) is None
        state = state.after_interval(loss)
    assert state.lowest == 2.0
    assert blown_up(state, SETTINGS, 8.0) is None
    assert blown_up(state, SETTINGS, None) is None
    assert blown_up(state, SETTINGS, 8.1) == "the mean loss rose to 8.1, more than 4 times the lowest so far, 2"
