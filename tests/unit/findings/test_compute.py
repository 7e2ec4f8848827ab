from __future__ import annotations

import pytest

from tests.unit.findings.made import mode, only, silent
from xttsbench.evidence import Compared
from xttsbench.findings.compute import cpu_placement, precision, xla_slower, xla_untried
from xttsbench.records.code import OpLine, Placement, StepOps
from xttsbench.records.trial import NOT_APPLICABLE, Devices


def xla(evidence):
    """What either rule about XLA finds."""
    return [*xla_untried(evidence), *xla_slower(evidence)]


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
    assert "without XLA the step alone runs 1.40 times as fast" in found.title
    assert silent(xla, evidence("compute", modes=modes, given_mode="graph"))
    assert silent(xla, evidence("compute", modes=mode(build, "graph", 1.02), given_mode="xla"))


GPU = Devices(gpus=("GPU:0",))


def placed(why: str, share: float | None, device: str = "CPU:0") -> StepOps:
    line = OpLine(file="train.py", line=12, function="call", phase="forward", ops=1, share=share, device=device)
    rest = Placement(op="MatMul", device="GPU:0", count=9, share=None if share is None else 1 - share, why="")
    return StepOps(
        lines=(line,), placements=(Placement(op="Unique", device=device, count=2, share=share, why=why), rest)
    )


@pytest.mark.parametrize(
    ("bottleneck", "share", "limiting", "severity"),
    [("compute", 0.4, True, "warning"), ("input", 0.4, False, "warning"), ("compute", 0.05, False, "info")],
)
def test_ops_on_the_cpu_beside_a_gpu(evidence, bottleneck, share, limiting, severity) -> None:
    made = evidence(bottleneck, step_ops=placed("no kernel for the GPU is registered", share), devices=GPU)
    (found,) = cpu_placement(made)
    assert (found.rule, found.limiting, found.severity) == ("cpu-placement", limiting, severity)
    assert (found.location.line, found.location.op) == (12, "Unique")
    assert found.evidence["count"] == 2


def test_what_was_asked_for_is_named_without_times_too(evidence) -> None:
    (found,) = cpu_placement(evidence(step_ops=placed("asked for by tf.device", None), devices=GPU))
    assert "tf.device" in found.remedy
    assert not found.limiting


def test_no_placement_without_a_gpu_or_a_cost(evidence) -> None:
    asked = "asked for by tf.device"
    assert not list(cpu_placement(evidence(step_ops=placed(asked, 0.4), devices=Devices())))
    assert not list(cpu_placement(evidence(step_ops=placed(asked, 0.001), devices=GPU)))
    assert not list(cpu_placement(evidence(step_ops=placed("", 0.4, "GPU:0"), devices=GPU)))
    assert not list(cpu_placement(evidence(devices=GPU)))


@pytest.mark.parametrize(
    ("speedup", "helps", "severity"),
    [(1.5, True, "warning"), (1.1, True, "info"), (0.8, False, "info"), (1.0, None, None)],
)
def test_precision_as_it_was_measured(evidence, build, speedup, helps, severity) -> None:
    tried = {"mixed_bfloat16": Compared("mixed_bfloat16", "ok", speedup=build.estimate(speedup))}
    found = list(precision(evidence("compute", modes=tried)))
    assert [(one.evidence["helps"], one.severity, one.limiting) for one in found] == (
        [] if helps is None else [(helps, severity, False)]
    )
    if helps:
        assert found[0].predicted_speedup.estimate == pytest.approx(speedup)
        assert "set_global_policy" in found[0].remedy


def test_a_precision_that_does_not_apply_is_silent(evidence) -> None:
    tried = {"mixed_bfloat16": Compared("mixed_bfloat16", NOT_APPLICABLE, cause="it does not follow the policy")}
    assert not list(precision(evidence("compute", modes=tried)))
