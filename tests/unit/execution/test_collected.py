from __future__ import annotations

from typing import Any

import pytest

from xttsbench.execution.collected import Collected
from xttsbench.records.readings import Readings
from xttsbench.records.trial import TrialRecord, TrialSpec

SPEC = TrialSpec(trial_id="000-ladder", rung="ladder", target="data.py:make")


def rows(name: str, *walls: int) -> dict[str, Any]:
    return {"rows": name, "columns": {"wall_ns": list(walls), "wait_ns": [wall // 2 for wall in walls]}}


def collect(*messages: dict[str, Any]) -> Collected:
    collected = Collected(SPEC)
    for message in messages:
        collected.take(message)
    return collected


def recorded(*messages: dict[str, Any]) -> TrialRecord:
    return collect(*messages).record(started_utc="2026-01-02T03:04:05Z", duration_s=1.5, readings=Readings())


def test_rows_of_a_segment_are_put_together_in_order_of_arrival() -> None:
    record = recorded(rows("as_is", 10, 20), rows("step_only", 7), rows("as_is", 30), {"done": True})
    assert [segment.name for segment in record.segments] == ["as_is", "step_only"]
    assert record.segments[0].columns == {"wall_ns": (10, 20, 30), "wait_ns": (5, 10, 15)}
    assert record.segments[1].columns["wall_ns"] == (7,)
    assert (record.status, record.duration_s, record.spec) == ("ok", 1.5, SPEC)


def test_it_counts_steps_over_all_segments_and_knows_its_phase() -> None:
    collected = collect({"phase": "as_is"}, rows("as_is", 1, 2), rows("step_only", 3))
    assert collected.steps == 3
    assert (collected.phase, collected.done) == ("as_is", False)
    assert Collected(SPEC).phase == "fork"
    assert collect({"done": True}).done


@pytest.mark.parametrize(("warmup", "kept"), [(1, 1), (2, 2), (50, 2)])
def test_the_warm_up_is_no_longer_than_what_arrived(warmup: int, kept: int) -> None:
    record = recorded({"warmup": warmup, "segment": "as_is"}, rows("as_is", 1, 2), rows("input_only", 1))
    assert record.segments[0].warmup_steps == kept
    assert record.segments[1].warmup_steps == 0


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
        rows("as_is", 5),
        {"status": "raised", "cause": "ValueError: bad", "error": {"type": "ValueError", "message": "bad", "line": 3}},
    )
    assert (record.status, record.cause) == ("raised", "ValueError: bad")
    assert record.error is not None
    assert (record.error.type, record.error.line, record.error.file) == ("ValueError", 3, None)
    assert record.segments[0].steps == 1


def test_a_part_that_does_not_fit_costs_no_sample() -> None:
    record = recorded(rows("as_is", 1, 2, 3), {"note": "kept"}, {"part": "anatomy", "value": {"steps": "torn"}})
    assert record.segments[0].steps == 3
    assert record.anatomy is None
    assert record.notes[0] == "kept"
    assert record.notes[1] == "dropped, since they do not fit the record: anatomy"


def test_a_part_that_does_not_fit_takes_no_other_part_with_it() -> None:
    record = recorded(rows("as_is", 1), {"part": "anatomy", "value": {}}, {"part": "handoff_s", "value": 0.5})
    assert record.handoff_s == 0.5


def test_a_part_that_no_record_has_costs_no_sample() -> None:
    record = recorded(rows("as_is", 1), {"part": "surprise", "value": 1})
    assert record.segments[0].steps == 1
    assert any("surprise" in note for note in record.notes)


@pytest.mark.parametrize("message", [{}, {"unknown": 1}, {"columns": {"wall_ns": [1]}}])
def test_a_torn_or_unknown_message_changes_nothing(message: dict[str, Any]) -> None:
    assert recorded(rows("as_is", 1), message) == recorded(rows("as_is", 1))


def test_nothing_at_all_is_a_record_without_segments() -> None:
    record = recorded()
    assert record.segments == ()
    assert record.status == "ok"


def test_of_a_long_segment_the_newest_rows_are_kept_and_that_is_noted() -> None:
    collected = Collected(SPEC, most_rows=3)
    for first in range(0, 8, 2):
        collected.take(rows("as_is", first, first + 1))
    record = collected.record(started_utc="2026-01-02T03:04:05Z", duration_s=1.5, readings=Readings())
    assert record.segments[0].columns["wall_ns"] == (5, 6, 7)
    assert record.notes == ("of the segment as_is the last 3 rows are kept",)
