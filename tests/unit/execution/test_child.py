"""Limits follow the machine's pace: what is merely slow is not taken for hung."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from xttsbench.execution.child import Collected, start
from xttsbench.execution.limits import Limits, at_pace, pace
from xttsbench.records.readings import HostReadings, Readings
from xttsbench.records.rows import COLUMNS, RowMemory, StepRow
from xttsbench.records.trial import RoundMark, TrialRecord, TrialSpec

SPEC = TrialSpec(trial_id="000-ladder", kind="ladder", target="data.py:make")


def collect(*messages: dict[str, Any], **walls: list[int]) -> Collected:
    """What a child told, with the wall times of its steps by segment."""
    memory = RowMemory(bytearray(RowMemory.size_bytes(5)))
    for name, times in walls.items():
        segment = memory.segment(name)
        for time in times:
            segment.append(StepRow(0, time, time // 2))
    collected = Collected(SPEC, memory)
    for message in messages:
        collected.take(message)
    return collected


def recorded(*messages: dict[str, Any], **walls: list[int]) -> TrialRecord:
    found = collect(*messages, **walls)
    return found.record(started_utc="2026-01-02T03:04:05Z", duration_s=1.5, readings=Readings())


def test_what_a_process_prints_on_either_stream_is_kept_at_the_end_of_a_log(tmp_path: Path, capfd) -> None:
    log = tmp_path / "output.log"
    log.write_text("before\n")
    assert start("platform", what="It", environment=os.environ, log=log).wait() == 0
    assert start("no_such_module", what="It", environment=os.environ, log=log).wait() == 1
    kept = log.read_text()
    assert kept.startswith("before\n")
    assert "Linux" in kept
    assert "No module named no_such_module" in kept
    assert capfd.readouterr() == ("", "")


def test_the_rows_in_memory_are_its_segments() -> None:
    record = recorded({"done": True}, as_is=[10, 20, 30], step_only=[7])
    assert [segment.name for segment in record.segments] == ["as_is", "step_only"]
    assert set(record.segments[0].columns) == set(COLUMNS)
    assert record.segments[0].columns["wall_ns"] == (10, 20, 30)
    assert record.segments[0].columns["wait_ns"] == (5, 10, 15)
    assert record.segments[1].columns["wall_ns"] == (7,)
    assert (record.status, record.duration_s, record.spec) == ("ok", 1.5, SPEC)


def test_it_counts_steps_over_all_segments_and_knows_its_phase() -> None:
    collected = collect({"phase": "as_is"}, as_is=[1, 2], step_only=[3])
    assert collected.steps == 3
    assert (collected.phase, collected.done) == ("as_is", False)
    assert Collected(SPEC).phase == "fork"
    assert collect({"done": True}).done


def test_parts_notes_and_traces() -> None:
    trace = {"step": 3, "function": "step", "reason": "shape", "signature": "(8,)", "time_s": 0.1}
    record = recorded(
        {"part": "setup_s", "value": 0.25},
        {"part": "batches", "value": {"cached": 2, "bytes": 64, "shapes": ["(8, 16)"]}},
        {"traces": [trace]},
        {"note": "first"},
        {"note": "second"},
        {"note": "first"},
    )
    assert record.setup_s == 0.25
    assert record.batches.shapes == ("(8, 16)",)
    assert record.traces[0].reason == "shape"
    assert record.notes == ("first", "second")


def test_how_it_ended_with_the_error() -> None:
    record = recorded(
        {"status": "raised", "cause": "ValueError: bad", "error": {"type": "ValueError", "message": "bad", "line": 3}},
        as_is=[5],
    )
    assert (record.status, record.cause) == ("raised", "ValueError: bad")
    assert (record.error.type, record.error.line, record.error.file) == ("ValueError", 3, None)
    assert record.segments[0].steps == 1


def test_a_part_that_does_not_fit_costs_no_sample() -> None:
    record = recorded({"note": "kept"}, {"part": "anatomy", "value": {"steps": "torn"}}, as_is=[1, 2, 3])
    assert record.segments[0].steps == 3
    assert record.anatomy is None
    assert record.notes[0] == "kept"
    assert record.notes[1] == "dropped, since they do not fit the record: anatomy"


def test_a_part_that_does_not_fit_takes_no_other_part_with_it() -> None:
    record = recorded({"part": "anatomy", "value": {}}, {"part": "handoff_s", "value": 0.5}, as_is=[1])
    assert record.handoff_s == 0.5


def test_a_part_that_no_record_has_costs_no_sample() -> None:
    record = recorded({"part": "surprise", "value": 1}, as_is=[1])
    assert record.segments[0].steps == 1
    assert any("surprise" in note for note in record.notes)


@pytest.mark.parametrize("message", [{}, {"unknown": 1}, {"columns": {"wall_ns": [1]}}])
def test_a_torn_or_unknown_message_changes_nothing(message: dict[str, Any]) -> None:
    assert recorded(message, as_is=[1]) == recorded(as_is=[1])


def test_nothing_at_all_is_a_record_without_segments() -> None:
    record = recorded()
    assert record.segments == ()
    assert record.status == "ok"


def test_of_a_long_segment_the_newest_rows_are_kept_and_that_is_noted() -> None:
    record = recorded(as_is=[*range(8)], step_only=[1])
    assert record.segments[0].columns["wall_ns"] == (4, 5, 6, 7)
    assert record.notes == ("of the segment as_is the last 4 rows are kept",)


S = 1_000_000_000


def beside(build, *, steal: float = 0.0, foreign: float = 0.0) -> TrialRecord:
    """Ten seconds on two processors, of which others take a share."""
    times = tuple(second * S for second in range(12))
    used = {"busy": 2 * foreign, "steal": 2 * steal, "idle": 2 - 2 * foreign - 2 * steal}
    machine = {f"machine_{name}_s": tuple(cpus * second for second in range(12)) for name, cpus in used.items()}
    host = HostReadings(t_ns=times, allowed_cpus=2, cpu_s=(0.0,) * 12, **machine)
    return build.trial("ladder", build.segment(step_s=[0.1] * 90), readings=Readings(host=host))


def test_an_ordinary_machine_has_pace_one(build) -> None:
    assert pace(5.0, []) == 1.0
    assert pace(6.0, [beside(build)]) == 1.0


def test_an_import_that_takes_long_tells_of_a_slow_machine() -> None:
    assert pace(15.0, []) == pytest.approx(2.5)
    assert pace(600.0, []) == 10.0  # a cold disk


def test_so_does_what_others_took(build) -> None:
    assert pace(5.0, [beside(build, steal=0.6)]) == pytest.approx(2.5)
    assert pace(5.0, [beside(build), beside(build, foreign=0.5)]) == pytest.approx(2.0)
    assert pace(5.0, [beside(build, foreign=0.5), *[beside(build)] * 8]) == 1.0  # that was long ago


def test_and_the_canary(build) -> None:
    marks = [RoundMark(round=i, start_ns=0, end_ns=S, canary_before_ns=ns) for i, ns in enumerate((400, 1200, 400))]
    assert pace(5.0, [build.trial("arm").model_copy(update={"rounds": tuple(marks)})]) == pytest.approx(3.0)


def test_silence_may_last_four_times_what_starting_took(build) -> None:
    segment = build.segment("warm_up", wait_s=[4.0, 0.1], step_s=[6.0, 0.1])
    trial = build.trial("ladder", segment, setup_s=3.0)
    found = at_pace(Limits(20.0, 15.0), 7.0, [trial])
    assert found.stall_s == pytest.approx(4 * (7 + 3 + 4 + 6))
    assert found.time_s == found.stall_s


def test_a_fork_that_takes_fifteen_seconds_on_a_slow_machine_is_no_stall() -> None:
    """What a check of the same data gave up after: a machine that lost two thirds of its time imports in 18 s."""
    assert at_pace(Limits(20.0, 15.0), 18.0, []).stall_s >= 60.0
    assert at_pace(Limits(20.0, 15.0), 5.0, []).stall_s >= 20.0


def test_limits_are_never_shorter_than_asked_for_and_an_end_is_kept() -> None:
    assert at_pace(Limits(300.0, 60.0), 1.0, []).stall_s == 60.0
    assert at_pace(Limits(300.0, 60.0), 1.0, []).time_s >= 300.0
    assert at_pace(Limits(40.0, 30.0, most_s=55.0), 60.0, []).time_s == 55.0


@pytest.mark.parametrize(("time_s", "stall_s"), [(0, 1), (1, 0), (-1, 1)])
def test_limits_are_positive(time_s: float, stall_s: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        Limits(time_s, stall_s)
