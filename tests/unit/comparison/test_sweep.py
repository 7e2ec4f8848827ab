"""What a sweep measures next, from hand-built rates whose answers are known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.comparison.rates import WOBBLE, seen
from xttsbench.comparison.sweep import Round, next_round, rounds_of_a_process, seen_in, state_of
from xttsbench.records.plan import Procedure


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
    assert set(state.out.values()) == {"not faster by 2%"}


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
