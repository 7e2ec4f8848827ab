"""A token budget found by real steps fits, and half as much again does not; a step that dies is no end."""

from __future__ import annotations

import resource
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.errors import InvalidInputError, XttsbenchError
from xttsbench.shipped import shipped
from xttsbench.training.memory import (
    SHARE,
    Bucket,
    Line,
    Peak,
    Plan,
    ends,
    fit_tokens,
    fitted,
    measuring,
    most_tokens,
    upper_line,
)
from xttsbench.training.step import Shape
from xttsbench.xtts.data.batches import plan
from xttsbench.xtts.recipe import BatchSettings, load_recipe

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


RECIPE = load_recipe(shipped("training", "tiny"))
PLAN = Plan(RECIPE, "graph", "float32", "one")
BUCKET, LONGER = Bucket(256, 32, 64), Bucket(512, 64, 64)
MIB = 2**20


def shape(rows: int) -> Shape:
    return Shape(rows, BUCKET.frames, BUCKET.characters, BUCKET.reference_frames)


@pytest.mark.slow
def test_what_is_chosen_fits_and_half_as_much_again_does_not() -> None:
    with measuring(PLAN, int) as measure:
        known = measure(shape(32))
        assert known is not None
        assert 20 * MIB < known < 2**32
        limit_bytes = int(known / SHARE)
        fit = fitted(measure, [BUCKET], limit_bytes=limit_bytes, at_most=10_000)
        assert fit.peak_bytes <= fit.limit_bytes == limit_bytes
        rows = BUCKET.rows(fit.tokens_per_batch)
        assert 26 <= rows <= 38
        more = measure(shape(3 * rows // 2))
        assert more is None or more > limit_bytes


def test_where_memory_really_ends_it_is_one_sentence() -> None:
    no_more = partial(resource.setrlimit, resource.RLIMIT_AS, (2**20, 2**20))
    with pytest.raises(InvalidInputError, match="single clip of 256 mel frames ran out of memory; take a smaller"):
        fit_tokens(PLAN, [BUCKET], limit_bytes=2**33, at_most=1024, prepare=no_more)


class Device:
    """A device of 1000 bytes for each row of 256 frames, twice as much for one of 512, on top of a base."""

    def __init__(self, free_bytes: float, *, hidden_bytes: int = 0, hidden_from: int = 0) -> None:
        self.free_bytes, self.hidden_bytes, self.hidden_from = free_bytes, hidden_bytes, hidden_from
        self.asked: list[Shape] = []

    def __call__(self, asked: Shape) -> int | None:
        self.asked.append(asked)
        tokens = asked.rows * asked.frames
        needed = 5000 + 1000 * tokens // 256 + (self.hidden_bytes if tokens >= self.hidden_from else 0)
        return needed if needed <= self.free_bytes else None


def test_the_largest_is_found_without_going_beyond_it() -> None:
    device = Device(50_000)
    fit = fitted(device, [BUCKET, LONGER], limit_bytes=50_000, at_most=256 * 1000)
    assert 256 * 39 < fit.tokens_per_batch <= 256 * 40  # 0.9 of the limit, less the base
    assert 44_000 <= fit.peak_bytes <= 45_000
    assert max(asked.rows * asked.frames for asked in device.asked) <= fit.tokens_per_batch


def test_no_more_is_taken_than_is_wanted() -> None:
    assert fitted(Device(1e9), [BUCKET, LONGER], limit_bytes=10**9, at_most=2000).tokens_per_batch == 2000


def test_the_first_steps_get_smaller_until_they_fit() -> None:
    fit = fitted(Device(9000), [BUCKET], limit_bytes=10_000, at_most=256 * 1000)
    assert BUCKET.rows(fit.tokens_per_batch) == 4


def test_a_choice_that_proves_too_large_is_taken_back() -> None:
    device = Device(1e9, hidden_bytes=30_000, hidden_from=256 * 40)
    fit = fitted(device, [BUCKET], limit_bytes=70_000, at_most=256 * 70)
    assert fit.tokens_per_batch < 256 * 58  # what the line through the first steps promised
    assert fit.peak_bytes <= 70_000


def test_of_two_clips_that_do_not_fit_one_is_taken() -> None:
    fit = fitted(Device(6500), [BUCKET], limit_bytes=10_000, at_most=256 * 100)
    assert BUCKET.rows(fit.tokens_per_batch) == 1


def test_what_never_fits_ends() -> None:
    calls = iter([1000, 2000, 3000])
    with pytest.raises(XttsbenchError, match="no token budget was found"):
        fitted(lambda asked: next(calls, None), [BUCKET], limit_bytes=10**9, at_most=4096)


def test_a_step_that_fails_otherwise_is_said() -> None:
    with (
        measuring(PLAN._replace(precision="gone"), int) as measure,
        pytest.raises(XttsbenchError, match=r"failed while its memory was measured: .*'gone'"),
    ):
        measure(shape(1))
