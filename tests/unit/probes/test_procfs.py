"""Parsing of hand-written lines of /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.probes.procfs import (
    Reads,
    cpu_allowance,
    memory_limit_bytes,
    memory_limit_left_bytes,
    obtainable_bytes,
    parse_reads,
    parse_stat,
    thread_group,
    throttled_s,
)

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
    assert parse_reads(text) == Reads(storage_bytes=4096, call_bytes=900)
    assert parse_reads("read_bytes: 1\n") == Reads(1, None)
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


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


CGROUP = "proc/self/cgroup"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({CGROUP: "0::/", "sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
        ({CGROUP: "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, None),
        # The tightest of the group and its ancestors holds, wherever it stands.
        (
            {
                CGROUP: "0::/kubepods/pod1/box",
                "sys/fs/cgroup/kubepods/pod1/box/cpu.max": "max 100000",
                "sys/fs/cgroup/kubepods/pod1/cpu.max": "50000 100000",
                "sys/fs/cgroup/kubepods/cpu.max": "400000 100000",
            },
            0.5,
        ),
        # A sibling's quota is not ours.
        (
            {
                CGROUP: "0::/a",
                "sys/fs/cgroup/a/cpu.max": "max 100000",
                "sys/fs/cgroup/b/cpu.max": "10000 100000",
            },
            None,
        ),
        # Hybrid layout: version 2 below unified/, the processor controller still in version 1.
        (
            {
                CGROUP: "3:cpu,cpuacct:/job\n0::/",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "75000",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "50000",
            },
            1.5,
        ),
        # The group is known by the host's path, while only its own directory is mounted.
        (
            {
                CGROUP: "2:cpu:/docker/0123",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            2.0,
        ),
        ({CGROUP: "0::/../../other", "sys/fs/cgroup/cpu.max": "300000 100000"}, 3.0),
        (
            {CGROUP: "1:cpu:/", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "9"},
            None,
        ),
        ({CGROUP: "0::/", "sys/fs/cgroup/cpu.max": "rubbish"}, None),
        ({}, None),
    ],
)
def test_the_tightest_processor_quota_is_found(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    allowance = cpu_allowance(tree(tmp_path, files))
    assert allowance.quota_cpus == quota
    assert allowance.affinity_cpus == len(os.sched_getaffinity(0))
    assert allowance.machine_cpus == os.cpu_count()
    expected = allowance.affinity_cpus if quota is None else min(quota, allowance.affinity_cpus)
    assert allowance.allowed_cpus == expected


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({CGROUP: "0::/a/b", "sys/fs/cgroup/a/b/memory.max": "max", "sys/fs/cgroup/a/memory.max": "4096"}, 4096),
        ({CGROUP: "0::/", "sys/fs/cgroup/memory.max": "max"}, None),
        ({CGROUP: "4:memory:/x", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "1073741824"}, 1 << 30),
        ({CGROUP: "4:memory:/", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, None),
        ({}, None),
    ],
)
def test_the_tightest_memory_limit_is_found(tmp_path: Path, files: dict[str, str], limit: int | None) -> None:
    assert memory_limit_bytes(tree(tmp_path, files)) == limit


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({"memory.max": "1000", "memory.current": "700"}, 300),
        ({"memory.max": "1000", "memory.current": "700", "memory.stat": "anon 400\ninactive_file 200"}, 500),
        ({"memory.max": "1000", "memory.current": "1200"}, 0),
        ({"memory.max": "max", "memory.current": "700"}, None),
        ({"memory.max": "1000"}, None),
        ({"memory.limit_in_bytes": "1000", "memory.usage_in_bytes": "100"}, 900),
        ({"memory.limit_in_bytes": str(1 << 62), "memory.usage_in_bytes": "100"}, None),
    ],
)
def test_what_is_left_of_the_memory_limit(tmp_path: Path, files: dict[str, str], left: int | None) -> None:
    placed = {f"sys/fs/cgroup/box/{name}": text for name, text in files.items()}
    assert memory_limit_left_bytes(tree(tmp_path, {CGROUP: "0::/box", **placed})) == left


@pytest.mark.parametrize(("limited", "obtainable"), [(None, 8_000), (5_000, 5_000), (9_000, 8_000)])
def test_memory_is_the_machine_s_or_what_the_limit_leaves(monkeypatch, limited, obtainable) -> None:
    class Memory:
        available = 8_000

    monkeypatch.setattr("xttsbench.probes.procfs.psutil.virtual_memory", Memory)
    monkeypatch.setattr("xttsbench.probes.procfs.memory_limit_left_bytes", lambda: limited)
    assert obtainable_bytes() == obtainable


@pytest.mark.parametrize(
    ("files", "stopped_s"),
    [
        ({"cpu.max": "50000 100000", "cpu.stat": "usage_usec 9\nnr_throttled 4\nthrottled_usec 2500000"}, 2.5),
        ({"cpu.max": "max 100000", "cpu.stat": "throttled_usec 2500000"}, None),
        ({"cpu.max": "50000 100000"}, None),
        ({"cpu.max": "50000 100000", "cpu.stat": "usage_usec 9"}, None),
    ],
)
def test_time_that_the_quota_took(tmp_path: Path, files: dict[str, str], stopped_s: float | None) -> None:
    placed = {f"sys/fs/cgroup/box/{name}": text for name, text in files.items()}
    assert throttled_s(tree(tmp_path, {CGROUP: "0::/box", **placed})) == stopped_s


def test_time_that_a_quota_of_version_1_took(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/cpu/job"
    files = {f"{group}/cpu.cfs_quota_us": "50000", f"{group}/cpu.cfs_period_us": "100000"}
    files |= {CGROUP: "3:cpu:/job", f"{group}/cpu.stat": "nr_periods 5\nthrottled_time 1500000000"}
    assert throttled_s(tree(tmp_path, files)) == pytest.approx(1.5)
