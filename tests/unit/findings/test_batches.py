from __future__ import annotations

import pytest

from tests.unit.findings.made import only, op, silent
from xttsbench.analysis.variation import Explanation, LengthVariance, Stragglers
from xttsbench.findings.elements import dynamic_shape, nan_batch, padding_waste
from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline
from xttsbench.records.trial import Batches, Trace


def batches(**fields) -> Batches:
    return Batches(**({"cached": 8, "bytes": 64, "shapes": ("[(8, 9)]",)} | fields))


@pytest.mark.parametrize(("share", "severity"), [(0.29, None), (0.3, "info"), (0.5, "warning"), (None, None)])
def test_padding(evidence, share, severity) -> None:
    found = list(padding_waste(evidence("input", batches=batches(padding_share=share, padding_component="mel"))))
    assert [one.severity for one in found] == ([severity] if severity else [])
    if found:
        assert found[0].evidence["padding_efficiency"] == pytest.approx(1 - share)
        assert "of mel is padding" in found[0].title
        assert not found[0].limiting


def test_padding_names_the_op_and_what_is_left_to_do(evidence) -> None:
    padded = op("Pad/_2", "PaddedBatchDatasetV2", location=Location(file="a.py", line=4))
    bucketed = op("Group/_3", "GroupByWindowDataset", location=Location(file="a.py", line=6))
    one = {"batches": batches(padding_share=0.6, padding_component="mel")}
    several = {"batches": batches(padding_share=0.6, padding_component="mel", shapes=("[(8, 9)]", "[(8, 7)]"))}
    found = only(padding_waste, evidence(pipeline=Pipeline(ops=(padded,)), **one))
    assert (found.location.op, found.location.line) == ("Pad/_2", 4)
    assert "padded to one length" in found.remedy
    assert "similar length" in only(padding_waste, evidence(pipeline=Pipeline(ops=(padded,)), **several)).remedy
    wide = only(padding_waste, evidence(pipeline=Pipeline(ops=(bucketed, padded)), **several))
    assert (wide.location.line, "too wide" in wide.remedy) == (6, True)


def test_what_padding_costs_where_steps_grow_with_it(evidence, build) -> None:
    none = Stragglers(
        indices=build.steps(step_s=[0.1]).shape_id[:0], threshold_s=1.0, excess_s_per_step=0.0, share_of_time=0.0
    )

    def told(slope: float, p_value: float):
        length = LengthVariance(share=0.9, slope_s_per_element=slope, p_value=p_value)
        return evidence(
            batches=batches(padding_share=0.5, padding_component="mel"),
            steps=build.steps(step_s=[0.1] * 10),  # of 800 elements each
            explanation=Explanation(length, build.steps(step_s=[0.1] * 10).step_s, none),
        )

    assert only(padding_waste, told(1e-4, 1e-6)).evidence["step_s_that_goes_to_padding"] == pytest.approx(0.04)
    assert only(padding_waste, told(1e-4, 0.5)).evidence.get("step_s_that_goes_to_padding") is None
    assert only(padding_waste, told(-1e-4, 1e-6)).evidence.get("step_s_that_goes_to_padding") is None


def shapes_and_steps(build, **columns):
    trace = Trace(step=3, function="step", reason="shape", signature="s", time_s=0.1)
    return {
        "batches": batches(shapes=("[(8, 9)]", "[(8, 10)]", "[(8, 11)]")),
        "steps": build.steps(step_s=[0.1] * 10, **({"traces": [0, 1] * 5} | columns)),
        "traces": (trace,),
    }


def test_shapes_that_trace_or_compile_the_step_again(evidence, build) -> None:
    found = only(dynamic_shape, evidence("compile", **shapes_and_steps(build)))
    assert (found.limiting, found.severity) == (True, "warning")
    assert found.evidence["shapes"] == 3
    assert found.evidence["traces_by_shape"] == 1
    assert "pad_to_bucket_boundary" in found.remedy
    xla = shapes_and_steps(build, traces=0, xla_compiles=[0, 1] * 5) | {"traces": ()}
    assert only(dynamic_shape, evidence("compile", **xla)).evidence["xla_compiles_in_steady_state"] == 5


@pytest.mark.parametrize(
    ("shapes", "count_only"),
    [
        (("[(8, 9), (8,)]", "[(7, 9), (7,)]", "[(3, 9), (3,)]"), True),
        (("[(8, 9), (8,)]", "[(8, 7), (8,)]", "[(3, 9), (3,)]"), False),
        (("(?", "b", "c"), None),
    ],
)
def test_batches_of_another_size_want_another_remedy(evidence, build, shapes, count_only) -> None:
    facts = shapes_and_steps(build) | {"batches": batches(shapes=shapes)}
    found = only(dynamic_shape, evidence("compile", **facts))
    assert found.evidence.get("only_the_number_of_elements_differs") is count_only
    assert ("Only the number" in found.remedy) is bool(count_only)


def test_many_shapes_that_cost_nothing_are_none_of_its_business(evidence, build) -> None:
    facts = shapes_and_steps(build)
    assert silent(dynamic_shape, evidence("compute", **facts)), "no time goes into compilation"
    assert silent(dynamic_shape, evidence("compile", **facts, has_step=False))
    assert silent(dynamic_shape, evidence("compile", **(facts | {"batches": batches(shapes=("a", "b"))})))
    assert silent(dynamic_shape, evidence("compile", **(facts | {"traces": ()})))
    assert silent(dynamic_shape, evidence("compile"))


def test_nan_in_the_batches(evidence) -> None:
    found = only(nan_batch, evidence("compute", batches=batches(nonfinite=("mel", "text"))))
    assert (found.severity, found.limiting) == ("critical", False)
    assert "(mel, text)" in found.title
    assert silent(nan_batch, evidence("compute", batches=batches()))
    assert silent(nan_batch, evidence("compute"))
