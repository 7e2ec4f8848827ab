"""Planned batches: shapes, order, references, parts, and the counts of their losses."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.errors import InvalidInputError
from xttsbench.shipped import shipped
from xttsbench.xtts.data.batches import Batch, LossCounts, loss_counts, padding_efficiency, plan, split
from xttsbench.xtts.recipe import BatchSettings, load_recipe

EDGES, TEXT_EDGES = (256, 384, 512), (16, 32, 64)
TINY_EDGES = (256, 384, 512, 640, 768, 896)


def settings(**changes: Any) -> BatchSettings:
    size = {} if "tokens_per_batch" in changes else {"batch_size": 4}
    return BatchSettings(**{**size, "frame_edges": EDGES, "text_edges": TEXT_EDGES, "reference_frames": 100, **changes})


def make(frames: Any, chosen: BatchSettings, texts: Any = None, speakers: Any = None, **other: Any) -> list[Batch]:
    frames = np.asarray(frames)
    texts = np.full(len(frames), 10) if texts is None else np.asarray(texts)
    speakers = np.zeros(len(frames), np.int32) if speakers is None else np.asarray(speakers)
    return plan(frames, texts, speakers, chosen, **{"seed": 0, "epoch": 0, **other})[:]


@st.composite
def data_sets(draw: st.DrawFn) -> dict[str, Any]:
    n = draw(st.integers(1, 80))
    several = st.lists(st.integers(1, EDGES[-1]), min_size=n, max_size=n)
    return {
        "frames": draw(several),
        "texts": draw(st.lists(st.integers(1, TEXT_EDGES[-1]), min_size=n, max_size=n)),
        "speakers": draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)),
    }


@given(
    clips=data_sets(),
    size=st.one_of(
        st.builds(lambda n: {"batch_size": n}, st.integers(1, 9)),
        st.builds(lambda n: {"tokens_per_batch": n}, st.integers(1, 3000)),
    ),
    bucketing=st.booleans(),
    seed=st.integers(0, 2**31),
    epoch=st.integers(0, 5),
)
def test_every_plan_is_whole(clips: dict[str, Any], size: Any, bucketing: bool, seed: int, epoch: int) -> None:
    chosen = settings(**size, bucketing=bucketing)
    frames, texts, speakers = (np.asarray(clips[key]) for key in ("frames", "texts", "speakers"))
    longest = min(edge for edge in EDGES if edge >= frames.max())
    if len(frames) < chosen.rows(longest):
        with pytest.raises(InvalidInputError, match="fewer than one batch"):
            make(frames, chosen, texts, speakers, seed=seed, epoch=epoch)
        return
    batches = make(frames, chosen, texts, speakers, seed=seed, epoch=epoch)
    used = np.concatenate([batch.clips for batch in batches])
    assert len(used) == len(set(used.tolist()))
    assert len(frames) - len(used) < chosen.rows(longest)
    edges_of_texts: dict[int, int] = {}
    for batch in batches:
        assert len(batch.clips) == chosen.rows(batch.frames)
        assert batch.frames in (EDGES if bucketing else (longest,))
        assert frames[batch.clips].max() <= batch.frames <= longest
        assert texts[batch.clips].max() <= batch.characters
        assert edges_of_texts.setdefault(batch.frames, batch.characters) == batch.characters  # a shape per bucket
        assert (speakers[batch.references] == speakers[batch.clips]).all()
        alone = np.bincount(speakers)[speakers[batch.clips]] == 1
        assert ((batch.references == batch.clips) == alone).all()
        spare = np.maximum(frames[batch.references] - 100, 0)
        assert ((batch.reference_starts >= 0) & (batch.reference_starts <= spare)).all()
    assert make(frames, chosen, texts, speakers, seed=seed, epoch=epoch) == batches


def test_only_a_remainder_is_padded_further_than_its_own_bucket() -> None:
    frames = np.asarray([100] * 10 + [300] * 10 + [500] * 10)
    batches = make(frames, settings())
    assert sorted(batch.frames for batch in batches) == [256, 256, 384, 384, 384, 512, 512]
    moved = sum((frames[batch.clips] <= 256).sum() for batch in batches if batch.frames == 384)
    assert moved == 2


def test_a_budget_makes_batches_of_short_clips_larger() -> None:
    batches = make([200] * 20 + [500] * 20, settings(tokens_per_batch=1024 + 511))
    assert {batch.frames: len(batch.clips) for batch in batches} == {256: 5, 512: 2}
    one_by_one = make([500] * 3, settings(tokens_per_batch=100))
    assert [len(batch.clips) for batch in one_by_one] == [1, 1, 1]


def test_the_text_edge_of_a_bucket_does_not_depend_on_what_moves_into_it() -> None:
    # Six short clips with long texts: two of them move, other ones in every epoch.
    for epoch in range(5):
        batches = make([100] * 6 + [300] * 6, settings(), texts=[60] * 6 + [10] * 6, epoch=epoch)
        assert {(batch.frames, batch.characters) for batch in batches} == {(256, 64), (384, 64)}


@pytest.mark.parametrize(
    ("clips", "chosen", "seed", "epoch", "expected"),
    [
        (1000, {"batch_size": 4}, 0, 0, "08dedab57a82afa9"),
        (500, {"batch_size": 7, "bucketing": False}, 3, 2, "73556f4b74dd6b0f"),
        (2000, {"tokens_per_batch": 3000}, 1, 1, "90a6161d66fd4a6d"),
    ],
)
def test_an_order_is_the_one_that_checkpoints_were_made_in(
    clips: int, chosen: Any, seed: int, epoch: int, expected: str
) -> None:
    rng = np.random.default_rng(clips)
    frames, texts, speakers = (rng.integers(low, high, clips) for low, high in ((1, 513), (1, 65), (0, 5)))
    sha = hashlib.sha256()
    for batch in make(frames, settings(**chosen), texts, speakers, seed=seed, epoch=epoch):
        for column in (batch.clips, batch.references, batch.reference_starts):
            sha.update(column.astype("<i4").tobytes())
        sha.update(repr((batch.frames, batch.characters, batch.reference_frames)).encode())
    assert sha.hexdigest()[:16] == expected


def test_a_plan_is_a_sequence_of_its_batches() -> None:
    frames = np.arange(1, 512)
    planned = plan(frames, np.full(511, 10), np.zeros(511, np.int32), settings(), seed=0, epoch=0)
    every = list(planned)
    assert len(every) == len(planned) == 127
    assert [planned[0], planned[-1]] == [every[0], every[-1]]
    assert planned[3:6] == every[3:6]
    with pytest.raises(IndexError):
        planned[127]
    assert sorted(batch.frames for batch in planned.one_of_each_shape()) == [256, 384, 512]


def test_seeds_and_epochs_give_other_orders_and_other_references() -> None:
    frames = np.arange(100, 228)
    plans = [make(frames, settings(), seed=seed, epoch=epoch) for seed in (0, 1) for epoch in (0, 1)]
    for column in ("clips", "references", "reference_starts"):
        rows = {tuple(np.concatenate([getattr(batch, column) for batch in batches])) for batches in plans}
        assert len(rows) == 4
    first, again = (make(frames, settings(), epoch=0) for _ in range(2))
    assert first == again
    assert first[0] != first[1]
    assert first[0] != "a batch"


def test_buckets_waste_little_and_padding_to_the_longest_much() -> None:
    rng = np.random.default_rng(0)
    frames = (rng.uniform(1, 10, 13_100) * 22_050).astype(int) // 256
    bucketed = make(frames, settings(batch_size=16, frame_edges=TINY_EDGES))
    assert padding_efficiency(bucketed, frames) >= 0.85
    assert sum(len(batch.clips) for batch in bucketed) > 0.998 * len(frames)
    assert len({(batch.frames, batch.characters) for batch in bucketed}) == len(TINY_EDGES)
    padded = make(frames, settings(batch_size=16, frame_edges=TINY_EDGES, bucketing=False))
    assert 0.45 < padding_efficiency(padded, frames) < 0.65
    # As long as LJSpeech's clips, which are rarely short: 1 to 10 s with a mean of 6.6.
    spoken = (np.clip(rng.normal(6.6, 2.2, 13_100), 1.1, 10.1) * 22_050).astype(int) // 256
    assert padding_efficiency(make(spoken, settings(batch_size=16, frame_edges=TINY_EDGES)), spoken) >= 0.88


@pytest.mark.parametrize(
    ("frames", "texts", "message"),
    [
        ([100, 513, 1, 600], [9, 9, 9, 9], r"clip-1' has 513 mel frames, more than the last edge, 512 \(2 of 4"),
        ([100, 100, 1, 1], [9, 9, 65, 9], r"clip-2' has 65 characters, more than the last edge, 64 \(1 of 4"),
    ],
)
def test_clips_that_are_too_long_are_refused_by_name_or_skipped(frames: Any, texts: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make(frames, settings(), texts, name=lambda clip: f"clip-{clip}")
    with pytest.raises(InvalidInputError, match=r"^clip [12] has"):
        make(frames, settings(), texts)
    (batch,) = make(frames, settings(batch_size=2, too_long="skip"), texts)
    fits = np.flatnonzero((np.asarray(frames) <= 512) & (np.asarray(texts) <= 64))
    assert set(batch.clips) | set(batch.references) <= set(fits)


def test_what_gives_no_batch_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="3 clips are fewer than one batch of 4"):
        make([100] * 3, settings())
    with pytest.raises(InvalidInputError, match="none of 2 clips is left"):
        make([600, 600], settings(too_long="skip"))
    with pytest.raises(InvalidInputError, match="none of 0 clips is left"):
        make([], settings())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frame_edges": (384, 256)}, "frame_edges must be positive and rise"),
        ({"text_edges": (32, 32)}, "text_edges must be positive and rise"),
        ({"batch_size": 4, "tokens_per_batch": 100}, "either batch_size or tokens_per_batch .* got 4 and 100"),
        ({"batch_size": None}, "either batch_size or tokens_per_batch .* got None and None"),
        ({"too_long": "cut"}, "'refuse' or 'skip'"),
        ({"reference_frames": 0}, "greater than 0"),
    ],
)
def test_settings_that_contradict_themselves(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(**changes)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_parts_are_consecutive_rows_of_equal_number(parts: int) -> None:
    (batch,) = make([100, 90, 80, 70], settings())
    found = split(batch, parts)
    assert [len(part.clips) for part in found] == [4 // parts] * parts
    for column in ("clips", "references", "reference_starts"):
        np.testing.assert_array_equal(np.concatenate([getattr(part, column) for part in found]), getattr(batch, column))
    sizes = {(part.frames, part.characters, part.reference_frames) for part in found}
    assert sizes == {(batch.frames, batch.characters, batch.reference_frames)}


MODEL = load_recipe(shipped("training", "tiny")).model


def batch(clips: list[int], references: list[int], starts: list[int], reference_frames: int = 8) -> Batch:
    columns = [np.array(column, np.int32) for column in (clips, references, starts)]
    return Batch(columns[0], columns[1], columns[2], 32, 16, reference_frames)


def test_only_a_reference_of_the_clip_itself_hides_frames() -> None:
    frames, characters = np.array([18, 13, 20]), np.array([7, 4, 9])
    # The first shows another clip, the second its own frames 2 to 9, the third its own from 15 on, of which 5 are real.
    found = loss_counts(batch([0, 1, 2], [1, 1, 2], [2, 2, 15]), frames, characters, MODEL)
    assert found == LossCounts(mel=18 + (13 - 8) + (20 - 5), stop=5 + 4 + 5, guided=5 * 7 + 4 * 4 + 5 * 9)


def test_a_batch_that_its_references_show_whole_counts_one_frame() -> None:
    assert loss_counts(batch([0], [0], [0]), np.array([6]), np.array([3]), MODEL) == LossCounts(1.0, 2.0, 6.0)


@st.composite
def planned(draw: st.DrawFn) -> tuple[Batch, np.ndarray, np.ndarray]:
    clips = draw(st.integers(2, 12))
    frames = np.array(draw(st.lists(st.integers(1, 32), min_size=clips, max_size=clips)))
    characters = np.array(draw(st.lists(st.integers(1, 16), min_size=clips, max_size=clips)))
    references = [clip if draw(st.booleans()) else (clip + 1) % clips for clip in range(clips)]
    starts = [draw(st.integers(0, max(int(frames[reference]) - 8, 0))) for reference in references]
    return batch(list(range(clips)), references, starts), frames, characters


@given(planned())
def test_each_frame_and_pair_is_counted_once(given_batch: tuple[Batch, np.ndarray, np.ndarray]) -> None:
    rows, frames, characters = given_batch
    target = steps = pairs = 0
    for clip, reference, start in zip(rows.clips, rows.references, rows.reference_starts, strict=True):
        hidden = range(start, start + 8) if clip == reference else range(0)
        target += sum(frame not in hidden for frame in range(frames[clip]))
        own = len(range(0, frames[clip], MODEL.frames_per_step))
        steps += own
        pairs += own * characters[clip]
    assert loss_counts(rows, frames, characters, MODEL) == LossCounts(max(target, 1), steps, pairs)
