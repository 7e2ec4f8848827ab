"""Calls of Keras's own loops: counted by their lines, with the call for one batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from xttsbench.records.pipeline import CallSite
from xttsbench.step.watch import Watch
from xttsbench.worker.script.keras_calls import KerasCallsHeard, on_batch


@pytest.mark.parametrize("keras", ["keras3", "legacy"])
def test_calls_for_each_batch_are_counted_at_their_lines(watched: Callable[..., Any], keras: str) -> None:
    pytest.importorskip("tf_keras" if keras == "legacy" else "keras")
    ran = watched("fit_one_batch.py", "30", keras, afterwards=False)
    predict, fit = ran.part("script")["keras_calls"]
    assert [(one["method"], one["place"]["line"], one["calls"]) for one in (predict, fit)] == [
        ("predict", 16, 30),
        ("fit", 20, 30),
    ]
    for one in (predict, fit):
        assert one["batches"] == 29, "the first call is in no figure"
        assert 0 < one["function_s"] < one["time_s"] < one["span_s"]
    assert predict["on_batch"] == "model.predict_on_batch(row)"
    assert fit["on_batch"] == "model.train_on_batch(row, values)"


@pytest.mark.parametrize(
    ("method", "calls", "batches", "is_so"),
    [("fit", 30, 29, True), ("fit", 30, 290, False), ("predict", 30, 29, False)],
)
def test_only_fit_for_each_batch_is_a_loop_of_fits(method: str, calls: int, batches: int, is_so: bool) -> None:
    heard = KerasCallsHeard(Watch())
    heard._sums[method, CallSite(file="train.py", line=3)] = [calls, batches, 0, 0]
    assert heard.fits_each_batch is is_so


def test_time_between_calls_for_each_batch_is_measured_time(watched: Callable[..., Any]) -> None:
    """The window is over long before the steps themselves take as long: they are a part of what the loop does."""
    ran = watched("fit_one_batch.py", "2000", "keras3", afterwards=False, window_s=6.0)
    script = ran.part("script")
    assert script["ended"] == "stopped"
    steps_s = sum(ran.segments["as_is"].columns["wall_ns"]) / 1e9
    assert steps_s < 6.0 <= steps_s + script["between_fits_s"] + 1.0


@pytest.mark.parametrize(
    ("text", "method", "written"),
    [
        ("    q = net.predict(states[a:b], 32, verbose=0)[0]\n", "predict", "net.predict_on_batch(states[a:b])"),
        (
            "if model.evaluate(x, y, return_dict=True)['loss'] < 1:\n",
            "evaluate",
            "model.test_on_batch(x, y, return_dict=True)",
        ),
        ("while agent.model.predict(x=state).max() < 0:", "predict", "agent.model.predict_on_batch(x=state)"),
        ("learn(model, row)", "fit", "train_on_batch(...)"),
        ("model.fit(x,", "fit", "train_on_batch(...)"),
    ],
)
def test_a_line_is_written_for_one_batch(text: str, method: str, written: str) -> None:
    assert on_batch(text, method) == written
