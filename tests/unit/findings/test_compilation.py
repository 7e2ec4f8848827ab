from __future__ import annotations

import pytest

from tests.unit.findings.made import line, only, silent, trace
from xttsbench.findings.compilation import partial_batch, retracing, xla_recompilation
from xttsbench.records.base import Location
from xttsbench.records.code import KerasCalls, ScriptRun
from xttsbench.records.pipeline import CallSite
from xttsbench.records.report import Finding
from xttsbench.records.trial import TrialError


@pytest.mark.parametrize(
    ("reason", "words", "remedy"),
    [
        ("new function object", "made anew", "Make the tf.function once"),
        ("shape", "each new shape", "a few fixed shapes"),
        ("python value", "each new Python value", "as tensors"),
        ("other", "differ", "signatures"),
    ],
)
def test_retracing_names_the_most_common_reason(evidence, build, reason: str, words: str, remedy: str) -> None:
    rare = trace("other" if reason != "other" else "shape")
    traces = (trace("first"), trace("first"), trace("first"), rare, trace(reason), trace(reason))
    steps = build.steps(step_s=[0.1] * 8, traces=[0, 1] * 4)
    found = only(retracing, evidence("compile", steps=steps, traces=traces))
    assert (found.limiting, found.severity) == (True, "critical")
    assert found.title.startswith("train_step is traced again after the first step: ")
    assert words in found.title
    assert found.evidence["reason"] == reason
    assert remedy in found.remedy
    assert found.evidence["traces_in_steady_state"] == 4
    assert found.evidence["traces_with_this_reason"] == 2
    assert found.evidence["trace_time_s"] == pytest.approx(0.2)


def test_the_function_whose_traces_cost_most_is_named(evidence, build) -> None:
    small = trace("shape").model_copy(update={"function": "map_fn", "time_s": 0.01})
    steps = build.steps(step_s=[0.1] * 8, traces=[0, 1] * 4)
    found = only(retracing, evidence("compile", steps=steps, traces=(*[small] * 9, trace("new function object"))))
    assert found.title.startswith("train_step is traced again after the first step: the tf.function is made anew")


def test_a_model_that_is_compiled_before_each_fit_is_told_to_be_compiled_once(evidence, build) -> None:
    known = {"on_batch": "model.train_on_batch(x, y)", "time_s": 9.0, "function_s": 5.0, "span_s": 9.0}
    calls = KerasCalls(method="fit", place=CallSite(file="train.py", line=18), calls=30, batches=600, **known)
    script = ScriptRun(iterations=("fit",), keras_calls=(calls,))
    steps = build.steps(step_s=[0.1] * 8, traces=[0, 1] * 4)

    def found_for(function: str) -> Finding:
        again = trace("new function object").model_copy(update={"function": function})
        return only(retracing, evidence("compile", steps=steps, traces=(trace("first"), again), script=script))

    assert "Make the tf.function once" in found_for("own_step").remedy
    assert "steps_per_epoch" in found_for("_remote_next_func").remedy, "TensorFlow's, of each replica's iterator"
    found = found_for("multi_step_on_iterator")
    assert found.title.endswith("compile() in a loop makes Keras's functions anew")
    assert found.remedy.startswith("Move `model.compile(...)` in front of the loop")
    assert found.location == Location(file="train.py", line=18)


def test_without_a_line_that_traces_it_is_where_the_step_is_defined(evidence, build) -> None:
    steps = build.steps(step_s=[0.1] * 8, traces=[0, 1] * 4, xla_compiles=[0, 1] * 4)
    place = Location(file="train.py", line=9)
    ladder = (build.ladder(wait=0.001, step=0.1).model_copy(update={"step_place": place}),)
    for rule in (retracing, xla_recompilation):
        made = evidence("compile", steps=steps, traces=(trace("shape"),), ladder=ladder)
        assert only(rule, made).location == place
        lines = build.compiled(lines=(line("function", 12),))
        assert only(rule, evidence("compile", steps=steps, traces=(trace("shape"),), anatomy=lines)).location.line == 12


def test_traces_of_the_beginning_are_no_retracing(evidence, build) -> None:
    steady, busy = build.steps(step_s=[0.1] * 8), build.steps(step_s=[0.1] * 8, traces=[0, 1] * 4)
    assert silent(retracing, evidence("compile", steps=steady, traces=(trace("shape"),)))
    assert silent(retracing, evidence("compile", steps=busy, traces=(trace("first"),)))
    assert silent(retracing, evidence("compile"))


def test_what_a_loop_traces_around_a_step_that_is_replaced_is_none_of_the_step(evidence, build) -> None:
    """An emulated accelerator stands for it; a dataset that is made anew in each epoch is traced then."""
    busy = build.steps(step_s=[0.1] * 8, traces=[0, 1] * 4, xla_compiles=[0, 1] * 4)
    for rule in (retracing, xla_recompilation):
        assert silent(rule, evidence("compute", steps=busy, traces=(trace("shape"),), has_step=False, emulated=True))


def test_xla_that_compiles_again(evidence, build) -> None:
    step = [0.1, 0.1, 0.1, 0.6, 0.1, 0.4]
    steps = build.steps(step_s=step, xla_compiles=[0, 0, 0, 1, 0, 2], shape_id=[0, 0, 0, 1, 0, 2])
    found = only(xla_recompilation, evidence("compile", steps=steps))
    assert (found.limiting, found.severity) == (True, "critical")
    assert found.title == "XLA compiled 3 times in 6 steady steps"
    assert (found.evidence["shapes_compiled"], found.evidence["traces_in_the_same_steps"]) == (2, 0)
    assert found.evidence["compile_s_per_compile"] == pytest.approx((0.5 + 0.3) / 3)
    assert silent(xla_recompilation, evidence("compile", steps=build.steps(step_s=step, traces=1)))
    assert silent(xla_recompilation, evidence("compile"))


SIZES = [8, 8, 8, 4] * 3


EPOCHS = [0] * 4 + [1] * 4 + [2] * 4


def ran(build, *, compiles, traces=0, error=None):
    step = [0.6 if compiled else 0.1 for compiled in compiles]
    as_is = build.segment(
        "as_is",
        batch_size=SIZES,
        epoch=EPOCHS,
        xla_compiles=compiles,
        traces=traces,
        step_s=step,
        shape_id=[0, 0, 0, 1] * 3,
    )
    return build.trial("ladder", as_is, **({"error": error, "status": "raised"} if error else {}))


def test_a_last_batch_that_compiles_every_time_limits(evidence, build) -> None:
    trial = ran(build, compiles=[0, 0, 0, 1] * 3)
    steps = build.steps(step_s=[0.1, 0.1, 0.1, 0.6] * 3, xla_compiles=[0, 0, 0, 1] * 3, batch_size=SIZES)
    (found,) = partial_batch(evidence("compile", ladder=[trial], steps=steps))
    assert (found.rule, found.limiting, found.severity) == ("partial-batch", True, "critical")
    assert "4 rows instead of 8" in found.title
    assert found.evidence["xla_compiles"] == 3
    assert found.evidence["lost_s"] == pytest.approx(1.5)
    assert found.evidence["share_of_steady_steps"] == pytest.approx(1.5 / 2.7)
    assert found.predicted_speedup.estimate == 2.0


def test_one_compilation_before_the_steady_state_limits_nothing(evidence, build) -> None:
    trial = ran(build, compiles=[0, 0, 0, 1] + [0] * 8)
    steady = build.steps(step_s=[0.1] * 8, batch_size=SIZES[4:])
    (found,) = partial_batch(evidence("compute", ladder=[trial], steps=steady))
    assert (found.limiting, found.severity) == (False, "warning")
    assert found.evidence["share_of_steady_steps"] == 0.0


def test_a_last_batch_that_costs_nothing_is_no_finding(evidence, build) -> None:
    assert not list(partial_batch(evidence("compute", ladder=[ran(build, compiles=[0] * 12)])))
    assert not list(partial_batch(evidence("compute", ladder=[ran(build, compiles=[1] + [0] * 11)]))), "the first one"
    assert not list(partial_batch(evidence("compute")))
    assert not list(partial_batch(evidence("input", has_step=False, ladder=[ran(build, compiles=[0, 0, 0, 1] * 3)])))


def test_a_step_that_raises_at_the_smaller_batch(evidence, build) -> None:
    error = TrialError(type="ValueError", message="shapes", file="train.py", line=9, step=12, batch_size=4)
    whole = build.segment("as_is", batch_size=8, step_s=[0.1] * 12)
    trial = build.trial("ladder", whole, error=error, status="raised")
    (found,) = partial_batch(evidence("compute", ladder=[trial]))
    assert (found.severity, found.limiting, found.location.line) == ("critical", False, 9)
    assert "at a batch of 4 rows, where those before had 8" in found.title
    same = build.trial("ladder", whole, error=error.model_copy(update={"batch_size": 8}), status="raised")
    assert not list(partial_batch(evidence("compute", ladder=[same]))), "it would have raised at any batch"


def test_recompilation_names_the_costliest_shape(evidence, build) -> None:
    trial = ran(build, compiles=[0, 0, 0, 1] * 3)
    steps = build.steps(step_s=[0.1, 0.1, 0.1, 0.6] * 3, xla_compiles=[0, 0, 0, 1] * 3)
    (found,) = xla_recompilation(evidence("compile", ladder=[trial], steps=steps))
    assert found.evidence["costliest_shape"] == "shape 1"
    assert found.evidence["costliest_shape_lost_s"] == pytest.approx(1.5)
