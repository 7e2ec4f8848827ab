"""The watch of a training loop on a clock that is set by hand: every nanosecond is in one place, and sent in time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from xttsbench.execution.child import Collected
from xttsbench.records.readings import Readings
from xttsbench.records.rows import RowMemory
from xttsbench.records.training import Begun, CheckpointEntry, Ended, Evaluated, HistoryLine, Interval
from xttsbench.records.trial import Segment, TrialSpec
from xttsbench.worker.channel import Channel
from xttsbench.worker.training import Watch

MS = 1_000_000


class Kept(Channel):
    def __init__(self) -> None:
        self.rows = RowMemory(bytearray(RowMemory.size_bytes(16)))
        self.messages: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    @property
    def told(self) -> list[HistoryLine]:
        return [HistoryLine.model_validate(one["told"]) for one in self.messages if "told" in one]

    def segment(self, name: str) -> Segment:
        collected = Collected(TrialSpec(trial_id="0", kind="arm", target="t"), self.rows)
        for message in self.messages:
            collected.take(message)
        found = collected.record(started_utc="2026-01-01", duration_s=1.0, readings=Readings()).segment(name)
        assert found is not None
        return found


class Loop:
    """Calls the watch as the loop does, with a clock that stands still but for what is said."""

    def __init__(self) -> None:
        self.now = 5_000 * MS
        self.channel = Kept()
        self.watch = Watch(self.channel, begun, emulated_ns=lambda: 7, clock=lambda: self.now)

    def step(self, *, wait: int, step: int, frames: int = 900, samples: int = 3, epoch: int = 0) -> None:
        self.watch.fetching()
        self.now += wait * MS
        position = SimpleNamespace(epoch=epoch)
        self.watch.fetched(
            SimpleNamespace(position=position, frames=frames, valid_frames=600, samples=samples)  # type: ignore[arg-type]
        )
        self.now += step * MS
        self.watch.stepped(None)  # type: ignore[arg-type]

    def interval(self, *, device: int = 0) -> None:
        self.now += device * MS
        fields: dict[str, Any] = dict.fromkeys(Interval.model_fields, 1)
        self.watch.interval(Interval(**fields))

    def evaluate(self, *, takes: int) -> None:
        self.now += takes * MS
        self.watch.evaluated(Evaluated(step=1, loss=1, mel=1, stop=1, guided=1, clips=1, best=True))


def begun(step: int) -> Begun:
    fields: dict[str, Any] = dict.fromkeys(Begun.model_fields, 1) | {"step": step, "warm_up_s": 2.0}
    return Begun(**fields)


@pytest.fixture
def loop() -> Loop:
    made = Loop()
    made.watch.begun(0)
    return made


def column(loop: Loop, name: str) -> list[float]:
    loop.watch.flush()
    return [value / MS if name.endswith("_ns") else value for value in loop.channel.segment("as_is").columns[name]]


def test_waiting_stepping_and_what_lies_between_are_told_apart(loop: Loop) -> None:
    loop.step(wait=2, step=10)
    loop.now += 5 * MS  # a checkpoint, say
    loop.step(wait=3, step=20)
    assert column(loop, "wait_ns") == [2, 3]
    assert column(loop, "step_ns") == [10, 20]
    assert column(loop, "wall_ns") == [12, 28]
    assert column(loop, "start_ns") == [5000, 5017]
    assert loop.channel.segment("as_is").columns["emulated_ns"] == (7, 7)


def test_the_wait_for_the_device_is_the_last_step_s(loop: Loop) -> None:
    loop.step(wait=1, step=2)
    loop.step(wait=1, step=2)
    loop.interval(device=30)
    loop.step(wait=1, step=2)
    assert column(loop, "device_ns") == [0, 30, 0]
    assert column(loop, "step_ns") == [2, 32, 2]
    assert column(loop, "wall_ns") == [3, 33, 3]


def test_an_evaluation_is_in_no_step(loop: Loop) -> None:
    loop.step(wait=1, step=2)
    loop.interval()
    loop.evaluate(takes=400)
    loop.now += 4 * MS  # the checkpoint that follows
    loop.step(wait=1, step=2)
    assert column(loop, "wall_ns") == [3, 7]
    assert [line.took_s for line in loop.channel.told if line.evaluated] == [pytest.approx(0.4)]


def test_an_interval_adds_its_steps_up_and_begins_anew(loop: Loop) -> None:
    loop.step(wait=10, step=20)
    loop.now += 10 * MS
    loop.step(wait=10, step=40)
    loop.interval(device=10)
    loop.step(wait=1, step=1)
    loop.interval()
    first, second = (line.watched for line in loop.channel.told if line.watched)
    assert (first.wall_s, first.wait_s, first.step_s) == (pytest.approx(0.1), pytest.approx(0.02), pytest.approx(0.07))
    assert first.outside_s == pytest.approx(0.01)
    assert (first.steps, first.samples, first.valid_frames) == (2, 6, 1200)
    assert (second.steps, second.wall_s) == (1, pytest.approx(0.002))


def test_a_row_is_there_as_soon_as_the_next_batch_is_asked_for_or_its_interval_is_told(loop: Loop) -> None:
    loop.step(wait=1, step=2)
    assert loop.channel.rows.steps == 1  # the warm-up alone
    loop.watch.fetching()
    assert loop.channel.rows.steps == 2
    loop.step(wait=1, step=2)
    loop.interval()
    assert loop.channel.segment("as_is").steps == 2
    assert [one for one in loop.channel.messages if "told" in one][-1]["told"]["interval"]


def test_what_the_watch_itself_takes_is_in_the_wall_time_of_the_next_step_and_in_nothing_else(loop: Loop) -> None:
    def send(message: dict[str, Any]) -> None:
        loop.now += 6 * MS

    loop.step(wait=1, step=2)
    loop.channel.send = send  # type: ignore[method-assign]
    loop.interval()
    loop.now += 4 * MS  # a checkpoint
    loop.step(wait=1, step=2)
    assert column(loop, "wall_ns") == [3, 13]
    assert column(loop, "pause_ns") == [0, 6]
    assert (column(loop, "wait_ns"), column(loop, "step_ns")) == ([1, 1], [2, 2])


def test_shapes_and_sizes_are_of_the_batch_and_a_new_one_is_told_first(loop: Loop) -> None:
    loop.step(wait=1, step=2)
    loop.step(wait=1, step=2, frames=1200, epoch=1)
    loop.step(wait=1, step=2)
    assert column(loop, "shape_id") == [0, 1, 0]
    assert column(loop, "frames") == [900, 1200, 900]
    assert column(loop, "epoch") == [0, 1, 0]
    shapes = [one["shape"] for one in loop.channel.messages if "shape" in one]
    assert shapes == ["3 clips, 900 frames with padding", "3 clips, 1200 frames with padding"]


def test_the_warm_up_is_a_segment_of_its_own_and_the_first_row_is_known_as_such(loop: Loop) -> None:
    loop.step(wait=50, step=2)
    loop.step(wait=1, step=2)
    loop.watch.flush()
    assert loop.channel.segment("warm_up").columns["wall_ns"] == (2000 * MS,)
    assert loop.channel.segment("as_is").warmup_steps == 1


def test_checkpoints_warnings_and_the_end_are_passed_on(loop: Loop) -> None:
    sums = dict.fromkeys(("weights_sha256", "optimizer_sha256", "samples_sha256"), "x")
    more = {"state_sha256": "x"} if "state_sha256" in CheckpointEntry.model_fields else {}
    loop.step(wait=1, step=2)
    loop.watch.saved(CheckpointEntry(step=1, epoch=0, batch=1, files=(), **sums, **more))
    loop.watch.warned("left out")
    loop.watch.ended(Ended(reason="terminated", step=1, **sums))
    saved, warned, ended = loop.channel.told[-3:]
    assert (saved.saved and saved.saved.step, warned.warned) == (1, "left out")
    assert ended.ended is not None
    assert loop.channel.segment("as_is").steps == 1
