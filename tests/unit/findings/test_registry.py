from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from xttsbench import findings
from xttsbench.analysis.attribution import StepFacts
from xttsbench.analysis.variation import explain
from xttsbench.evidence import Compared
from xttsbench.records.base import Estimate, Location
from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction
from xttsbench.records.report import Finding, Oscillation
from xttsbench.records.trial import Batches, Devices, StackLine, Trace


def ugly(evidence, build, bottleneck: str, **changes):
    """Everything wrong at once, beside a step that does not wait for any of it."""
    rng = np.random.default_rng(0)
    late = 0.5 * (np.arange(200) % 20 == 19)
    lengths = rng.integers(100, 1000, 200)
    steps = build.steps(
        wait_s=0.001 + late,
        step_s=0.1 + 1e-4 * lengths,
        calls_s=0.05,
        traces=np.arange(200) % 7 == 0,
        xla_compiles=np.arange(200) % 9 == 0,
        syncs=3,
        sync_s=0.05,
        gc_s=0.02,
        batch_elements=lengths,
        shape_id=np.arange(200) % 5,
    )
    ops = (
        PipelineOp(name="Range/_1", op="RangeDataset", cost_s=1e-3),
        PipelineOp(name="Map/_2", op="MapDataset", cost_s=9.0, python_functions=("t",), stateful=True),
        PipelineOp(name="Prefetch/_3", op="PrefetchDataset", inputs=("Map/_2",), buffer_size=500),
        PipelineOp(name="Prefetch/_4", op="PrefetchDataset", inputs=("Prefetch/_3",)),
    )
    function = PythonFunction(
        token="t", kind="py_function", name="load", gil="holds", location=Location(file="data.py", line=3)
    )
    line = StackLine(file="train.py", line=5, function="f", kind="python", share=0.6, steps_share=0.1)
    speedups = {"parallel-map": 3.0, "prefetch": 2.0, "thread-pool:32": 4.0}
    planted = {
        "steps": steps,
        "facts": StepFacts(has_step=True, eager=True, holds_gil=True, cores_busy=1.0),
        "pipeline": Pipeline(
            ops=ops, python_functions=(function,), threadpool_size=500, autotune=False, injects_prefetch=False
        ),
        "anatomy": build.eager(lines=(line,), kinds={"tensorflow": 0.3, "python": 0.4, "io": 0.3}),
        "batches": Batches(
            cached=8,
            bytes=10**9,
            shapes=tuple(f"(8, {n})" for n in range(40)),
            padding_share=0.9,
            padding_component="mel",
            nonfinite=("mel",),
        ),
        "traces": tuple(
            Trace(step=n, function="step", reason="shape", signature="s", time_s=1.0) for n in range(1, 30)
        ),
        "modes": {name: Compared(name, "ok", speedup=build.estimate(6.0)) for name in ("graph", "xla")},
        "fixes": {
            name: Compared(name, "ok", speedup=build.estimate(value), processes=1) for name, value in speedups.items()
        },
        "input_cpu_s": build.estimate(0.19),
        "oscillation": Oscillation(period_steps=20.0, variance_share=0.9, p_value=1e-6),
        "explanation": explain(steps.wall_s, steps.batch_elements),
        "devices": Devices(inter_op_threads=64, intra_op_threads=64),
        "environment": {
            "cpu": {"allowed_cpus": 2.0, "quota_cpus": 2.0, "affinity_cpus": 64},
            "gpus": [{"name": "A100"}],
        },
    }
    return evidence(bottleneck, **(planted | changes))


@pytest.mark.parametrize("rule", findings.rules().values(), ids=lambda rule: rule.id)
@pytest.mark.parametrize("bottleneck", ["compute", "inconclusive"])
def test_nothing_is_limiting_where_the_step_loses_to_nothing(evidence, build, rule, bottleneck: str) -> None:
    assert not [found for found in rule(ugly(evidence, build, bottleneck)) if found.limiting]


_CAUSES = ("compute", "input", "compile", "host", "contention", "transfer")


def test_all_that_is_planted_is_seen(evidence, build) -> None:
    """Else the test above would show nothing."""
    seen = set()
    for bottleneck, given_mode in itertools.product(_CAUSES, ("graph", "xla")):
        seen |= {found.rule for found in findings.find(ugly(evidence, build, bottleneck, given_mode=given_mode))}
    assert seen == {
        "python-function",
        "sequential-map",
        "no-prefetch",
        "redundant-prefetch",
        "thread-pool",
        "padding-waste",
        "dynamic-shape",
        "nan-batch",
        "eager-step",
        "retracing",
        "xla-recompilation",
        "xla-untried",
        "xla-slower",
        "host-sync",
        "host-stall",
        "oscillation",
        "stragglers",
        "length-variance",
        "gpu-invisible",
        "cpu-quota",
        "input-bound",
        "core-contention",
        "device-copies",
        "outgrown-machine",
    }


@pytest.mark.parametrize("bottleneck", ["input", "dispatch", "compile", "host", "transfer", "contention"])
def test_what_is_limiting_has_to_do_with_the_bottleneck(evidence, build, bottleneck: str) -> None:
    allowed = {
        "input": {"input-bound", "python-function", "sequential-map", "no-prefetch", "oscillation", "stragglers"}
        | {"outgrown-machine"},
        "dispatch": {"eager-step"},
        "compile": {"retracing", "xla-recompilation", "dynamic-shape"},
        "host": {"host-stall", "host-sync"},
        "transfer": {"device-copies"},
        "contention": {"cpu-quota", "core-contention"},
    }
    limiting = {found.rule for found in findings.find(ugly(evidence, build, bottleneck)) if found.limiting}
    assert limiting == allowed[bottleneck]


def test_nothing_known_gives_nothing(evidence) -> None:
    found = {finding.rule for finding in findings.find(evidence("compute", environment={}))}
    assert found == set()
    assert {finding.rule for finding in findings.find(evidence("input", environment={}))} == {"input-bound"}


@pytest.mark.parametrize("bottleneck", ["input", "dispatch", "transfer", "contention"])
def test_no_cause_is_without_a_limiting_finding(evidence, bottleneck: str) -> None:
    found = findings.find(evidence(bottleneck, facts=StepFacts(has_step=True), environment={}))
    assert any(finding.limiting for finding in found)


def test_a_short_compiled_step_is_bound_by_its_launches_and_an_eager_one_is_not(evidence) -> None:
    short = findings.find(evidence("dispatch", facts=StepFacts(has_step=True, handoff_s=1e-4)))
    assert [finding.rule for finding in short if finding.limiting] == ["launch-bound"]
    eager = findings.find(evidence("dispatch", facts=StepFacts(has_step=True, eager=True, handoff_s=1e-4)))
    assert "launch-bound" not in {finding.rule for finding in eager}


def test_every_finding_of_every_rule_is_complete(evidence, build) -> None:
    for bottleneck in ("compute", "input", "host", "compile", "dispatch", "contention"):
        for found in findings.find(ugly(evidence, build, bottleneck)):
            assert found.title
            assert found.remedy
            assert found.evidence
            assert Finding.model_validate_json(found.model_dump_json()) == found


def finding(name: str, *, limiting: bool = False, predicted=None, verified=None, severity: str = "info") -> Finding:
    return Finding(
        rule=name,
        severity=severity,
        limiting=limiting,
        title=name,
        predicted_speedup=predicted,
        verified_speedup=verified,
    )


def test_findings_are_ordered_by_what_the_fix_is_worth(evidence, build, monkeypatch: pytest.MonkeyPatch) -> None:
    ordered = [
        finding("limits, 3x", limiting=True, predicted=build.estimate(3.0)),
        finding("limits, verified 2.5x", limiting=True, predicted=build.estimate(9.0), verified=build.estimate(2.5)),
        finding("limits, critical", limiting=True, severity="critical"),
        finding("limits, warning", limiting=True, severity="warning"),
        finding("limits, another warning", limiting=True, severity="warning"),
        finding("20x, but it does not limit", predicted=build.estimate(20.0)),
        finding("2x, but it does not limit", predicted=build.estimate(2.0), severity="critical"),
        finding("critical", severity="critical"),
        finding("info"),
    ]
    shuffled = [*ordered[5:], *ordered[:5]][::-1]
    shuffled.remove(ordered[4])
    shuffled.insert(shuffled.index(ordered[3]) + 1, ordered[4])  # equal ones stay in the order of the rules
    monkeypatch.setattr(findings, "rules", lambda: {"planted": lambda _: iter(shuffled)})
    assert [found.rule for found in findings.find(evidence())] == [found.rule for found in ordered]


def test_a_cause_stands_above_what_only_says_when_time_goes():
    def found(rule, speedup, *, limiting=True):
        gain = Estimate(estimate=speedup, low=speedup, high=speedup)
        return SimpleNamespace(
            rule=rule, limiting=limiting, verified_speedup=None, predicted_speedup=gain, severity="warning"
        )

    given = [
        found("input-bound", 9.0),
        found("stragglers", 3.0),
        found("cacheable", 1.2),
        found("python-function", 1.5),
        found("no-prefetch", 8.0, limiting=False),
    ]
    assert {one.rule for one in given} <= set(findings.rules())
    assert [one.rule for one in sorted(given, key=findings.worth)] == [
        "python-function",
        "cacheable",
        "stragglers",
        "input-bound",
        "no-prefetch",
    ]


def test_what_is_worse_than_slow_comes_first() -> None:
    leak, slow = finding("memory-leak", severity="critical"), finding("cacheable", severity="critical", limiting=True)
    mild = finding("drift", severity="warning")
    assert sorted([slow, mild, leak], key=findings.worth) == [leak, slow, mild]
