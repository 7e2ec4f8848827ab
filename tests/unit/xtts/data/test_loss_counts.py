"""The counts of a planned batch: frame by frame and pair by pair, and the sum over parts."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.shipped import shipped
from xttsbench.xtts.data.batches import Batch
from xttsbench.xtts.data.loss_counts import LossCounts, loss_counts
from xttsbench.xtts.recipe import load_recipe

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
