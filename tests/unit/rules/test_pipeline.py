from __future__ import annotations

import pytest

from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction
from xttsbench.records.trial import Batches, Trace
from xttsbench.rules import batches as batch_rules
from xttsbench.rules import pipeline as rules
from xttsbench.rules.evidence import Compared


def op(name: str, kind: str, **fields) -> PipelineOp:
    return PipelineOp(name=name, op=kind, **fields)


def only(rule, evidence):
    (found,) = rule(evidence)
    return found


def silent(rule, evidence) -> bool:
    return not list(rule(evidence))


def python_pipeline(gil: str = "holds", share: float = 0.9) -> Pipeline:
    function = PythonFunction(
        token="t", kind="numpy_function", name="load", gil=gil, location=Location(file="data.py", line=9, op="Map/_2")
    )
    ops = (
        op("Range/_1", "RangeDataset", cost_s=1 - share),
        op("Map/_2", "MapDataset", cost_s=share, python_functions=("t",)),
    )
    return Pipeline(ops=ops, python_functions=(function,))


@pytest.mark.parametrize(
    ("gil", "title", "remedy"),
    [
        ("holds", "holds the interpreter lock", "more parallel calls cannot help"),
        ("blocks", "blocks without computing", "private thread pool"),
        ("releases", "releases the interpreter lock", "parallel calls scale"),
        ("unknown", "may or may not hold", "Measure it alone"),
    ],
)
def test_a_python_function_is_judged_by_its_class(evidence, gil: str, title: str, remedy: str) -> None:
    found = only(rules.python_function, evidence("input", pipeline=python_pipeline(gil)))
    assert (found.rule, found.limiting, found.severity) == ("python-function", True, "warning")
    assert found.title.startswith(f"load() runs as numpy_function in Map/_2 and {title}")
    assert remedy in found.remedy
    assert (found.location.file, found.location.line) == ("data.py", 9)
    assert found.evidence["cost_share"] == pytest.approx(0.9)
    assert found.predicted_speedup is not None


def test_it_is_left_alone_where_it_does_not_limit(evidence) -> None:
    for made in (
        evidence("compute", pipeline=python_pipeline()),
        evidence("input", pipeline=python_pipeline(share=0.29)),
        evidence("inconclusive", pipeline=python_pipeline()),
    ):
        found = only(rules.python_function, made)
        assert (found.limiting, found.severity, found.predicted_speedup) == (False, "info", None)
        assert found.remedy.startswith("Leave it alone")
    assert only(rules.python_function, evidence("input", pipeline=python_pipeline(share=0.31))).limiting


def test_no_python_function_no_finding(evidence) -> None:
    assert silent(rules.python_function, evidence("input", pipeline=Pipeline()))
    assert silent(rules.python_function, evidence("input"))


def fixed(build, name: str, speedup: float | None = 2.5, spread: float = 0.02) -> dict[str, Compared]:
    estimate = None if speedup is None else build.estimate(speedup, spread)
    return {name: Compared(name, "ok" if speedup else "raised", speedup=estimate, processes=1)}


MAPS = Pipeline(
    ops=(
        op("Range/_1", "RangeDataset"),
        op("Map/_2", "MapDataset", cost_s=0.1, location=Location(file="a.py", line=1)),
        op("Map/_3", "MapDataset", cost_s=0.3, location=Location(file="a.py", line=2)),
        op("Batch/_4", "BatchDatasetV2"),
    ),
    injects_prefetch=False,
)
STRUCTURAL = pytest.mark.parametrize(
    ("rule", "fix", "name"),
    [
        (rules.sequential_map, "parallel-map", "sequential-map"),
        (rules.no_prefetch, "prefetch", "no-prefetch"),
        (rules.thread_pool, "thread-pool:32", "thread-pool"),
    ],
)


@STRUCTURAL
def test_a_structural_rule_fires_where_its_own_fix_helped(evidence, build, rule, fix: str, name: str) -> None:
    found = only(rule, evidence("input", pipeline=MAPS, fixes=fixed(build, fix)))
    assert (found.rule, found.limiting, found.severity) == (name, True, "critical")
    assert found.predicted_speedup.estimate == 2.5
    assert found.evidence["measured_with"] == fix
    assert only(rule, evidence("input", pipeline=MAPS, fixes=fixed(build, fix, 1.5))).severity == "warning"


@STRUCTURAL
def test_and_only_there(evidence, build, rule, fix: str, name: str) -> None:
    def told(bottleneck: str = "input", **changes):
        return evidence(bottleneck, **({"pipeline": MAPS, "fixes": fixed(build, fix)} | changes))

    assert not silent(rule, told())
    assert silent(rule, told(fixes={})), "not tried"
    assert silent(rule, told(fixes=fixed(build, fix, None))), "it failed"
    assert silent(rule, told(fixes=fixed(build, fix, 1.04, 0.0))), "it did not help enough"
    assert silent(rule, told(fixes=fixed(build, fix, 1.2, 0.2))), "it may not have helped"
    assert silent(rule, told(fixes=fixed(build, "other"))), "another fix helped"
    assert silent(rule, told("compute")), "the step does not wait"
    assert silent(rule, told("inconclusive"))
    assert silent(rule, told(pipeline=None))


def test_the_map_that_costs_most_is_named(evidence, build) -> None:
    found = only(rules.sequential_map, evidence("input", pipeline=MAPS, fixes=fixed(build, "parallel-map")))
    assert (found.location.op, found.location.line) == ("Map/_3", 2)
    assert found.evidence["cost_share"] == pytest.approx(0.75)
    assert found.evidence["sequential_maps"] == 2


def test_the_end_of_the_pipeline_is_where_a_prefetch_is_missing(evidence, build) -> None:
    found = only(rules.no_prefetch, evidence("input", pipeline=MAPS, fixes=fixed(build, "prefetch")))
    assert found.location.op == "Batch/_4"
    assert found.evidence["tensorflow_injects_prefetch"] is False


def test_a_pool_that_helped_is_given_its_size(evidence, build) -> None:
    blocking = python_pipeline("blocks").model_copy(update={"threadpool_size": None})
    found = only(rules.thread_pool, evidence("input", pipeline=blocking, fixes=fixed(build, "thread-pool:64")))
    assert "private_threadpool_size = 64" in found.remedy
    assert "one thread a core" in found.title
    assert found.location.line == 9
    assert found.evidence["tried_size"] == 64


@pytest.mark.parametrize(
    ("size", "gil", "fires"), [(17, None, True), (16, None, False), (64, "blocks", False), (None, None, False)]
)
def test_a_pool_far_larger_than_the_cores(evidence, size, gil, fires: bool) -> None:
    base = python_pipeline(gil) if gil else MAPS
    found = list(rules.thread_pool(evidence("compute", pipeline=base.model_copy(update={"threadpool_size": size}))))
    assert bool(found) is fires
    if fires:
        assert (found[0].severity, found[0].limiting) == ("info", False)


def prefetches(*, adjacent: bool) -> Pipeline:
    first = op("Prefetch/_2", "PrefetchDataset", inputs=("Range/_1",), buffer_size=10, chosen_buffer_size=40)
    between = () if adjacent else (op("Batch/_3", "BatchDatasetV2", inputs=("Prefetch/_2",)),)
    last = op("Prefetch/_4", "PrefetchDataset", inputs=("Prefetch/_2" if adjacent else "Batch/_3",), buffer_size=-1)
    return Pipeline(ops=(op("Range/_1", "RangeDataset"), first, *between, last))


def test_prefetch_after_prefetch_is_redundant_without_measuring(evidence) -> None:
    found = only(rules.redundant_prefetch, evidence("compute", pipeline=prefetches(adjacent=True)))
    assert (found.severity, found.limiting, found.location.op) == ("info", False, "Prefetch/_2")
    assert (found.evidence["prefetches"], found.evidence["buffered_elements"]) == (2, 40)
    assert found.predicted_speedup is None


@pytest.mark.parametrize(("speed", "fires"), [(1.0, True), (0.97, True), (0.9, False), (None, False)])
def test_another_one_where_leaving_it_out_was_not_slower(evidence, build, speed, fires: bool) -> None:
    fixes = fixed(build, "drop-prefetch", speed) if speed else {}
    assert (
        silent(rules.redundant_prefetch, evidence("compute", pipeline=prefetches(adjacent=False), fixes=fixes))
        is not fires
    )


def test_one_prefetch_is_not_redundant(evidence, build) -> None:
    one = Pipeline(ops=prefetches(adjacent=False).ops[2:])
    assert silent(rules.redundant_prefetch, evidence("input", pipeline=one, fixes=fixed(build, "drop-prefetch", 1.0)))
    assert silent(rules.redundant_prefetch, evidence("input"))


def batches(**fields) -> Batches:
    return Batches(**({"cached": 8, "bytes": 64, "shapes": ("(8, 9)",), "static_signature": "?"} | fields))


@pytest.mark.parametrize(("share", "severity"), [(0.29, None), (0.3, "info"), (0.5, "warning"), (None, None)])
def test_padding(evidence, share, severity) -> None:
    found = list(
        batch_rules.padding_waste(evidence("input", batches=batches(padding_share=share, padding_component="mel")))
    )
    assert [f.severity for f in found] == ([severity] if severity else [])
    if found:
        assert found[0].evidence["padding_efficiency"] == pytest.approx(1 - share)
        assert "of mel is padding" in found[0].title
        assert not found[0].limiting


def shapes_and_steps(build, **columns):
    trace = Trace(step=3, function="step", reason="shape", signature="s", time_s=0.1)
    return {
        "batches": batches(shapes=("(8, 9)", "(8, 10)", "(8, 11)")),
        "steps": build.steps(step_s=[0.1] * 10, **({"traces": [0, 1] * 5} | columns)),
        "traces": (trace,),
    }


def test_shapes_that_trace_or_compile_the_step_again(evidence, build) -> None:
    found = only(batch_rules.dynamic_shape, evidence("compile", **shapes_and_steps(build)))
    assert (found.limiting, found.severity) == (True, "warning")
    assert found.evidence["shapes"] == 3
    assert found.evidence["traces_by_shape"] == 1
    xla = shapes_and_steps(build, traces=0, xla_compiles=[0, 1] * 5) | {"traces": ()}
    assert only(batch_rules.dynamic_shape, evidence("compile", **xla)).evidence["xla_compiles_in_steady_state"] == 5


def test_many_shapes_that_cost_nothing_are_none_of_its_business(evidence, build) -> None:
    facts = shapes_and_steps(build)
    assert silent(batch_rules.dynamic_shape, evidence("compute", **facts)), "no time goes into compilation"
    assert silent(batch_rules.dynamic_shape, evidence("compile", **facts, has_step=False))
    assert silent(batch_rules.dynamic_shape, evidence("compile", **(facts | {"batches": batches(shapes=("a", "b"))})))
    assert silent(batch_rules.dynamic_shape, evidence("compile", **(facts | {"traces": ()})))
    assert silent(batch_rules.dynamic_shape, evidence("compile"))


def test_nan_in_the_batches(evidence) -> None:
    found = only(batch_rules.nan_batch, evidence("compute", batches=batches(nonfinite=("mel", "text"))))
    assert (found.severity, found.limiting) == ("critical", False)
    assert "(mel, text)" in found.title
    assert silent(batch_rules.nan_batch, evidence("compute", batches=batches()))
    assert silent(batch_rules.nan_batch, evidence("compute"))
