from __future__ import annotations

import pytest

from tests.unit.findings.made import line, only, silent
from xttsbench.analysis.attribution import StepFacts
from xttsbench.findings.host import host_stall, host_sync, python_function_in_step
from xttsbench.records.code import KerasCalls, ScriptRun
from xttsbench.records.pipeline import CallSite
from xttsbench.records.report import Oscillation
from xttsbench.records.trial import Devices


def test_fetching_values_every_step(evidence, build) -> None:
    steps = build.steps(step_s=[0.1] * 10, syncs=2, sync_s=0.03)
    anatomy = build.compiled(lines=(line("python", 3), line("sync", 21)))
    found = only(host_sync, evidence("host", steps=steps, anatomy=anatomy))
    assert (found.limiting, found.severity, found.location.line) == (True, "warning", 21)
    assert found.evidence["share"] == pytest.approx(0.3)
    assert found.evidence["fetches_per_step"] == 2
    cheap = only(host_sync, evidence("host", steps=build.steps(step_s=[0.1] * 10, syncs=1, sync_s=1e-4)))
    assert (cheap.limiting, cheap.severity) == (False, "info")
    assert "On this CPU" in cheap.remedy
    gpu = evidence("compute", steps=build.steps(step_s=[0.1] * 10, syncs=1), devices=Devices(gpus=("GPU:0",)))
    assert only(host_sync, gpu).severity == "warning"
    assert "On this CPU" not in only(host_sync, gpu).remedy


def test_fetching_every_hundredth_step_is_fine(evidence, build) -> None:
    assert silent(host_sync, evidence("host", steps=build.steps(step_s=[0.1] * 10, syncs=[1] + [0] * 9)))
    assert silent(host_sync, evidence("host"))
    assert silent(host_sync, evidence("input", has_step=False, steps=build.steps(wait_s=[0.1] * 3, syncs=1)))


def test_host_work_names_the_line_and_how_often(evidence, build) -> None:
    lines = (line("tensorflow", 1), line("io", 30, steps_share=0.1), line("python", 40))
    made = evidence(
        "host",
        anatomy=build.compiled(lines=lines),
        steps=build.steps(step_s=[0.1] * 4, gc_s=0.01),
        oscillation=Oscillation(period_steps=10.0),
    )
    found = only(host_stall, made)
    assert (found.limiting, found.severity, found.location.line) == (True, "critical", 30)
    assert "50% of the step" in found.title
    assert found.title.endswith("about every 10 steps, most of it in step()")
    assert found.evidence["period_steps"] == 10.0
    assert found.evidence["gc_s_per_step"] == pytest.approx(0.01)
    assert found.predicted_speedup.estimate == 2.0


def test_in_an_opaque_step_the_line_that_few_steps_reach_is_the_stall(evidence, build) -> None:
    lines = (line("python", 10, share=0.6), line("python", 20, share=0.3, steps_share=0.05))
    lines += (line("python", 30, share=0.01, steps_share=0.01),)
    made = evidence("host", anatomy=build.opaque(lines=lines), facts=StepFacts(has_step=True, opaque=True))
    assert only(host_stall, made).location.line == 20


def test_a_callback_of_keras_is_to_do_its_work_for_few_batches(evidence, build) -> None:
    in_callback = line("python", 24).model_copy(update={"function": "on_train_batch_end"})
    found = only(host_stall, evidence("host", anatomy=build.compiled(lines=(in_callback,))))
    assert "Begin on_train_batch_end(self, batch, logs=None) with `if batch % 100: return`" in found.remedy
    elsewhere = only(host_stall, evidence("host", anatomy=build.compiled(lines=(line("python", 24),))))
    assert "batch %" not in elsewhere.remedy


def test_what_keras_makes_anew_in_each_call_has_a_rule_of_its_own(evidence, build) -> None:
    def found(anew_share: float, own_s: float) -> bool:
        """Whether it is silent, beside a call that makes things anew for so much of ten seconds."""
        known = {"calls": 100, "batches": 99, "time_s": own_s, "function_s": 0.0, "span_s": 10.0}
        place, line = CallSite(file="a.py", line=3), "model.predict_on_batch(row)"
        script = ScriptRun(keras_calls=(KerasCalls(method="predict", place=place, on_batch=line, **known),))
        facts = StepFacts(has_step=True, anew_share=anew_share)
        return silent(host_stall, evidence("host", script=script, anatomy=build.eager(), facts=facts))

    share = evidence("host", anatomy=build.eager()).share("host")
    assert found(0.6 * share, 6.0)
    assert not found(0.4 * share, 4.0), "most of it is something else"
    assert not found(0.6 * share, 0.9), "no call costs enough for that rule"
    assert not found(0.0, 6.0)


def test_no_host_stall_without_host_time(evidence, build) -> None:
    anatomy = build.compiled(lines=(line("python"),))
    for bottleneck in ("compute", "input", "dispatch", "inconclusive"):
        assert silent(host_stall, evidence(bottleneck, anatomy=anatomy))


@pytest.mark.parametrize(
    ("bottleneck", "share", "limiting", "severity"),
    [("compute", 0.3, True, "warning"), ("compute", 0.05, False, "info"), ("input", 0.3, False, "warning")],
)
def test_python_inside_the_compiled_step(evidence, build, bottleneck, share, limiting, severity) -> None:
    anatomy = build.compiled(
        python_functions_in_step=("log (train.py:8)",),
        kinds={"function": 1 - share, "python_function": share},
        lines=(line("python_function", 8),),
    )
    found = only(python_function_in_step, evidence(bottleneck, anatomy=anatomy))
    assert (found.limiting, found.severity, found.location.line) == (limiting, severity, 8)
    assert found.title.endswith("log (train.py:8)")


def test_no_python_inside(evidence, build) -> None:
    assert silent(python_function_in_step, evidence("compute", anatomy=build.compiled()))
    assert silent(python_function_in_step, evidence("compute"))
