"""What a training process tells on its way: kept, with the time left, and one sentence where it starves.

Each of several processes knows its number, and only the first one's run holds checkpoints.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from xttsbench.errors import UsageError
from xttsbench.execution.journal import HISTORY, read_history
from xttsbench.execution.run_directory import ENVIRONMENT, PLAN, lock_run, write_json
from xttsbench.findings.starvation import explain
from xttsbench.records.training import Begun, HistoryLine, Interval, Watched
from xttsbench.workflows import train
from xttsbench.workflows.bundled import TrainRequest
from xttsbench.workflows.train import SessionProgress, Silent, follower


class Heard(Silent):
    def __init__(self) -> None:
        self.left_s: list[float] = []
        self.said: list[str] = []

    def interval(self, interval: Interval, watched: Watched, steps: int, left_s: float) -> None:
        self.left_s.append(left_s)

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


def begun(step: int) -> HistoryLine:
    fields: dict[str, Any] = dict.fromkeys(Begun.model_fields, 1) | {"step": step, "steps": 60}
    return HistoryLine(session=0, begun=Begun(**fields))


def interval(first: int, wait_s: float) -> HistoryLine:
    fields: dict[str, Any] = dict.fromkeys(Interval.model_fields, 1) | {"first_step": first, "steps": 10}
    watched = Watched(wall_s=1, wait_s=wait_s, step_s=0, outside_s=0, valid_frames=1, samples=1, steps=10)
    return HistoryLine(session=0, interval=Interval(**fields), watched=watched)


@pytest.fixture
def told(tmp_path: Path):
    heard, clock = Heard(), iter(range(0, 1000, 5))
    told = SessionProgress(
        tmp_path,
        3,
        heard,
        lambda share: explain({"loader": "numpy_wav"}, overlap=True, input_workers=0, share=share),
        clock=lambda: float(next(clock)),
    )
    return told, heard


def test_the_time_left_is_what_the_session_needed_so_far(told) -> None:
    told, heard = told
    for line in (begun(20), interval(21, 0.0), interval(31, 0.0), interval(41, 0.0), interval(51, 0.0)):
        told.told(line)
    assert heard.left_s == pytest.approx([5 / 10 * 30, 10 / 20 * 20, 15 / 30 * 10, 0])


def test_starving_is_said_from_the_second_interval_on(told) -> None:
    told, heard = told
    told.told(begun(0))
    for first, wait_s in ((1, 0.9), (11, 0.5), (21, 0.5), (31, 0.01)):
        told.told(interval(first, wait_s))
    assert len(heard.said) == 2
    assert heard.said[0].startswith("Training starves: 50% of the time is waiting for data")
    assert "[python-function]" in heard.said[0]
    assert heard.said[1].startswith("Training waits no more")


def test_every_line_is_on_disk_with_its_session(told, tmp_path: Path) -> None:
    told, heard = told
    told.told(HistoryLine(session=0, warned="one"))
    told.told(HistoryLine(session=0))
    assert [(line.session, line.warned) for line in read_history(tmp_path)] == [(3, "one"), (3, None)]
    assert heard.said == ["Warning: one."]


def test_a_full_disk_is_said_once_and_ends_nothing(told, tmp_path: Path) -> None:
    told, heard = told
    (tmp_path / HISTORY).mkdir()
    told.told(HistoryLine(session=0, warned="one"))
    told.told(HistoryLine(session=0, warned="two"))
    assert [line.warned for line in told.lines] == ["one", "two"]
    assert [sentence.split(":")[0] for sentence in heard.said] == ["Warning"] * 3
    assert "cannot be written" in heard.said[0]


def test_a_follower_has_a_directory_beside_the_run_and_reads_its_checkpoints():
    request, leader = follower(TrainRequest(out=Path("runs/mine")), 2)
    assert (request.out, leader) == (Path("runs/mine.worker-2"), Path("runs/mine"))


def test_a_follower_has_to_be_told_where_the_run_is():
    with pytest.raises(UsageError, match="worker 1 needs --out"):
        follower(TrainRequest(), 1)


@pytest.mark.parametrize("planned", [False, True])
def test_a_second_training_leaves_all_of_a_living_one_alone(tmp_path: Path, monkeypatch, build, planned: bool) -> None:
    prepared: list[str] = []

    def prepare(*_: object, **__: object) -> Any:
        prepared.append("data")
        return SimpleNamespace(said=(), recipe=SimpleNamespace(name="tiny"))

    plan = build.run_plan(kind="train")
    monkeypatch.setattr(train, "require_tensorflow", lambda: None)
    monkeypatch.setattr(train, "environment", lambda: {"fingerprint": "f"})
    monkeypatch.setattr(train, "prepare_training", prepare)
    monkeypatch.setattr(train, "_plan", lambda *_: plan)
    with lock_run(tmp_path):
        write_json(tmp_path / ENVIRONMENT, {"first": True})  # it has come so far
        if planned:
            write_json(tmp_path / PLAN, plan.model_dump(mode="json"))
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        with pytest.raises(UsageError, match="is in use by another process"):
            train.train(TrainRequest(out=tmp_path))
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert prepared == ([] if planned else ["data"])
