"""What sweeps come to: rates by hand whose winner is known, ties, deaths, and what must hold for any rates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.comparison.rates import WOBBLE, seen
from xttsbench.comparison.sweep import Choice, choose, cost
from xttsbench.records.plan import Comparison, PlannedArm, Procedure

COST = ("prefetch", "workers")


def chosen(
    comparison: Comparison,
    truth: Mapping[str, float],
    procedure: Procedure | None = None,
    *,
    blocks: int = 8,
    gone: Mapping[str, str] | None = None,
    again: float = 1.0,
) -> Choice:
    """All arms in so many blocks, each arm's log rate off by its own turn of the same small numbers."""
    rates = {
        arm.id: [
            truth[arm.id.removesuffix(":again")]
            * (again if arm.role == "aa" else 1.0)
            * math.exp(0.2 * WOBBLE[(3 * place + number) % 8])
            for number in range(blocks)
        ]
        for place, arm in enumerate(comparison.arms)
    }
    return choose(comparison, procedure or Procedure(), seen(rates, gone))


def test_a_known_winner_is_named_with_its_effect(build) -> None:
    truth = {"a": 100, "b": 120, "c": 110, "d": 90, "e": 100}
    found = chosen(build.comparison(*truth), truth)
    assert (found.winner, found.proven, found.decided, found.tied_with) == ("b", True, True, ())
    assert (found.blocks, found.rounds) == (8, 8)
    assert found.effect.estimate == pytest.approx(1.2)
    assert found.effect.low < 1.2 < found.effect.high
    assert found.evidence > 80
    assert 0 < found.smallest_visible_effect < 0.1
    assert found.why == (
        f"b is 1.200x ({found.effect.low:.3f} to {found.effect.high:.3f}) as fast as a in 8 rounds of 8 processes; the "
        f"smallest effect that could have been decided is {found.smallest_visible_effect:.1%}."
    )


def test_a_tie_goes_to_the_cheaper_arm(build) -> None:
    configs = {"a": {"prefetch": 1}, "b": {"prefetch": 8}, "c": {"prefetch": 2}, "d": {"prefetch": 4}}
    truth = {"a": 100, "b": 120.2, "c": 119.8, "d": 120.0}
    found = chosen(build.comparison(*truth, configs=configs), truth, Procedure(cost=COST))
    assert (found.winner, found.proven, found.tied_with) == ("c", True, ("b", "d"))
    assert "the cheapest of 3 without a proven difference" in found.why


def test_an_arm_that_is_slower_by_more_than_a_quarter_of_the_margin_is_no_tie(build) -> None:
    configs = {"a": {"prefetch": 1}, "b": {"prefetch": 8}, "c": {"prefetch": 2}}
    comparison = build.comparison("a", "b", "c", configs=configs)
    apart = chosen(comparison, {"a": 100, "b": 120, "c": 119}, Procedure(cost=COST))
    assert (apart.winner, apart.tied_with) == ("b", ())
    near = chosen(comparison, {"a": 100, "b": 120, "c": 119.6}, Procedure(cost=COST))
    assert (near.winner, near.tied_with) == ("c", ("b",))
    wider = comparison.model_copy(update={"margin": 0.04})
    assert chosen(wider, {"a": 100, "b": 120, "c": 119.1}, Procedure(cost=COST)).winner == "c"


def test_without_a_cost_a_tie_goes_to_the_first_of_the_plan(build) -> None:
    truth = {"a": 100, "b": 120, "c": 120.1}
    assert chosen(build.comparison(*truth), truth).winner == "b"


def test_no_gain_that_matters_leaves_the_baseline(build) -> None:
    truth = {"a": 100, "b": 100.1, "c": 99.9, "d": 90}
    found = chosen(build.comparison(*truth), truth, blocks=16)
    assert (found.winner, found.proven, found.effect, found.decided) == ("a", False, None, True)
    assert found.tied_with == ("b", "c")
    assert found.why.startswith(
        "a is kept: of 3 configurations none is faster by 2% or more; the smallest effect that "
    )


@pytest.mark.parametrize(
    ("values", "order"),
    [
        ([8, 2, -1, 0], [3, 1, 0, 2]),
        ([True, False, -1], [1, 0, 2]),
        (["many", 4, -1], [1, 2, 0]),
        ([None, -1], [1, 0]),
        ([0.5, 0.25], [1, 0]),
    ],
)
def test_costs_are_in_the_declared_order(values, order) -> None:
    arms = [PlannedArm(id=str(value), role="candidate", kwargs={"key": value}) for value in values]
    assert sorted(range(len(arms)), key=lambda index: cost(arms[index], ["key"])) == order


def test_the_first_key_weighs_most_and_one_that_is_not_named_is_dearest() -> None:
    arms = {
        name: PlannedArm(id=name, role="candidate", kwargs=kwargs)
        for name, kwargs in {
            "little": {"prefetch": 1, "workers": 8},
            "less": {"prefetch": 1, "workers": 2},
            "auto": {"prefetch": -1, "workers": 1},
            "unknown": {"workers": 1},
        }.items()
    }
    assert sorted(arms, key=lambda name: cost(arms[name], COST)) == ["less", "little", "auto", "unknown"]


def test_a_second_run_of_the_baseline_that_differs_takes_more_evidence_and_forbids_nothing(build) -> None:
    truth = {"a": 100, "b": 108, "c": 300}
    comparison = build.comparison(*truth)
    assert chosen(comparison, truth | {"c": 100}, again=1.0).winner == "b"
    other = chosen(comparison, truth | {"c": 100}, again=1.15)
    assert (other.winner, other.decided) == ("a", False)
    assert other.why.startswith("a is kept: b, c may be faster, and is undecided: b looks 1.08")
    assert chosen(comparison, truth, again=1.15).winner == "c"


def test_a_winner_takes_two_processes(build) -> None:
    truth = {"a": 100, "b": 300}
    one, two = (chosen(build.comparison(*truth), truth, blocks=blocks) for blocks in (1, 2))
    assert (one.winner, one.proven, one.decided) == ("a", False, False)
    assert (two.winner, two.proven, two.blocks) == ("b", True, 2)


def test_what_may_still_be_faster_is_said(build) -> None:
    truth = {"a": 100, "b": 160, "c": 157.5}
    found = chosen(build.comparison(*truth), truth, blocks=2)
    assert found.winner == "b"
    assert "; c may still be faster; " in found.why


def test_an_arm_that_dies_is_out_and_the_next_one_wins(build) -> None:
    truth = {"a": 100, "b": 121, "c": 120}
    found = chosen(build.comparison(*truth), truth, gone={"b": "killed: killed by SIGKILL"})
    assert (found.winner, found.proven, found.tied_with) == ("c", True, ())


@pytest.mark.parametrize("name", ["a", "a:again"])
def test_a_dead_baseline_is_said(build, name) -> None:
    truth = {"a": 100, "b": 120}
    found = chosen(build.comparison(*truth), truth, gone={name: "killed: killed by SIGKILL."})
    assert (found.winner, found.proven) == ("a", False)
    said = "a is kept: nothing can be compared, since the baseline ended (killed: killed by SIGKILL);"
    assert found.why.startswith(said)


def test_no_arm_left_is_said(build) -> None:
    truth = dict.fromkeys("abcdef", 100.0)
    gone = dict.fromkeys("bcdef", "raised: ValueError: no file.")
    found = choose(build.comparison(*truth), Procedure(), seen({}, gone))
    assert (found.winner, found.proven, found.smallest_visible_effect) == ("a", False, None)
    assert "no candidate ran to its end (b: raised: ValueError: no file; c: " in found.why
    assert "; and 2 more)" in found.why
    assert choose(build.comparison("a", "b"), Procedure(), seen({})).why.startswith("a is kept: nothing was measured;")


@settings(max_examples=60, deadline=None)
@given(
    speeds=st.lists(st.floats(0.3, 4.0), min_size=1, max_size=5),
    blocks=st.integers(1, 10),
    noise=st.floats(0.0, 0.3),
    seed=st.integers(0, 1000),
)
def test_whatever_the_rates_what_is_proven_is_faster_and_the_same_again(build, speeds, blocks, noise, seed) -> None:
    rng = np.random.default_rng(seed)
    names = ["a", *(f"b{index}" for index in range(len(speeds)))]
    comparison = build.comparison(*names)
    truth: dict[str, Any] = dict(zip(names, [1.0, *speeds], strict=True)) | {"a:again": 1.0}
    rates = {arm.id: (truth[arm.id] * np.exp(noise * rng.normal(size=blocks))).tolist() for arm in comparison.arms}
    found = choose(comparison, Procedure(), seen(rates))
    assert found == choose(comparison, Procedure(), seen(rates))
    assert found.winner in names
    assert found.proven == (found.winner != "a") == (found.effect is not None)
    if found.proven:
        assert found.blocks >= 2
        assert found.effect.estimate > 1
        assert found.evidence >= 20 * len(speeds)
        assert found.winner not in found.tied_with
