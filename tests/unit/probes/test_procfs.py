"""Parsing of hand-written lines of /proc."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.probes.procfs import Reads, parse_reads, parse_stat, thread_group

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def stat_line(name: str, state: str = "S") -> str:
    #     pid    name   state  ppid..flags      minflt cminflt majflt cmajflt utime stime cutime cstime prio nice
    return f"42 ({name}) {state} 1 42 42 0 -1 4194304 9000 8000 7 3 150 50 20 5 20 0 4 0 12345 999999 250 18446744 1 1"


def test_every_field_is_taken_from_its_own_place() -> None:
    stat = parse_stat(stat_line("python"))
    assert (stat.name, stat.ended) == ("python", False)
    assert stat.cpu_s == pytest.approx(200 * TICK_S)
    assert stat.reaped_cpu_s == pytest.approx(25 * TICK_S)
    assert stat.major_faults == 10
    assert stat.rss_bytes == 250 * PAGE


@pytest.mark.parametrize("name", ["a b", "x) S 9 (y", "(sd-pam)", ""])
def test_a_name_may_hold_spaces_and_parentheses(name: str) -> None:
    stat = parse_stat(stat_line(name))
    assert stat.name == name
    assert stat.rss_bytes == 250 * PAGE


def test_a_zombie_has_ended() -> None:
    assert parse_stat(stat_line("python", "Z")).ended


def test_bytes_from_storage_are_not_those_from_the_page_cache() -> None:
    text = "rchar: 900\nwchar: 1\nsyscr: 2\nsyscw: 3\nread_bytes: 4096\nwrite_bytes: 5\ncancelled_write_bytes: 0\n"
    assert parse_reads(text) == Reads(storage_bytes=4096, call_bytes=900, written_bytes=5)
    assert parse_reads("read_bytes: 1\n") == Reads(1, None, None)
    with pytest.raises(ValueError, match="read_bytes"):
        parse_reads("rchar: 900\n")


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("tf_Compute", "tf_Compute"),
        ("tf_data_private", "tf_data_private"),
        ("tf_data_12", "tf_data"),
        ("pool-1-thread-7", "pool-thread"),
        ("Thread-1 (run)", "Thread"),
        ("Thread-12 (work", "Thread"),
        ("python3.11", "python"),
        ("cuda00001400006", "cuda"),
        ("kworker/0:1", "kworker"),
        ("17", "unnamed"),
    ],
)
def test_numbering_is_no_part_of_a_group(name: str, group: str) -> None:
    assert thread_group(name) == group


@given(st.text(max_size=15), st.integers(min_value=0, max_value=10**6))
def test_a_group_is_stable(name: str, number: int) -> None:
    group = thread_group(name)
    assert group
    assert thread_group(group) == group
    if "(" not in name:
        assert thread_group(f"{name}-{number}") == group
