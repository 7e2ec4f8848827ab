"""What sweeps come to: rates by hand whose winner is known, ties, noise, deaths, and what must hold for any rates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xttsbench.records.plan import Comparison, PlannedArm, Procedure
from xttsbench.rules.rounds import Result, next_round
from xttsbench.rules.winner import Choice, choose, cost

WOBBLE = (0.5, -0.5, 1.0, -1.0, 0.2, -0.2, 0.7, -0.7)
COST = ("prefetch", "workers")


def confirmed(
    comparison: Comparison,
    truth: Mapping[str, float],
    *,
    procedure: Procedure | None = None,
    noise: float = 0.002,
    again: float = 1.0,
    blocks: int | None = None,
    gone: Mapping[str, str] | None = None,
) -> tuple[Result, ...]:
    """All rounds of a sweep, each arm's log rate off by its own turn of the same small numbers, whose sum is nothing.

    ``again`` is how fast the baseline's second run is against the first, ``blocks`` cuts the last round, and ``gone``
    are arms that end there.
    """
    procedure = procedure or Procedure()
    results: list[Result] = []
    while (asked := next_round(comparison, procedure, results)) is not None:
        rates = {}
        for place, arm in enumerate(asked.comparison.arms):
            true = truth[arm.id.removesuffix(":again")] * (again if arm.role == "aa" else 1.0)
            rates[arm.id] = {
                block: true * math.exp(noise * WOBBLE[(3 * place + number) % 8])
                for number, block in enumerate(asked.blocks)
            }
        results.append(Result(asked, rates, {}))
    last = results[-1]
    left = set(last.round.blocks[:blocks])
    rates = {arm: {block: rate for block, rate in own.items() if block in left} for arm, own in last.rates.items()}
    return (*results[:-1], replace(last, rates=rates, gone=gone or {}))


def chosen(
    comparison: Comparison, truth: Mapping[str, float], procedure: Procedure | None = None, **how: Any
) -> Choice:
    procedure = procedure or Procedure()
    return choose(comparison, procedure, confirmed(comparison, truth, procedure=procedure, **how))


def test_a_known_winner_is_named_with_its_effect(build) -> None:
    truth = {"a": 100, "b": 120, "c": 110, "d": 90, "e": 100}
    found = chosen(build.comparison(*truth), truth)
    assert (found.winner, found.proven, found.blocks, found.tied_with, found.noisy) == ("b", True, 8, (), False)
    assert found.effect.estimate == pytest.approx(1.2)
    assert 1.19 < found.effect.low < 1.2 < found.effect.high < 1.21
    assert 0 < found.smallest_visible_effect < 0.01
    assert found.why == (
        f"b is 1.200x ({found.effect.low:.3f} to {found.effect.high:.3f}) as fast as a in 8 fresh blocks; the smallest "
        f"effect that could have been seen is {found.smallest_visible_effect:.1%}."
    )


def test_the_screening_has_no_say_in_the_effect(build) -> None:
    """An arm that was lucky in the screening and is not faster in fresh blocks does not win."""
    truth = {"a": 100.0, "b": 100.0, "c": 90.0, "d": 90.0, "e": 90.0}
    comparison = build.comparison(*truth)
    lucky = confirmed(comparison, truth | {"b": 200.0})
    honest = {arm: own for arm, own in lucky[1].rates.items() if arm != "b"}
    honest["b"] = {block: rate / 2 for block, rate in lucky[1].rates["b"].items()}
    found = choose(comparison, Procedure(), (lucky[0], replace(lucky[1], rates=honest)))
    assert (found.winner, found.proven, found.effect, found.tied_with) == ("a", False, None, ("b",))
    assert "no finalist was shown to be faster (b is 1.000x" in found.why


def test_a_tie_goes_to_the_cheaper_arm(build) -> None:
    configs = {"a": {"prefetch": 1}, "b": {"prefetch": 8}, "c": {"prefetch": 2}, "d": {"prefetch": 4}}
    truth = {"a": 100, "b": 120.2, "c": 119.8, "d": 120.0}
    found = chosen(build.comparison(*truth, configs=configs), truth, Procedure(cost=COST))
    assert (found.winner, found.proven, found.tied_with) == ("c", True, ("b", "d"))
    assert "the cheapest of 3 that cannot be told apart" in found.why


def test_an_arm_that_is_slower_by_more_than_half_the_margin_is_no_tie(build) -> None:
    configs = {"a": {"prefetch": 1}, "b": {"prefetch": 8}, "c": {"prefetch": 2}}
    comparison = build.comparison("a", "b", "c", configs=configs)
    apart = chosen(comparison, {"a": 100, "b": 120, "c": 118.5}, Procedure(cost=COST))
    assert (apart.winner, apart.tied_with) == ("b", ())
    near = chosen(comparison, {"a": 100, "b": 120, "c": 119}, Procedure(cost=COST))
    assert (near.winner, near.tied_with) == ("c", ("b",))
    wider = chosen(
        comparison.model_copy(update={"margin": 0.04}), {"a": 100, "b": 120, "c": 118.5}, Procedure(cost=COST)
    )
    assert wider.winner == "c"


def test_without_a_cost_a_tie_goes_to_the_first_of_the_plan(build) -> None:
    truth = {"a": 100, "b": 120, "c": 120.1}
    assert chosen(build.comparison(*truth), truth).winner == "b"


def test_a_candidate_that_is_merely_equivalent_leaves_the_baseline(build) -> None:
    truth = {"a": 100, "b": 100.8, "c": 100.6}
    found = chosen(build.comparison(*truth), truth)
    assert (found.winner, found.proven, found.effect, found.tied_with) == ("a", False, None, ("b", "c"))


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


def test_a_noisy_session_names_no_winner(build) -> None:
    truth = {"a": 100, "b": 200}
    wide = chosen(build.comparison(*truth), truth, noise=0.2)
    assert (wide.winner, wide.proven, wide.noisy) == ("a", False, True)
    assert "the session is noisy (the baseline against itself: 1.000x (" in wide.why
    assert wide.smallest_visible_effect > 0.05
    other = chosen(build.comparison(*truth), truth, again=1.03)
    assert (other.winner, other.noisy) == ("a", True)


def test_a_screening_without_anything_faster_keeps_the_baseline(build) -> None:
    truth = {"a": 100, "b": 99, "c": 98, "d": 100.5, "e": 90}
    found = chosen(build.comparison(*truth), truth)
    assert (found.winner, found.proven, found.blocks, found.noisy) == ("a", False, 0, None)
    assert found.smallest_visible_effect is not None
    assert found.why.startswith("a is kept: of 4 arms none looks faster by 2% or more in 4 blocks of screening; the ")


def test_a_confirmation_cut_short_decides_from_six_blocks_on(build) -> None:
    truth = {"a": 100, "b": 120}
    six, five = (chosen(build.comparison(*truth), truth, blocks=blocks) for blocks in (6, 5))
    assert (six.winner, six.proven, six.blocks) == ("b", True, 6)
    assert (five.winner, five.proven, five.blocks, five.effect) == ("a", False, 5, None)
    assert "the confirmation has 5 whole blocks, and a decision takes 6" in five.why


def test_a_finalist_that_dies_is_out_and_the_next_one_wins(build) -> None:
    truth = {"a": 100, "b": 121, "c": 120}
    found = chosen(build.comparison(*truth), truth, gone={"b": "killed: killed by SIGKILL"})
    assert (found.winner, found.proven, found.tied_with) == ("c", True, ())


@pytest.mark.parametrize("name", ["a", "a:again"])
def test_a_dead_baseline_is_said(build, name) -> None:
    truth = {"a": 100, "b": 120}
    found = chosen(build.comparison(*truth), truth, gone={name: "killed: killed by SIGKILL."})
    assert (found.winner, found.proven) == ("a", False)
    assert found.why.startswith(
        "a is kept: nothing can be compared, since the baseline ended (killed: killed by SIGKILL);"
    )


def test_no_arm_left_is_said(build) -> None:
    truth = dict.fromkeys("abcdef", 100.0)
    gone = dict.fromkeys("bcdef", "raised: ValueError: no file.")
    comparison = build.comparison(*truth)
    screening = next_round(comparison, Procedure(), ())
    found = choose(comparison, Procedure(), [Result(screening, {}, gone)])
    assert (found.winner, found.proven, found.smallest_visible_effect) == ("a", False, None)
    assert "no candidate ran to its end (b: raised: ValueError: no file; c: " in found.why
    assert "; and 2 more)" in found.why


def test_a_run_that_ended_early_is_said(build) -> None:
    truth = {"a": 100.0, "b": 120.0, "c": 120.0, "d": 120.0, "e": 120.0}
    comparison = build.comparison(*truth)
    assert "nothing was measured" in choose(comparison, Procedure(), ()).why
    results = confirmed(comparison, truth)
    cut = {arm: dict(list(own.items())[:2]) for arm, own in results[0].rates.items()}
    for early in ([replace(results[0], rates=cut)], results[:1]):
        found = choose(comparison, Procedure(), early)
        assert (found.winner, found.proven) == ("a", False)
        assert "the run ended before the best arms were confirmed" in found.why
    alone = choose(build.comparison("a"), Procedure(), ())
    assert "there is nothing to compare it with" in alone.why


def _swept(comparison: Comparison, logs: Mapping[str, float], seed: int, noise: float, scale: float = 1.0) -> Choice:
    """A sweep whose noise belongs to the arm's name and the block, whatever the order of the arms."""
    results: list[Result] = []
    while (asked := next_round(comparison, Procedure(), results)) is not None:
        rates = {}
        for arm in asked.comparison.arms:
            rng = np.random.default_rng([seed, asked.first_block, *arm.id.encode()])
            own = np.exp(logs[arm.id.removesuffix(":again")] + noise * rng.standard_normal(len(asked.blocks)))
            rates[arm.id] = dict(zip(asked.blocks, (scale * own).tolist(), strict=True))
        results.append(Result(asked, rates, {}))
    return choose(comparison, Procedure(), results)


truths = st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=24).map(
    lambda logs: {f"arm{number}": log for number, log in enumerate(logs)}
)
seeds = st.integers(0, 2**32 - 1)


@given(truths, seeds, st.data())
@settings(max_examples=40, deadline=None)
def test_an_arm_far_faster_in_every_block_wins(build, truth, seed, data) -> None:
    fast = data.draw(st.sampled_from(sorted(truth)[1:]))
    found = _swept(build.comparison(*truth), truth | {fast: 2.0}, seed, 0.005)
    if found.noisy:  # one quiet session in a hundred is called so
        assert not found.proven
    else:
        assert (found.winner, found.proven, found.tied_with) == (fast, True, ())


@given(truths, seeds, st.data())
@settings(max_examples=40, deadline=None)
def test_the_order_of_the_plan_and_the_unit_change_nothing(build, truth, seed, data) -> None:
    names = list(truth)
    other = build.comparison(names[0], *data.draw(st.permutations(names[1:])))
    scale = 2.0 ** data.draw(st.integers(-20, 20))  # exact, so that the logarithms of ratios are the same
    before = _swept(build.comparison(*names), truth, seed, 0.02)
    after = _swept(other, truth, seed, 0.02, scale)
    assert {before.winner, *before.tied_with} == {after.winner, *after.tied_with}
    assert (before.proven, before.noisy, before.blocks) == (after.proven, after.noisy, after.blocks)


@given(truths, seeds, st.data())
@settings(max_examples=40, deadline=None)
def test_nobody_that_is_gone_wins_and_every_answer_is_whole(build, truth, seed, data) -> None:
    comparison = build.comparison(*truth)
    rng = np.random.default_rng(seed)
    results: list[Result] = []
    while (asked := next_round(comparison, Procedure(), results)) is not None:
        names = [arm.id for arm in asked.comparison.arms]
        gone = data.draw(st.lists(st.sampled_from(names), max_size=2))
        rates = {
            name: {
                block: math.exp(truth[name.removesuffix(":again")] + 0.01 * rng.standard_normal())
                for block in asked.blocks
            }
            for name in names
        }
        results.append(Result(asked, rates, dict.fromkeys(gone, "killed: it was")))
    found = choose(comparison, Procedure(), results)
    gone_at_all = {name for result in results for name in result.gone}
    assert found.proven == (found.effect is not None) == (found.winner != "arm0")
    assert found.winner == "arm0" or found.winner not in gone_at_all
    assert not gone_at_all & set(found.tied_with)
    assert found.winner not in found.tied_with
    assert not (found.proven and (found.noisy or found.blocks < 6 or found.effect.low <= 1))
    assert found == choose(comparison, Procedure(), results)
