"""The history of a training run: of steps that were taken again, and of those that were undone, the last count."""

from __future__ import annotations

from typing import Any

import pytest

from xttsbench.records.training import Begun, CheckpointEntry, Ended, Evaluated, HistoryLine, Interval, Watched
from xttsbench.workflows.reports.history import training_of


def begun(step: int, session: int = 0) -> HistoryLine:
    fields: dict[str, Any] = dict.fromkeys(Begun.model_fields, 1) | {"step": step, "steps": 40}
    return HistoryLine(session=session, begun=Begun(**fields))


def interval(first: int, loss: float, session: int = 0, *, watched: Watched | None = None) -> HistoryLine:
    fields: dict[str, Any] = dict.fromkeys(Interval.model_fields, 1) | {"first_step": first, "steps": 10, "loss": loss}
    return HistoryLine(session=session, interval=Interval(**fields), watched=watched)


def evaluated(step: int, loss: float) -> HistoryLine:
    found = Evaluated(step=step, loss=loss, mel=0, stop=0, guided=0, clips=4, best=True)
    return HistoryLine(session=0, evaluated=found, took_s=1.5)


def saved(step: int) -> HistoryLine:
    sums = {"weights_sha256": "w", "optimizer_sha256": "o", "samples_sha256": "s", "state_sha256": "t"}
    fields = {name: value for name, value in sums.items() if name in CheckpointEntry.model_fields}
    return HistoryLine(session=0, saved=CheckpointEntry(step=step, epoch=0, batch=0, files=(), **fields))


def ended(step: int) -> HistoryLine:
    sums = {"samples_sha256": "s", "weights_sha256": "w", "optimizer_sha256": "o"}
    return HistoryLine(session=0, ended=Ended(reason="steps", step=step, **sums))


def test_a_session_that_was_killed_leaves_no_steps_that_were_taken_again() -> None:
    lines = [saved(0), begun(0), interval(1, 3.0), saved(10), interval(11, 2.0), evaluated(20, 2.5)]
    lines += [begun(10, 1), interval(11, 2.1, 1), evaluated(20, 2.6), saved(20), ended(20)]
    found = training_of(lines, "tiny")
    assert [(one.first_step, one.loss, one.session) for one in found.intervals] == [(1, 3.0, 0), (11, 2.1, 1)]
    assert [one.loss for one in found.evaluations] == [2.6]
    assert [entry.step for entry in found.checkpoints] == [0, 10, 20]
    assert [one.step for one in found.sessions] == [0, 10]
    assert found.ended is not None


def test_an_evaluation_in_the_middle_of_an_interval_stays() -> None:
    lines = [
        begun(0),
        interval(1, 3.0),
        evaluated(15, 2.5),
        saved(15),
        interval(11, 2.0),
        evaluated(20, 1.9),
        saved(20),
    ]
    found = training_of(lines, "tiny")
    assert [one.step for one in found.evaluations] == [15, 20]
    assert [entry.step for entry in found.checkpoints] == [15, 20]
    resumed = training_of([*lines[:5], begun(15, 1), interval(11, 2.1, 1)], "tiny")
    assert [one.loss for one in resumed.intervals] == [3.0, 2.1]
    assert [one.step for one in resumed.evaluations] == [15]


def test_a_session_that_is_under_way_has_not_ended() -> None:
    assert training_of([begun(0), interval(1, 3.0), ended(10), begun(10, 1)], "tiny").ended is None


def test_waiting_and_speed_are_of_the_watch() -> None:
    watched = Watched(wall_s=4, wait_s=1, step_s=2.5, outside_s=0.5, valid_frames=800, samples=16, steps=10)
    (found,) = training_of([interval(1, 3.0, watched=watched)], "tiny").intervals
    assert found.wait_fraction == pytest.approx(0.25)
    assert found.valid_frames_per_s == pytest.approx(200)
    (without,) = training_of([interval(1, 3.0)], "tiny").intervals
    assert (without.wait_fraction, without.valid_frames_per_s) == (None, None)
