from __future__ import annotations

import pytest

from tests.unit.findings.made import only, silent
from xttsbench.findings.host import call_per_batch
from xttsbench.records.code import KerasCalls, ScriptRun
from xttsbench.records.pipeline import CallSite
from xttsbench.records.trial import Devices


def script(
    calls: int = 101, batches: int = 100, method: str = "predict", steps_per_call: int = 1, **fields: object
) -> ScriptRun:
    """A script that calls a method of a model, 40 ms of each call's 50 around its function; nearly all that it does."""
    known = {"time_s": 0.05 * (calls - 1), "function_s": 0.01 * (calls - 1), "span_s": 0.0625 * (calls - 1)}
    known |= {"on_batch": "model.predict_on_batch(row)"} | fields
    place = CallSite(file="/home/user/agent.py", line=31)
    one = KerasCalls(method=method, place=place, calls=calls, batches=batches, **known)
    return ScriptRun(keras_calls=(one,), steps_per_call=steps_per_call)


def test_what_keras_makes_anew_in_each_call_is_named_with_the_call_to_write(evidence) -> None:
    found = only(call_per_batch, evidence("inconclusive", script=script()))
    assert (found.limiting, found.severity) == (True, "critical")
    assert (found.location.file, found.location.line) == ("/home/user/agent.py", 31)
    assert found.title.startswith("predict() is called for each batch: 40 of its 50 ms")
    assert "Write `model.predict_on_batch(row)` in line 31 of agent.py" in found.remedy
    assert found.evidence["first_call_to_last_share"] == pytest.approx(0.64)


@pytest.mark.parametrize(
    "how",
    [script(span_s=100.0), script(function_s=4.99), script(steps_per_call=16)],
    ids=["the script does something else", "the function takes it", "a call is of many steps"],
)
def test_calls_that_cost_little_are_none_of_it(evidence, how: ScriptRun) -> None:
    assert silent(call_per_batch, evidence("inconclusive", script=how))


def test_behind_a_gpu_waiting_for_results_may_be_what_takes_the_time(evidence) -> None:
    devices = Devices(inter_op_threads=2, intra_op_threads=2, gpus=("GPU:0",))
    assert not only(call_per_batch, evidence("inconclusive", script=script(), devices=devices)).limiting


def test_epochs_that_a_script_counts_itself_are_none_of_it(evidence) -> None:
    assert silent(call_per_batch, evidence("compute", script=script(calls=101, batches=10_000)))
    assert silent(call_per_batch, evidence("compute", script=script(calls=5, batches=4)))
    assert silent(call_per_batch, evidence("compute"))
