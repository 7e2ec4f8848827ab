"""Tokens that fit into memory: an upper line through peaks, and the bucket that needs most decides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.errors import InvalidInputError
from xttsbench.training.memory import Bucket, Line, Peak, ends, most_tokens, upper_line
from xttsbench.xtts.data.batches import plan
from xttsbench.xtts.recipe import BatchSettings

SHORT, LONG = Bucket(100, 20, 50), Bucket(400, 60, 50)
PEAKS = st.lists(
    st.builds(Peak, st.integers(1, 10**6), st.integers(0, 10**12)), min_size=2, max_size=8, unique_by=lambda p: p.tokens
)


def test_peaks_on_a_line_give_that_line() -> None:
    line = upper_line([Peak(tokens, 7000 + 13 * tokens) for tokens in (100, 900, 5000)])
    assert line == pytest.approx((7000, 13))
    assert line.at(1000) == pytest.approx(20_000)


@given(PEAKS)
def test_no_peak_is_above_the_line_and_more_tokens_never_need_less(peaks: list[Peak]) -> None:
    line = upper_line(peaks)
    assert line.bytes_per_token >= 0
    assert all(peak.bytes <= line.at(peak.tokens) * (1 + 1e-9) + 1 for peak in peaks)


def test_the_bucket_that_needs_most_decides() -> None:
    lines = {SHORT: Line(1000, 2), LONG: Line(1000, 5)}
    assert most_tokens(lines, 11_000, 10**6) == 2000
    assert most_tokens(lines, 11_000, 1500) == 1500
    assert most_tokens({SHORT: Line(1000, 9), LONG: Line(1000, 5)}, 11_000, 10**6) == 1111


@given(st.integers(0, 10**6), st.integers(0, 100), st.integers(10**5, 10**8), st.integers(1, 10**6))
def test_what_is_chosen_stays_within_the_limit(base: int, slope: int, limit: int, at_most: int) -> None:
    lines = {SHORT: Line(base, slope), LONG: Line(base, 2 * slope)}
    if any(line.at(bucket.frames) > limit for bucket, line in lines.items()):
        with pytest.raises(InvalidInputError):
            most_tokens(lines, limit, at_most)
        return
    tokens = most_tokens(lines, limit, at_most)
    assert tokens <= at_most
    assert all(line.at(bucket.rows(tokens) * bucket.frames) <= limit for bucket, line in lines.items())
    grown = tokens + max(SHORT.frames, LONG.frames)
    fits = all(line.at(bucket.rows(grown) * bucket.frames) <= limit for bucket, line in lines.items())
    assert tokens == at_most or not fits


def test_one_clip_of_the_longest_bucket_is_enough() -> None:
    assert most_tokens({LONG: Line(0, 10)}, 4100, 10**6) == 410
    with pytest.raises(InvalidInputError, match=r"single clip of 400 mel frames needs some 0 MiB.*checkpointing"):
        most_tokens({LONG: Line(0, 10)}, 3999, 10**6)


def test_the_ends_of_a_plan_are_its_shortest_and_longest_bucket() -> None:
    settings = BatchSettings(batch_size=2, frame_edges=(100, 200, 400), text_edges=(8, 16), reference_frames=30)
    frames, texts = np.array([90, 90, 150, 150, 300, 300]), np.array([5, 5, 12, 12, 12, 12])
    batches = plan(frames, texts, np.zeros(6, np.int32), settings, seed=0, epoch=0)
    assert ends(batches) == (Bucket(100, 8, 30), Bucket(400, 16, 30))
    assert ends(batches[:1]) == (Bucket(batches[0].frames, batches[0].characters, 30),)
