from __future__ import annotations

import numpy as np
import pytest

from tests.unit.findings.made import line, mode, only, op, silent
from xttsbench.analysis.attribution import StepFacts
from xttsbench.evidence import Compared
from xttsbench.evidence.step import modes
from xttsbench.findings.launch import eager_step, launch_bound
from xttsbench.records.code import ScriptRun, StepOps
from xttsbench.records.pipeline import Pipeline
from xttsbench.records.trial import HALF_BATCH, NOT_APPLICABLE, Devices
from xttsbench.workflows.reports.step import step_section

EAGER = StepFacts(has_step=True, eager=True)


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


GPU = Devices(gpus=("GPU:0",))


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


def test_handing_over_batches_is_found_at_the_line_that_calls_the_step(evidence, build) -> None:
    found = only(launch_bound, evidence("dispatch", anatomy=build.compiled(lines=(line("function", 88),))))
    assert (found.location.file, found.location.line, found.limiting) == ("train.py", 88, True)


def test_several_steps_a_call_are_not_advised_where_keras_2_refuses_them(evidence, build) -> None:
    pipeline = Pipeline(ops=(op("Batch/_1", "BatchDatasetV2", cardinality=-2),))
    fields = {"anatomy": build.compiled(), "script": ScriptRun(iterations=("fit",)), "pipeline": pipeline}
    refused = only(launch_bound, evidence("dispatch", devices=Devices(versions={"keras": "2.15.0"}), **fields))
    assert refused.remedy.startswith("Larger batches. Keras 2 refuses steps_per_execution for data of unknown size")
    taken = only(launch_bound, evidence("dispatch", devices=Devices(versions={"keras": "3.15.1"}), **fields))
    assert "several steps in one call" in taken.remedy


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


def test_conditions_come_from_their_trials(build) -> None:
    measured = build.trial(
        "precision",
        build.segment("step_only", step_s=[0.2] * 40, calls_s=0.2),
        build.segment("mixed_bfloat16", step_s=[0.1] * 40, calls_s=0.1),
        notes=("mixed_float16: not applicable: no GPU",),
    )
    refused = build.trial("batch", notes=("half-batch: not applicable: the step refuses half a batch",))
    found = modes([measured, refused], None, StepFacts(has_step=True), np.random.default_rng(0))
    assert set(found) == {"mixed_bfloat16", "mixed_float16", "half-batch"}
    assert found["mixed_bfloat16"].speedup.estimate == pytest.approx(2.0)
    assert (found["half-batch"].status, found["half-batch"].speedup) == (NOT_APPLICABLE, None)
    assert found["half-batch"].cause == "the step refuses half a batch"
    assert found["mixed_float16"].cause == "no GPU"


def test_a_mode_that_a_script_s_step_failed_in_keeps_its_reason(build) -> None:
    script = build.trial("script", build.segment("step_only", step_s=[0.2] * 40), notes=("xla: not applicable: no op",))
    found = modes([script], None, StepFacts(has_step=True), np.random.default_rng(0))
    assert (found["xla"].status, found["xla"].cause, found["xla"].speedup) == (NOT_APPLICABLE, "no op", None)


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
