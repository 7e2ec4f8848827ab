from __future__ import annotations

import pytest

from tests.unit.findings.made import only, silent
from xttsbench.analysis.attribution import StepFacts
from xttsbench.evidence.evidence import Compared
from xttsbench.findings.compilation import retracing, xla_recompilation
from xttsbench.findings.compute import xla_slower, xla_untried
from xttsbench.findings.host import host_stall, host_sync, python_function_in_step
from xttsbench.findings.launch import eager_step
from xttsbench.records.base import Location
from xttsbench.records.report import Oscillation
from xttsbench.records.trial import Devices, StackLine, Trace

EAGER = StepFacts(has_step=True, eager=True)


def xla(evidence):
    """What either rule about XLA finds."""
    return [*xla_untried(evidence), *xla_slower(evidence)]


def line(
    kind: str, number: int = 7, *, share: float = 0.5, steps_share: float = 1.0, file: str = "train.py"
) -> StackLine:
    return StackLine(file=file, line=number, function="step", kind=kind, share=share, steps_share=steps_share)


def mode(build, name: str, speedup: float | None, spread: float = 0.01, **fields) -> dict[str, Compared]:
    return {name: Compared(name, "ok", speedup=build.estimate(speedup, spread) if speedup else None, **fields)}


def trace(reason: str) -> Trace:
    return Trace(step=5, function="train_step", reason=reason, signature="(8, 16)", time_s=0.2)


def test_an_eager_step_that_loses_to_dispatch(evidence, build) -> None:
    anatomy = build.eager(lines=(line("python", 3), line("tensorflow", 12)))
    modes = mode(build, "graph", 5.0, fetches_removed=True)
    found = only(eager_step, evidence("dispatch", facts=EAGER, anatomy=anatomy, modes=modes))
    assert (found.rule, found.limiting, found.severity) == ("eager-step", True, "critical")
    assert (found.location.file, found.location.line) == ("train.py", 12)
    assert found.evidence["eager_ops_per_step"] == 100
    assert found.evidence["host_reads_removed_to_trace"] is True
    # Compute and dispatch are the whole step, so Amdahl's law gives the step's own speed-up.
    assert found.predicted_speedup.estimate == pytest.approx(5.0)
    unknown = only(eager_step, evidence("dispatch", facts=EAGER, anatomy=anatomy))
    assert unknown.predicted_speedup.estimate == 2.0, "the ceiling, where the graph was not measured"


def test_amdahl_leaves_the_wait_as_it_is(evidence, build) -> None:
    # Half of the step waits for input: a step five times as fast makes the whole 1 / (0.5 + 0.1) times as fast.
    found = only(eager_step, evidence("input", facts=EAGER, anatomy=build.eager(), modes=mode(build, "graph", 5.0)))
    assert found.predicted_speedup.estimate == pytest.approx(1 / 0.6)
    assert (found.limiting, found.severity) == (False, "info")


def test_a_compiled_step_is_not_eager(evidence, build) -> None:
    assert silent(eager_step, evidence("compute", anatomy=build.compiled()))
    assert silent(eager_step, evidence("compute", facts=EAGER))


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


@pytest.mark.parametrize(
    ("speedup", "rule", "severity"),
    [
        (1.5, "xla-untried", "warning"),
        (1.1, "xla-untried", "info"),
        (1.03, None, None),
        (0.97, None, None),
        (0.7, "xla-slower", "info"),
    ],
)
def test_xla_beside_a_graph(evidence, build, speedup: float, rule, severity) -> None:
    found = list(xla(evidence("compute", modes=mode(build, "xla", speedup, compile_s=3.0))))
    assert [(f.rule, f.severity, f.limiting) for f in found] == ([(rule, severity, False)] if rule else [])
    if rule == "xla-untried":
        assert found[0].predicted_speedup.estimate == pytest.approx(speedup)
        assert found[0].evidence["first_compilation_s"] == 3.0


def test_a_speed_up_that_may_be_none_is_not_named(evidence, build) -> None:
    assert silent(xla, evidence("compute", modes=mode(build, "xla", 1.2, 0.2)))
    assert silent(xla, evidence("compute", modes=mode(build, "xla", None)))
    assert silent(xla, evidence("compute"))


def test_a_step_that_uses_xla_and_would_be_faster_without(evidence, build) -> None:
    modes = mode(build, "graph", 1.4)
    found = only(xla, evidence("compute", modes=modes, given_mode="xla"))
    assert (found.rule, found.severity) == ("xla-slower", "warning")
    assert "without XLA the step runs 1.40 times as fast" in found.title
    assert silent(xla, evidence("compute", modes=modes, given_mode="graph"))
    assert silent(xla, evidence("compute", modes=mode(build, "graph", 1.02), given_mode="xla"))


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
