from __future__ import annotations

from typing import Any

import pytest

from xttsbench.execution.child import Collected
from xttsbench.records.readings import Readings
from xttsbench.records.rows import COLUMNS, RowMemory, StepRow
from xttsbench.records.trial import TrialRecord, TrialSpec

SPEC = TrialSpec(trial_id="000-ladder", rung="ladder", target="data.py:make")


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
        {"part": "batches", "value": {"cached": 2, "bytes": 64, "shapes": ["(8, 16)"], "static_signature": "?"}},
        {"traces": [trace]},
        {"note": "first"},
        {"note": "second"},
        {"note": "first"},
    )
    assert record.setup_s == 0.25
    assert record.batches is not None
    assert record.batches.shapes == ("(8, 16)",)
    assert record.traces[0].reason == "shape"
    assert record.notes == ("first", "second")


def test_how_it_ended_with_the_error() -> None:
    record = recorded(
        {"status": "raised", "cause": "ValueError: bad", "error": {"type": "ValueError", "message": "bad", "line": 3}},
        as_is=[5],
    )
    assert (record.status, record.cause) == ("raised", "ValueError: bad")
    assert record.error is not None
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
