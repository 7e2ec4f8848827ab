"""Streams and threads of hand-built windows: each moment beside a count of the moments themselves."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.analysis.gpu import DeviceTrace, WindowTrace, activity_of, answer, partition, read
from xttsbench.analysis.readings import intervals, total
from xttsbench.records.readings import CAUSES, COPIES, WORK, Work

MS = 1_000_000
Event = tuple[Work, int, int]


def device(index: int, *events: Event) -> DeviceTrace:
    """Kind, start and end in nanoseconds of each event."""
    return DeviceTrace(
        index=index,
        rows=intervals([start for _, start, _ in events], [end for _, _, end in events]),
        work=np.array([WORK.index(kind) for kind, _, _ in events], dtype=np.int64),
    )


def steps(count: int, length: int = 10 * MS):
    return intervals([n * length for n in range(count)], [(n + 1) * length for n in range(count)])


def test_a_gpu_that_waits_for_its_input_and_copies_alone() -> None:
    events: list[Event] = [
        ("to_device", 4 * MS, 5 * MS),
        ("kernel", 5 * MS, 8 * MS),
        ("kernel", 6 * MS, 7 * MS),  # beside the other, on a stream of its own
        ("from_device", 7 * MS, 9 * MS),
    ]
    host = {"input": intervals([0], [4 * MS]), "dispatch": intervals([2 * MS], [6 * MS])}
    found = activity_of(WindowTrace(steps(1), [device(0, *events)], host, offset_ns=100))
    (gpu,) = found.devices
    assert (gpu.kernel_s, gpu.copy_s, gpu.copy_alone_s, gpu.idle_s) == (3e-3, 3e-3, 2e-3, 5e-3)
    assert {cause: time for cause, time in gpu.idle_by_cause_s.items() if time} == {"input": 4e-3, "host": 1e-3}
    assert gpu.kernels == 2
    assert [(gap.start_ns, gap.duration_s, gap.cause) for gap in gpu.longest_gaps] == [
        (100, 4e-3, "input"),
        (100 + 9 * MS, 1e-3, "host"),
    ]
    assert found.host_s == {"compile": 0, "saving": 0, "input": 4e-3, "sync": 0, "dispatch": 2e-3, "host": 4e-3}
    assert (found.steps, found.step_s, found.start_ns, found.step_ends_ns) == (1, 0.01, 100, (100 + 10 * MS,))


def test_times_are_per_step_and_only_of_the_window() -> None:
    before_and_after: list[Event] = [("kernel", -5 * MS, 2 * MS), ("kernel", 19 * MS, 30 * MS)]
    (gpu,) = activity_of(WindowTrace(steps(2), [device(0, *before_and_after)])).devices
    assert gpu.kernel_s == pytest.approx(1.5e-3)
    assert gpu.idle_s == pytest.approx(8.5e-3)
    assert gpu.longest_gaps[0].duration_s == pytest.approx(17e-3)


def test_the_straggler_of_several_is_named_and_one_that_does_nothing_is_no_straggler() -> None:
    times = {0: (4, 4, 4, 4), 1: (6, 6, 6, 3), 3: ()}
    devices = [
        device(index, *(("kernel", n * 10 * MS, n * 10 * MS + ms * MS) for n, ms in enumerate(lengths)))
        for index, lengths in times.items()
    ]
    found = activity_of(WindowTrace(steps(4), devices))
    assert found.imbalance == pytest.approx(21 / 18.5 - 1)
    assert (found.slowest, found.slowest_share) == (1, 0.75)
    assert found.devices[2].idle_s == pytest.approx(10e-3)
    assert found.devices[2].work_s == {}


def test_a_collective_counts_alone_only_where_nothing_is_computed() -> None:
    (gpu,) = activity_of(
        WindowTrace(steps(1), [device(0, ("kernel", 0, 4 * MS), ("collective", 2 * MS, 7 * MS))])
    ).devices
    assert (gpu.collective_s, gpu.collective_alone_s, gpu.kernel_s, gpu.idle_s) == (5e-3, 3e-3, 4e-3, 3e-3)


def test_what_is_not_known_has_a_reason() -> None:
    found = activity_of(WindowTrace(steps(1), unmeasured={"devices": "no GPU in the profile"}))
    assert found.devices == ()
    assert {"devices", "imbalance"} <= found.unmeasured.keys()
    assert found.unmeasured["imbalance"] == "no GPU in the profile"


def test_a_plane_without_an_event_beside_one_with_events_did_nothing_and_alone_says_nothing() -> None:
    idle, busy = device(0), device(1, ("kernel", 0, MS))
    assert len(activity_of(WindowTrace(steps(1), [idle, busy])).devices) == 2
    assert activity_of(WindowTrace(steps(1), [idle, idle])).devices == ()


moments = st.lists(st.tuples(st.integers(-5, 45), st.integers(0, 15)), max_size=6)


@given(st.lists(st.tuples(st.sampled_from(WORK), st.integers(-5, 45), st.integers(0, 15)), max_size=12),
       st.dictionaries(st.sampled_from(CAUSES[:-1]), moments))  # fmt: skip
def test_every_moment_of_every_step_is_accounted_for_once(raw, causes) -> None:
    events = [(kind, start, start + length) for kind, start, length in raw]
    host = {cause: intervals([s for s, _ in rows], [s + n for s, n in rows]) for cause, rows in causes.items()}
    window = WindowTrace(steps(4, 10), [device(0, *events), device(1, ("kernel", 0, 1))], host)
    (gpu, _), ticks = activity_of(window).devices, range(40)
    ran = [{kind for kind, start, end in events if start <= tick < end} for tick in ticks]
    did = [
        next((why for why in CAUSES[:-1] if any(s <= tick < s + n for s, n in causes.get(why, ()))), "host")
        for tick in ticks
    ]
    per_step = 4e9
    assert gpu.kernel_s * per_step == pytest.approx(sum("kernel" in kinds for kinds in ran))
    assert gpu.copy_alone_s * per_step == pytest.approx(
        sum(bool(kinds & {*COPIES}) and not kinds & {"kernel", "collective"} for kinds in ran)
    )
    assert gpu.collective_alone_s * per_step == pytest.approx(
        sum("collective" in kinds and "kernel" not in kinds for kinds in ran)
    )
    assert gpu.idle_s * per_step == pytest.approx(sum(not kinds for kinds in ran))
    parts = (gpu.kernel_s, gpu.collective_alone_s, gpu.copy_alone_s, gpu.idle_s)
    assert sum(parts) * per_step == pytest.approx(40)
    for cause in CAUSES:
        expected = sum(not kinds and why == cause for kinds, why in zip(ran, did, strict=True))
        assert gpu.idle_by_cause_s[cause] * per_step == pytest.approx(expected)
    assert sum(total(spans) for spans in partition(host, 0, 40).values()) == 40


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (
            "Your program is HIGHLY input-bound because 97.2% of the total step time sampled is waiting for input.",
            "input",
        ),
        ("Your program is MODERATELY input-bound because 12.0% of the total step time", "input"),
        ("Your program is NOT input-bound because only 0.0% of the total step time", "not input"),
        ("Your program is POTENTIALLY input-bound because 6.4% of the total step time", "perhaps input"),
        ("No step time measured. Therefore we cannot tell where the performance bottleneck is.", "nothing"),
        ("", "nothing"),
    ],
)
def test_the_sentence_of_xprof_is_read(statement, says):
    assert answer(statement) == says


def tables(step_ms, input_ms, statement):
    analyzer = [
        {"cols": [], "rows": [], "p": {}},
        {"cols": [], "rows": [], "p": {"steptime_ms_average": step_ms, "infeed_time_ms_avg": input_ms}},
    ]
    return {
        "overview_page": json.dumps([{"p": {"statement": statement}}]),
        "input_pipeline_analyzer": json.dumps(analyzer),
    }


def test_the_tables_of_xprof_are_read():
    found = read(tables("34.9", "34.0", "Your program is HIGHLY input-bound because 97.4% ..."))
    assert (found.says, found.input_share) == ("input", 0.9742)


def test_without_a_step_time_xprof_has_no_share():
    found = read(tables("0.0", "0.0", "No step time measured. Therefore we cannot tell."))
    assert (found.says, found.input_share) == ("nothing", None)


def test_tables_of_another_kind_are_refused():
    with pytest.raises((ValueError, KeyError, TypeError)):
        read({"overview_page": "{", "input_pipeline_analyzer": "[]"})
