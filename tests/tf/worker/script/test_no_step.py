"""Scripts in which no step is seen: they are told so and stopped, those that get ready for one are not."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from xttsbench.worker.script.no_step import TOLD_AFTER_S, NoStep


class Script:
    """A script that does nothing, its clock, and what it was told; a second goes by from one look to the next."""

    def __init__(self, patience_s: float = 60.0) -> None:
        self.now_s, self.read, self.sent, self.phases = 0.0, 0, list[dict[str, Any]](), list[str]()
        self.stopped_s: float | None = None
        self.watch = SimpleNamespace(counts=[0], traces=[], calling=False)
        channel = SimpleNamespace(send=self.sent.append, phase=self.phases.append)
        self.loops: list[Any] = []
        self.keras_calls: list[Any] = []
        self.recorder = SimpleNamespace(
            watch=self.watch,
            tapes=0,
            keras_calls=SimpleNamespace(record=lambda: self.keras_calls, within=""),
            has_results=True,
            results=SimpleNamespace(loops=SimpleNamespace(all=lambda: self.loops)),
            report=SimpleNamespace(channel=channel),
            stop=self._stop,
        )
        self.watched = SimpleNamespace(
            recorder=self.recorder, graph=[], requesting=False, fitting=False, expects_steps=False
        )
        watched: Any = self.watched
        self.no_step = NoStep(watched, patience_s, lambda: self.now_s, lambda: self.read)

    def _stop(self) -> None:
        self.stopped_s = self.now_s

    def goes_on(self, seconds: int, each: Callable[[], None] = lambda: None) -> None:
        """Let seconds go by, with something in each."""
        for _ in range(seconds):
            self.now_s += 1
            each()
            self.no_step.look()


def test_a_script_that_does_nothing_is_told_so_and_stopped_later() -> None:
    script = Script()
    script.goes_on(200)
    assert script.phases[0].startswith("no step for 20 s")
    assert script.stopped_s == 60
    (told,) = script.sent
    assert told["status"] == "empty"
    assert "no gradients were taken" in told["cause"]
    assert "FILE.py:FUNCTION" in told["cause"]


def test_one_that_trains_without_a_data_set_is_stopped_soon_whatever_it_reads() -> None:
    script = Script(patience_s=60)

    def trains() -> None:
        script.recorder.tapes += 5
        script.read += 100 << 20

    script.goes_on(10, lambda: setattr(script, "read", script.read + (100 << 20)))
    script.goes_on(100, trains)
    assert script.stopped_s == pytest.approx(12 + TOLD_AFTER_S)
    assert "gradients were taken 110 times" in script.sent[0]["cause"]


def test_calls_of_keras_for_each_batch_are_said() -> None:
    script = Script()
    script.keras_calls.append(
        SimpleNamespace(method="predict", calls=1_200, for_each_batch=True, on_batch="model.predict_on_batch(row)")
    )
    script.goes_on(200)
    assert (
        "predict() called 1,200 times, for a batch or two each: `model.predict_on_batch(row)`"
        in script.sent[0]["cause"]
    )


def reads(script: Script) -> None:
    script.read += 2 << 20


def traces(script: Script) -> None:
    script.watch.traces.append(None)


def compiles(script: Script) -> None:
    script.watch.calling = True


def waits(script: Script) -> None:
    script.watched.requesting = True


def fits(script: Script) -> None:
    script.watched.fitting = True


def gets_ready_to_fit(script: Script) -> None:
    script.recorder.keras_calls.within = "fit"


@pytest.mark.parametrize("each", [reads, traces, compiles, waits, fits, gets_ready_to_fit])
def test_one_that_gets_ready_is_waited_for(each: Callable[[Script], None]) -> None:
    script = Script()
    script.goes_on(300, lambda: each(script))
    assert (script.stopped_s, script.phases) == (None, [])


@pytest.mark.parametrize("seen", ["loops", "graph"])
def test_nothing_is_said_once_there_was_a_step(seen: str) -> None:
    script = Script()
    (script.loops if seen == "loops" else script.watched.graph).append(SimpleNamespace(steps=1))
    script.goes_on(300)
    assert (script.stopped_s, script.no_step.over) == (None, True)


def test_nothing_is_said_where_batches_of_the_script_s_own_are_known() -> None:
    script = Script()
    script.watched.expects_steps = True
    script.recorder.tapes = 100
    script.goes_on(300)
    assert (script.stopped_s, script.no_step.over) == (None, True)


@pytest.mark.parametrize("how", ["eager", "compiled", "idle"])
def test_a_script_without_a_data_set_ends_with_what_was_seen_and_the_line(
    watched: Callable[..., Any], how: str
) -> None:
    ran = watched("no_dataset.py", how, no_step_s=2.0)
    (cause,) = [message["cause"] for message in ran.messages if message.get("status") == "empty"]
    assert "no_dataset.py:" in cause
    assert ("no gradients were taken" in cause) == (how == "idle")
    assert ran.messages[-1] == {"done": True}
