"""Gates at their limits: passed, failed, undecided, not measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.unit.conftest import noisy, segment
from xttsbench.analysis.evidence import LEAST_SCALE, Sample, paired
from xttsbench.analysis.steps import steps_of
from xttsbench.comparison.effects import Effect, effect_of
from xttsbench.comparison.figures import cv_interval
from xttsbench.comparison.gates import judge_gates
from xttsbench.records.base import Estimate
from xttsbench.records.comparison_result import ComparedPair, Figures, Limit


def between(low: float, high: float) -> Effect:
    """An effect whose 95 % confidence sequence is that, from very many processes."""
    many = 1_000_000
    error = (math.log(high) - math.log(low)) / (2 * math.sqrt(math.log(1 + 100 * many) + 2 * math.log(20)))
    sample = Sample((math.log(low) + math.log(high)) / 2, many, error**2 * many * many, many - 1, many, many)
    return effect_of(sample, LEAST_SCALE, candidates=1, margin=0.02)


def pair(effect: Effect | None = None, *, name: str = "x", method: Any = "separate sessions", **b: Any) -> ComparedPair:
    side = Figures(arm=name, status="ok", processes=8)
    told = {"effect": effect.ratio, "why": effect.why} if effect else {}
    return ComparedPair(name=name, a=side, b=side.model_copy(update=b), method=method, **told)


def outcome(limits: Mapping[Limit, float], one: ComparedPair, effect: Effect | None = None) -> str:
    (gate,) = judge_gates(limits, [one], {one.name: effect or Effect()})
    return gate.outcome


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.96, 1.02, "passed"),
        (0.9502, 1.02, "passed"),
        (0.94, 0.96, "undecided"),
        (0.80, 0.9498, "failed"),
        (1.5, 2.0, "passed"),
        (0.5, 2.0, "undecided"),
    ],
)
def test_regression_is_decided_by_the_whole_interval(low: float, high: float, expected: str) -> None:
    effect = between(low, high)
    assert outcome({"max-regression": 0.05}, pair(effect), effect) == expected


def test_no_loss_at_all_may_be_asked_for() -> None:
    effect = between(1.01, 1.02)
    assert outcome({"max-regression": 0.0}, pair(effect), effect) == "passed"


def test_one_of_many_arms_fails_only_beyond_the_corrected_interval() -> None:
    barely = between(0.90, 0.949)
    names = [f"arm{number}" for number in range(10)]
    pairs = [pair(barely if name == "arm0" else between(0.99, 1.01), name=name) for name in names]
    effects = {name: barely if name == "arm0" else between(0.99, 1.01) for name in names}
    first, *others = judge_gates({"max-regression": 0.05}, pairs, effects)
    assert outcome({"max-regression": 0.05}, pairs[0], barely) == "failed"
    assert (first.outcome, {gate.outcome for gate in others}) == ("undecided", {"passed"})
    assert "but not when 10 configurations are tried" in first.why


def test_what_is_not_sure_neither_passes_nor_fails() -> None:
    fast = Effect(paired([0.7]), why="one process")
    one = pair(fast, method="one process")
    (gate,) = judge_gates({"max-regression": 0.05}, [one], {"x": fast})
    assert (gate.outcome, gate.why) == ("undecided", "one process")
    absent = Effect(why="B was not measured (killed)")
    assert outcome({"max-regression": 0.05}, pair(absent, method="not measured"), absent) == "not measured"


FIELDS: list[tuple[Limit, str, int]] = [
    ("max-step-time", "step_time_s", 1),
    ("min-throughput", "throughput_per_s", -1),
    ("min-utilization", "utilization", -1),
    ("max-input-wait", "input_wait_fraction", 1),
]


@pytest.mark.parametrize(("limit", "field", "sign"), FIELDS)
def test_limits_on_b_alone(limit: Limit, field: str, sign: int) -> None:
    limits = {limit: 0.5}
    bad, good = Estimate(estimate=0.6, low=0.55, high=0.65), Estimate(estimate=0.4, low=0.35, high=0.5)
    if sign < 0:
        bad, good = Estimate(estimate=0.4, low=0.3, high=0.49), Estimate(estimate=0.6, low=0.5, high=0.7)
    straddling = Estimate(estimate=0.5, low=0.45, high=0.55)
    assert outcome(limits, pair(**{field: good})) == "passed"
    assert outcome(limits, pair(**{field: bad})) == "failed"
    assert outcome(limits, pair(**{field: straddling})) == "undecided"
    assert outcome(limits, pair(status="killed: by SIGKILL")) == "not measured"


def test_a_cv_is_judged_by_its_interval_and_not_by_its_value() -> None:
    """Of processes whose CV differs, a mean below the limit says nothing of the next (E11)."""
    rng = np.random.default_rng(0)

    def limited(*spreads: float) -> str:
        series = [steps_of(segment(step_s=noisy(0.01, 240, rng, spread))) for spread in spreads]
        (gate,) = judge_gates({"max-cv": 0.2}, [pair(cv_interval=cv_interval(series))], {"x": Effect()})
        return gate.outcome

    assert limited(0.1, 0.1, 0.1) == "passed"
    assert limited(0.4, 0.4, 0.4) == "failed"
    assert limited(0.19, 0.19, 0.19) == "undecided"
    assert limited(0.03, 0.3) == "undecided"
    assert limited(0.1) == "not measured"


def test_one_process_decides_nothing() -> None:
    time = Estimate(estimate=0.010, low=0.009, high=0.011)
    for limit in (0.012, 0.008):
        (gate,) = judge_gates({"max-step-time": limit}, [pair(step_time_s=time, processes=1)], {"x": Effect()})
        assert gate.outcome == "undecided"
        assert gate.why == "processes of B: 1, and a gate takes 2, since one tells nothing of the next"


def test_the_reason_of_what_is_missing_is_told() -> None:
    (gate,) = judge_gates({"min-utilization": 0.9}, [pair(status="killed: by SIGKILL")], {"x": Effect()})
    assert gate.why == "utilization was not measured (killed: by SIGKILL)"


def test_without_limits_there_are_no_gates() -> None:
    assert judge_gates({}, [pair()], {"x": Effect()}) == ()
