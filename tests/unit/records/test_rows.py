"""The columns of a step have one place: their names, their order and their meanings are those of the row."""

from __future__ import annotations

import os
import random
import struct

import numpy as np
import pytest

from xttsbench.analysis.steps import steps_of
from xttsbench.records import rows as row_memory
from xttsbench.records.rows import COLUMNS, RowMemory, Rows, SegmentRows, StepRow, absent
from xttsbench.records.trial import Segment


def test_the_columns_are_the_fields_of_the_row_in_their_order_with_a_meaning_each() -> None:
    assert tuple(COLUMNS) == StepRow._fields
    assert all(len(meaning) > 10 for meaning in COLUMNS.values())


def test_what_is_not_known_has_a_value_of_its_own() -> None:
    assert StepRow(5, 7) == StepRow(start_ns=5, wall_ns=7, batch=-1)
    assert (absent("batch"), absent("round"), absent("pause_ns"), absent("start_ns")) == (-1, 0, 0, 0)


def test_the_arrays_of_the_analysis_are_the_columns_whatever_those_are() -> None:
    in_seconds = [f"{name.removesuffix('_ns')}_s" if name.endswith("_ns") else name for name in COLUMNS]
    rows = [StepRow(*range(first, first + len(COLUMNS))) for first in (100, 200)]
    columns = {name: tuple(getattr(row, name) for row in rows) for name in COLUMNS}
    found = steps_of(Segment(name="as_is", columns=columns))
    assert list(found.columns) == in_seconds
    np.testing.assert_allclose(found.start_s, [0.0, 100e-9])
    for at, name in enumerate(COLUMNS):
        if name.endswith("_ns") and name != "start_ns":
            np.testing.assert_allclose(
                getattr(found, f"{name.removesuffix('_ns')}_s"), [(100 + at) / 1e9, (200 + at) / 1e9]
            )
        elif name != "start_ns":
            np.testing.assert_array_equal(getattr(found, name), [100 + at, 200 + at])


def made(rows: int = 8) -> tuple[bytearray, RowMemory]:
    block = bytearray(RowMemory.size_bytes(rows))
    return block, RowMemory(block)


def written(segment: SegmentRows, *starts: int) -> None:
    for start in starts:
        segment.append(StepRow(start, 10 * start, batch=start - 1))


def only(memory: RowMemory) -> Rows:
    (found,) = memory.read()
    return found


def test_rows_come_back_as_the_columns_of_a_segment_in_the_order_of_their_names() -> None:
    block, memory = made()
    segment = memory.segment("as_is")
    segment.append(StepRow(*range(1, len(COLUMNS) + 1)))
    written(segment, 5)
    found = only(RowMemory(block))  # as the other side makes it of the same bytes
    assert tuple(found.columns) == tuple(COLUMNS)
    assert [values[0] for values in found.columns.values()] == list(range(1, len(COLUMNS) + 1))
    assert (found.columns["start_ns"], found.columns["batch"]) == ((1, 5), (24, 4))
    assert Segment(name=found.name, columns=found.columns).steps == 2
    assert found.lost == 0


def test_segments_are_read_in_their_order_and_those_without_rows_are_none() -> None:
    block, memory = made()
    first, second = memory.segment("warm_up"), memory.segment("as_is")
    memory.segment("step_only").warmup(1)
    written(second, 1, 2)
    written(first, 3)
    second.warmup(1)
    other = RowMemory(block)
    assert [(one.name, one.columns["start_ns"], one.warmup_steps) for one in other.read()] == [
        ("warm_up", (3,), 0),
        ("as_is", (1, 2), 1),
    ]
    assert other.steps == 3


@pytest.mark.parametrize(("warmup", "kept"), [(1, 1), (2, 2), (50, 2), (-3, 0)])
def test_the_warm_up_is_no_longer_than_the_rows(warmup: int, kept: int) -> None:
    _, memory = made()
    segment = memory.segment("as_is")
    segment.warmup(warmup)
    written(segment, 1, 2)
    assert only(memory).warmup_steps == kept


def test_a_hidden_segment_is_read_once_it_is_shown_with_all_its_rows() -> None:
    _, memory = made()
    segment = memory.segment("as_is", hidden=True)
    written(segment, 1, 2)
    assert (memory.read(), memory.steps) == ([], 0)
    segment.show()
    assert only(memory).columns["start_ns"] == (1, 2)


def test_a_full_ring_keeps_the_newest_rows_and_says_how_many_are_lost() -> None:
    _, memory = made(rows=4)
    segment = memory.segment("as_is")
    segment.warmup(8)
    written(segment, *range(1, 11))
    found = only(memory)
    # The place of the oldest may be the one that is being written, so there is one row less than places.
    assert (found.columns["start_ns"], found.lost, found.warmup_steps) == ((8, 9, 10), 7, 1)
    assert memory.steps == 10


def test_what_is_known_later_is_added_to_a_row_as_long_as_it_is_there() -> None:
    _, memory = made(rows=4)
    segment = memory.segment("as_is")
    written(segment, *range(1, 7))
    segment.add_to(5, "xla_compiles", 2)
    segment.add_to(5, "xla_compiles", 1)
    segment.add_to(1, "xla_compiles", 9)  # its place is that of row 5
    segment.add_to(6, "xla_compiles", 9)  # not written yet
    assert (segment.get(5, "wall_ns"), segment.get(1, "wall_ns")) == (60, 0)
    assert only(memory).columns["xla_compiles"] == (0, 0, 3)


@pytest.mark.parametrize("before", [0, 3, 7, 8, 21])
def test_a_writer_that_ends_within_a_row_loses_that_row_and_no_other(before: int) -> None:
    """Every prefix of the bytes that writing one row changes, in their order: the row, then the count."""
    block, memory = made(rows=8)
    segment = memory.segment("as_is")
    written(segment, *range(1, before + 1))
    old = bytes(block)
    expected = only(memory).columns["start_ns"] if before else ()
    written(segment, before + 1)
    new = bytes(block)
    changed = [at for at in range(len(old)) if old[at] != new[at]]
    row_bytes, count_bytes = [at for at in changed if at >= 128], [at for at in changed if at < 128]
    for stop in range(len(row_bytes) + 1):
        torn = bytearray(old)
        for at in row_bytes[:stop]:
            torn[at] = new[at]
        found = RowMemory(torn).read()
        assert (found[0].columns["start_ns"] if found else ()) == expected
    assert count_bytes  # the count is one word, which is written as one
    assert only(memory).columns["start_ns"] == (*expected, before + 1)[-7:]


@pytest.mark.parametrize("word", range(5))
@pytest.mark.parametrize("value", [-1, 2**63 - 1, -(2**63), 2**40, 97, 3])
def test_an_absurd_header_neither_raises_nor_makes_up_rows(word: int, value: int) -> None:
    block, memory = made()
    written(memory.segment("as_is"), 1, 2, 3)
    written(memory.segment("step_only"), 4)
    struct.pack_into("@q", block, word * 8, value)
    found = RowMemory(block).read()
    assert found[-1].columns["start_ns"] == (4,)
    for one in found:
        assert set(one.columns.get("start_ns", ())) <= {1, 2, 3, 4}
    assert isinstance(RowMemory(block).steps, int)


def test_a_block_of_noise_is_no_rows() -> None:
    rng = random.Random(5)
    for _ in range(20):
        block = bytearray(rng.randbytes(RowMemory.size_bytes(8)))
        assert not any(one.columns for one in RowMemory(block).read())


def test_a_row_whose_number_is_not_the_promised_one_is_left_out() -> None:
    block, memory = made()
    written(memory.segment("as_is"), 1, 2, 3)
    at = block.index(struct.pack("@q", 20))  # the second row's wall time
    block[at - 8 : at - 8 + len(COLUMNS) * 8 + 8] = bytes(len(COLUMNS) * 8 + 8)
    assert (only(memory).columns["start_ns"], only(memory).lost) == ((1, 3), 1)


def test_too_many_segments_and_names_that_are_too_long_are_refused() -> None:
    _, memory = made()
    with pytest.raises(ValueError, match=r"segment 'a+': at most 32 fit, with names of at most 96 bytes"):
        memory.segment("a" * 97)
    for number in range(row_memory._SEGMENTS):
        memory.segment(f"{number}")
    with pytest.raises(ValueError, match="segment 'more'"):
        memory.segment("more")


def test_the_size_grows_with_the_rows_alone() -> None:
    assert RowMemory.size_bytes(2) - RowMemory.size_bytes(1) == 32 * 8 * (len(COLUMNS) + 1)
    assert RowMemory.size_bytes() < 2 * os.sysconf("SC_PAGE_SIZE") * 16_384
