"""Rules on the ops of the step: devices, kernels too small, precision. Each where it fires and where it is silent."""

from __future__ import annotations

import numpy as np
import pytest

from xttsbench.analysis.attribution import StepFacts
from xttsbench.diagnosis.verdict import step_section
from xttsbench.evidence.evidence import Compared
from xttsbench.evidence.step import modes
from xttsbench.findings.compute import cpu_placement, precision
from xttsbench.findings.launch import launch_bound
from xttsbench.records.code import OpLine, Placement, StepOps
from xttsbench.records.trial import HALF_BATCH, NOT_APPLICABLE, Devices

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


def half(build, speedup: float, spread: float = 0.02) -> dict[str, Compared]:
    return {HALF_BATCH: Compared(HALF_BATCH, "ok", speedup=build.estimate(speedup, spread))}


def small(mean_s: float) -> StepOps:
    return StepOps(op_time_s=500 * mean_s, ops=500)


def test_a_step_that_half_the_batch_does_not_shorten(evidence, build) -> None:
    made = evidence("compute", modes=half(build, 1.02), step_ops=small(2e-6), anatomy=build.compiled())
    (found,) = launch_bound(made)
    assert (found.limiting, found.severity) == (True, "warning")
    assert "half a batch takes 98% of the time" in found.title
    assert "On this CPU" in found.remedy
    on_gpu = evidence("compute", modes=half(build, 1.02), step_ops=small(2e-6), anatomy=build.compiled(), devices=GPU)
    assert "too small for the GPU" in next(launch_bound(on_gpu)).title


def test_launch_bound_needs_small_ops_a_clear_interval_and_a_compiled_step(evidence, build) -> None:
    compiled = build.compiled()
    assert not list(launch_bound(evidence(modes=half(build, 1.9), step_ops=small(2e-6), anatomy=compiled)))
    assert not list(launch_bound(evidence(modes=half(build, 1.1, 0.2), step_ops=small(2e-6), anatomy=compiled)))
    assert not list(launch_bound(evidence(modes=half(build, 1.0), step_ops=small(1e-3), anatomy=compiled)))
    assert not list(launch_bound(evidence(modes=half(build, 1.0), anatomy=compiled))), "the ops were not timed"
    short = StepOps(ops=900, short_ops=900)
    assert next(launch_bound(evidence(modes=half(build, 1.0), step_ops=short, anatomy=compiled))).limiting
    eager = StepFacts(has_step=True, eager=True)
    assert not list(launch_bound(evidence(modes=half(build, 1.0), step_ops=small(2e-6), anatomy=compiled, facts=eager)))
    waits = evidence("input", modes=half(build, 1.0), step_ops=small(2e-6), anatomy=compiled)
    assert not next(launch_bound(waits)).limiting


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


def test_conditions_come_from_their_trials(build) -> None:
    measured = build.trial(
        "precision",
        build.segment("step_only", step_s=[0.2] * 40, calls_s=0.2),
        build.segment("mixed_bfloat16", step_s=[0.1] * 40, calls_s=0.1),
        notes=("mixed_float16: not applicable: no GPU",),
    )
    refused = build.trial("batch", notes=("half-batch: not applicable: the step refuses half a batch",))
    found = modes([measured, refused], [], StepFacts(has_step=True), np.random.default_rng(0))
    assert set(found) == {"mixed_bfloat16", "mixed_float16", "half-batch"}
    assert found["mixed_bfloat16"].speedup.estimate == pytest.approx(2.0)
    assert (found["half-batch"].status, found["half-batch"].speedup) == (NOT_APPLICABLE, None)
    assert found["half-batch"].cause == "the step refuses half a batch"
    assert found["mixed_float16"].cause == "no GPU"


def test_the_section_of_the_report(evidence, build) -> None:
    ladder = build.ladder()
    ops = StepOps(phases={"forward": 1.0}, op_time_s=0.01, ops=3, unmeasured={"between_ops_s": "compiled"})
    section = step_section(evidence("compute", ladder=[ladder], step_ops=ops, modes=half(build, 1.5)))
    assert section["ops"]["phases"] == {"forward": 1.0}
    assert section["shapes"][0]["traces"] == 1
    assert section["unmeasured"] == {"between_ops_s": "compiled"}
    assert section["conditions"]["half-batch"]["speedup"]["estimate"] == 1.5
    assert step_section(evidence("input", has_step=False)) is None
    assert step_section(evidence("compute"))["unmeasured"]["ops"]
