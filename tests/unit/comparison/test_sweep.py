"""What a sweep measures next, from hand-built rates whose answers are known."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xttsbench.analysis.evidence import paired
from xttsbench.comparison.sweep import (
    Choice,
    Round,
    Seen,
    choose,
    cost,
    next_round,
    rounds_of_a_process,
    seen_in,
    state_of,
)
from xttsbench.records.plan import Comparison, PlannedVariant, Procedure

WOBBLE = (0.01, -0.01, 0.003, -0.003, 0.006, -0.006, 0.008, -0.008)


def seen(rates: Mapping[str, list[float]], gone: Mapping[str, str] | None = None) -> Seen:
    """Blocks of one round each, from each arm's rates; ``nan`` is a block that it was not in."""

    def versus(over: str, under: str):
        pairs = zip(rates.get(over, []), rates.get(under, []), strict=False)
        ratios = [math.log(a / b) for a, b in pairs if not math.isnan(a + b)]
        return paired(ratios) if ratios else None

    processes = {name: sum(not math.isnan(rate) for rate in own) for name, own in rates.items()}
    return Seen(versus, gone or {}, processes, max(map(len, rates.values()), default=0))


def ids(asked: Round | None) -> list[str]:
    assert asked is not None
    return [arm.id for arm in asked.comparison.arms]


@pytest.fixture
def sweep(build: SimpleNamespace):
    """``sweep(truth, procedure)``: the rounds of a sweep on a quiet machine, and how it ends."""

    def rounds(truth: Mapping[str, float], procedure: Procedure | None = None, **fields: Any):
        comparison = build.comparison(*truth, **fields)
        rates: dict[str, list[float]] = {arm.id: [] for arm in comparison.arms}
        asked, made = next_round(comparison, procedure or Procedure(), seen({})), []
        while asked is not None:
            for place, (name, own) in enumerate(rates.items()):
                wobble = WOBBLE[(len(made) + place) % len(WOBBLE)]
                rate = truth[name.removesuffix(":again")] * math.exp(wobble)
                own.append(rate if name in ids(asked) else math.nan)
            made.append(asked)
            asked = next_round(comparison, procedure or Procedure(), seen(rates))
        return made, state_of(comparison, seen(rates))

    return rounds


def test_every_arm_is_measured_once_and_then_those_that_may_still_win(sweep) -> None:
    (first, *others), state = sweep({"a": 100, "b": 300, "c": 105, "d": 290, "e": 30})
    assert (ids(first), first.first_block) == (["a", "b", "c", "d", "e", "a:again"], 0)
    assert ids(others[0]) == ["a", "b", "d", "a:again"]  # c is a third as fast as b
    assert [asked.first_block for asked in others] == list(range(1, len(others) + 1))
    assert state.winners == ("b", "d")
    assert state.ahead == ()
    assert (state.out["c"], state.out["e"]) == ("slower than b", "slower")


def test_a_large_gain_takes_two_processes_and_no_more(sweep) -> None:
    rounds, state = sweep({"a": 100, "b": 800})
    assert (len(rounds), state.winners) == (2, ("b",))


def test_arms_without_a_gain_that_matters_end_it(sweep) -> None:
    rounds, state = sweep({"a": 100, "b": 100.1, "c": 99})
    assert 2 < len(rounds) < Procedure().blocks
    assert (state.winners, state.open) == ((), ())
    assert set(state.out.values()) == {"no gain of 2% to be seen"}


def test_the_winner_is_measured_beside_what_may_beat_it(sweep) -> None:
    rounds, state = sweep({"a": 100, "b": 120, "c": 119, "d": 118.5}, Procedure(blocks=6))
    assert all("b" in ids(asked) for asked in rounds)
    assert len(rounds) <= 6
    assert state.winners[0] == "b"


def test_no_arm_has_more_processes_than_it_may(sweep) -> None:
    rounds, _ = sweep({"a": 100, "b": 103, "c": 102}, Procedure(blocks=3))
    assert len(rounds) == 3


def test_the_baseline_is_measured_twice_in_the_first_blocks(sweep) -> None:
    rounds, _ = sweep({"a": 100, "b": 104}, Procedure(blocks=9))
    assert len(rounds) > 4
    assert ["a:again" in ids(asked) for asked in rounds] == [True] * 4 + [False] * (len(rounds) - 4)


def test_noise_keeps_in_question_what_quiet_rounds_throw_out(build) -> None:
    comparison = build.comparison("a", "b", "c")
    quiet = {"a": [100, 101, 100], "b": [150, 151, 149], "c": [120, 121, 120], "a:again": [101, 100, 100]}
    loud = quiet | {"a": [100, 160, 120], "a:again": [140, 110, 80]}
    assert "c" in state_of(comparison, seen(quiet)).out
    assert state_of(comparison, seen(loud)).open == ("b", "c")


def test_who_is_gone_is_out_and_a_baseline_that_is_gone_ends_it(build) -> None:
    comparison = build.comparison("a", "b", "c")
    rates = {"a": [100.0], "b": [900.0], "c": [105.0]}
    found = state_of(comparison, seen(rates, {"b": "killed"}))
    assert (found.open, found.out["b"]) == (("c",), "killed")
    assert ids(next_round(comparison, Procedure(), seen(rates, {"b": "killed"}))) == ["a", "c", "a:again"]
    for name in ("a", "a:again"):
        assert next_round(comparison, Procedure(), seen(rates, {name: "killed"})) is None
    assert next_round(comparison, Procedure(), seen({}, {"b": "refused", "c": "refused"})) is None


def test_an_arm_that_missed_a_block_goes_on(build) -> None:
    comparison = build.comparison("a", "b", "c")
    rates = {"a": [100.0, 101.0], "b": [104.0, math.nan], "c": [104.0, 104.5], "a:again": [100.0, 101.0]}
    assert ids(next_round(comparison, Procedure(), seen(rates))) == ["a", "b", "c", "a:again"]


def test_a_journal_says_what_was_measured(build) -> None:
    comparison = build.comparison("a", "b", "c", "d")
    trials = [
        build.parity("b", "c", "d"),
        *(
            build.arm_trial(arm, wall, block=0)
            for arm, wall in (("a", 0.04), ("b", 0.02), ("c", 0.04), ("a:again", 0.04))
        ),
        build.arm_trial("a", 0.04, block=1),
        build.dead("d", block=0),
        build.dead("b", "interrupted", block=1),
        build.arm_trial("b", 9.0, group="another", block=7),
    ]
    found = seen_in(comparison, trials)
    assert found.processes == {"a": 2, "b": 1, "c": 1, "d": 0, "a:again": 1}
    assert (found.next_block, list(found.gone)) == (2, ["d"])
    assert found.versus("b", "a").mean == pytest.approx(math.log(2), abs=0.02)
    assert found.versus("b", "d") is None
    state = state_of(comparison, found)
    assert state.found["b"].word == "faster"
    assert state.winners == ()  # one process


@pytest.mark.parametrize(("noise", "rounds"), [(0.0, 3), (0.03, 3), (0.06, 3), (0.1, 6), (0.2, 12), (5.0, 12)])
def test_the_noisier_the_rounds_the_longer_a_process_lives(noise: float, rounds: int) -> None:
    assert rounds_of_a_process(noise) == rounds


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
    arms = [PlannedVariant(id=str(value), role="candidate", kwargs={"key": value}) for value in values]
    assert sorted(range(len(arms)), key=lambda index: cost(arms[index], ["key"])) == order


def test_the_first_key_weighs_most_and_one_that_is_not_named_is_dearest() -> None:
    arms = {
        name: PlannedVariant(id=name, role="candidate", kwargs=kwargs)
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
    assert other.why.startswith("a is kept: whether b, c are faster is undecided: b looks 1.08")
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


SWEEPS = Path(__file__).resolve().parents[3] / "benchmarks" / "sweeps"
COUNT = 40


@pytest.fixture(scope="module")
def simulated():
    """The benchmark's machine and surface; ``python benchmarks/sweeps`` has its directory on the import path too."""
    sys.path.append(str(SWEEPS))
    try:
        import machine
        import surface
    finally:
        sys.path.remove(str(SWEEPS))
    return machine, surface


def _choices(machine, rates, noise, seed):
    comparison, rng = machine.planned([{}] * len(rates)), np.random.default_rng(seed)
    return [machine.swept(comparison, Procedure(), rates, noise, rng).choice for _ in range(COUNT)]


@pytest.mark.parametrize("arms", [3, 8, 16])
def test_equal_arms_seldom_have_a_winner(simulated, arms) -> None:
    machine, _ = simulated
    proven = sum(choice.proven for choice in _choices(machine, [100.0] * arms, machine.DISTURBED, 1))
    assert proven <= 2  # 0.1 are expected


def test_an_arm_five_percent_faster_is_found(simulated) -> None:
    machine, _ = simulated
    choices = _choices(machine, [100.0] * 3 + [105.0] + [100.0] * 4, machine.PLAIN, 2)
    assert sum(choice.winner == "arm3" and choice.proven for choice in choices) >= 33  # 37 are expected
    assert all(choice.winner in ("arm0", "arm3") for choice in choices)


def test_two_hundred_arms_take_a_quarter_of_the_grid_s_turns_and_lose_little(simulated) -> None:
    machine, surface = simulated
    comparison, procedure = machine.planned(surface.configs()), Procedure(cost=surface.COST)
    for number in range(4):
        rng = np.random.default_rng([3, number])
        rates = surface.rates(rng)
        sweep = machine.swept(comparison, procedure, rates, machine.PLAIN, rng)
        chosen = next(index for index, arm in enumerate(comparison.arms) if arm.id == sweep.choice.winner)
        assert sweep.choice.proven
        assert rates[chosen] >= 0.98 * max(rates)
        assert sweep.turns <= 0.25 * len(rates) * procedure.blocks


def test_what_has_to_be_beaten_is_told(sweep) -> None:
    made, state = sweep({"a": 100, "b": 130, "c": 129, "d": 101})
    assert made[0].beaten == ()
    assert made[-1].beaten == state.winners[:1] == ("b",)
    assert "b" in ids(made[-1])
