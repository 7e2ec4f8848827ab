from __future__ import annotations

import numpy as np
import pytest

from xttsbench.analysis.variance import explain
from xttsbench.records.report import Oscillation
from xttsbench.rules import time as rules

PERIODIC = Oscillation(period_steps=10.0, period_s=1.0, variance_share=0.8, p_value=0.001)


def only(rule, evidence):
    (found,) = rule(evidence)
    return found


def silent(rule, evidence) -> bool:
    return not list(rule(evidence))


def stalls(every: int = 10, steps: int = 100) -> np.ndarray:
    return (np.arange(steps) % every == every - 1).astype(float)


@pytest.mark.parametrize(
    ("columns", "side", "limited_by"),
    [
        ({"wait_s": 0.001 + 0.2 * stalls(), "step_s": 0.01, "calls_s": 0.01}, "input", "input"),
        ({"wait_s": 0.001, "step_s": 0.01 + 0.2 * stalls(), "calls_s": 0.01}, "host", "host"),
        ({"wait_s": 0.001, "step_s": 0.01 + 0.2 * stalls(), "calls_s": 0.01 + 0.2 * stalls()}, "step", None),
    ],
)
def test_the_side_that_has_the_period_is_named(evidence, build, columns, side: str, limited_by) -> None:
    steps = build.steps(**columns)
    found = only(rules.oscillation, evidence(side if limited_by else "compute", steps=steps, oscillation=PERIODIC))
    assert found.evidence["side"] == side
    assert f"every 10.0 steps; the {side} side" in found.title
    assert found.severity == "warning"
    assert found.limiting is (limited_by is not None)
    assert (found.predicted_speedup is not None) is found.limiting
    other = only(rules.oscillation, evidence("dispatch", steps=steps, oscillation=PERIODIC))
    assert not other.limiting


def test_a_bare_dataset_has_only_its_input_side(evidence, build) -> None:
    steps = build.steps(wait_s=0.001 + 0.2 * stalls())
    assert only(rules.oscillation, evidence("input", has_step=False, steps=steps, oscillation=PERIODIC)).limiting


@pytest.mark.parametrize(("height", "severity"), [(0.2, "warning"), (0.005, "info"), (0.001, None)])
def test_a_period_of_no_consequence_is_not_told(evidence, build, height: float, severity) -> None:
    steps = build.steps(wait_s=0.001, step_s=0.01 + height * stalls(), calls_s=0.01)
    found = list(rules.oscillation(evidence("compute", steps=steps, oscillation=PERIODIC)))
    assert [f.severity for f in found] == ([severity] if severity else [])


@pytest.mark.parametrize(
    "oscillation", [Oscillation(), Oscillation(period_steps=10.0), PERIODIC.model_copy(update={"variance_share": 0.05})]
)
def test_no_period_no_finding(evidence, build, oscillation) -> None:
    steps = build.steps(wait_s=0.001 + 0.2 * stalls())
    assert silent(rules.oscillation, evidence("input", steps=steps, oscillation=oscillation))
    assert silent(rules.oscillation, evidence("input", oscillation=PERIODIC))


def straggling(build, *, in_wait: bool, height: float = 0.5):
    late = np.zeros(100)
    late[[20, 70]] = height
    steps = build.steps(wait_s=0.01 + late * in_wait, step_s=0.09 + late * (not in_wait))
    return {"steps": steps, "explanation": explain(steps.wall_s, steps.batch_elements)}


def test_stragglers_of_the_input(evidence, build) -> None:
    found = only(rules.stragglers, evidence("input", **straggling(build, in_wait=True)))
    assert (found.limiting, found.severity) == (True, "warning")
    assert found.title == "2 of 100 steps take 9% of the time beyond the median"
    assert found.evidence["first_steps"] == "20, 70"
    assert found.evidence["in_wait"] == pytest.approx(1.02 / 1.2)
    assert "elements of those batches" in found.remedy


def test_stragglers_of_the_step(evidence, build) -> None:
    found = only(rules.stragglers, evidence("input", **straggling(build, in_wait=False)))
    assert not found.limiting
    assert "what the step does" in found.remedy


def test_a_straggler_that_costs_little_is_not_told(evidence, build) -> None:
    assert silent(rules.stragglers, evidence("input", **straggling(build, in_wait=True, height=0.2)))
    assert silent(rules.stragglers, evidence("input", **straggling(build, in_wait=True, height=0.0)))
    assert silent(rules.stragglers, evidence("input"))


def test_length_that_explains_the_variation_is_no_fault(evidence, build) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(100, 1000, 200)
    wall = 1e-4 * lengths + 0.002 * rng.standard_normal(200) + 0.01
    found = only(rules.length_variance, evidence("compute", explanation=explain(wall, lengths)))
    assert (found.severity, found.limiting) == ("info", False)
    assert found.evidence["slope_s_per_element"] == pytest.approx(1e-4, rel=0.05)
    assert found.evidence["variance_share"] > 0.95
    assert found.remedy.startswith("Not a fault")


def test_length_that_does_not(evidence, build) -> None:
    rng = np.random.default_rng(0)
    lengths, wall = rng.integers(100, 1000, 200), 0.1 + 0.01 * rng.standard_normal(200)
    assert silent(rules.length_variance, evidence("compute", explanation=explain(wall, lengths)))
    weak = wall + 1e-5 * lengths
    assert explain(weak, lengths).length.p_value < 0.01
    assert silent(rules.length_variance, evidence("compute", explanation=explain(weak, lengths))), "half is the bar"
    assert silent(rules.length_variance, evidence("compute", explanation=explain(wall, np.full(200, 5))))
    assert silent(rules.length_variance, evidence("compute"))
