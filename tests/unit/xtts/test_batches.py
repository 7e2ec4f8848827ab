"""The plan of batches: every clip at most once, in a bucket that holds it, and nothing lost but a last remainder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.batches import plan

EDGES = (256, 384, 512)


@given(
    lengths=st.lists(st.integers(1, EDGES[-1]), min_size=1, max_size=80),
    batch_size=st.integers(1, 9),
    seed=st.integers(0, 2**31),
)
def test_every_plan_is_whole(lengths: list[int], batch_size: int, seed: int) -> None:
    if len(lengths) < batch_size:
        with pytest.raises(InvalidInputError, match="fewer than one batch"):
            plan(lengths, EDGES, batch_size, seed)
        return
    batches = plan(lengths, EDGES, batch_size, seed)
    used = [clip for batch in batches for clip in batch.clips]
    assert len(used) == len(set(used)) == len(lengths) - len(lengths) % batch_size
    assert all(len(batch.clips) == batch_size and batch.frames in EDGES for batch in batches)
    assert all(lengths[clip] <= batch.frames for batch in batches for clip in batch.clips)
    assert plan(lengths, EDGES, batch_size, seed) == batches


def test_only_a_remainder_is_padded_further_than_its_own_bucket() -> None:
    lengths = [100] * 10 + [300] * 10 + [500] * 10
    batches = plan(lengths, EDGES, 4, 0)
    assert sorted(batch.frames for batch in batches) == [256, 256, 384, 384, 384, 512, 512]
    moved = sum(lengths[clip] <= 256 for batch in batches if batch.frames == 384 for clip in batch.clips)
    assert moved == 2


def test_an_edge_holds_a_clip_of_its_own_length() -> None:
    assert [batch.frames for batch in plan([256, 256], EDGES, 2, 0)] == [256]


def test_seeds_give_other_orders() -> None:
    lengths = list(range(100, 164))
    assert plan(lengths, EDGES, 8, 0) != plan(lengths, EDGES, 8, 1)


def test_a_clip_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="513 frames is longer than the last bucket, 512"):
        plan([513, 1], EDGES, 1, 0)
