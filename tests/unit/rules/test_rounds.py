"""Which rounds a sweep makes, from hand-built results whose answers are known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from xttsbench.records.plan import Procedure
from xttsbench.rules.rounds import Result, Round, complete, expected_trials, fitted, next_round

WOBBLE = (0.01, -0.01, 0.003, -0.003, 0.006, -0.006, 0.008, -0.008)


def measured(
    asked: Round, truth: Mapping[str, float], gone: Mapping[str, str] | None = None, *, wobble: float = 0.0
) -> Result:
    """Rates as they truly are; ``wobble`` times one to either side, another way round for each arm, which adds to 0."""
    rates = {
        arm.id: {
            block: truth[arm.id.removesuffix(":again")] * math.exp(wobble * WOBBLE[(number + place) % len(WOBBLE)])
            for number, block in enumerate(asked.blocks)
        }
        for place, arm in enumerate(asked.comparison.arms)
    }
    return Result(asked, rates, gone or {})


def ids(asked: Round | None) -> list[str]:
    assert asked is not None
    return [arm.id for arm in asked.comparison.arms]


@pytest.fixture
def sweep(build: SimpleNamespace):
    """``sweep(names, truth, procedure)``: the rounds of a sweep without noise, and its comparison."""

    def rounds(truth: Mapping[str, float], procedure: Procedure | None = None, **fields: Any):
        comparison = build.comparison(*truth, **fields)
        results: list[Result] = []
        while (asked := next_round(comparison, procedure or Procedure(), results)) is not None:
            results.append(measured(asked, truth, wobble=1))
        return comparison, [result.round for result in results]

    return rounds


def test_few_arms_are_screened_all_and_the_best_three_confirmed_in_fresh_blocks(sweep) -> None:
    truth = {"a": 100, "b": 104, "c": 90, "d": 103.5, "e": 103, "f": 102.5}
    comparison, (screening, confirmation) = sweep(truth)
    assert ids(screening) == ["a", "b", "c", "d", "e", "f", "a:again"]
    assert (screening.kind, list(screening.blocks), screening.comparison.blocks) == ("screen", [0, 1, 2, 3], 4)
    assert screening.comparison.name == "loaders: screening"
    assert ids(confirmation) == ["a", "b", "d", "e", "a:again"]  # the order of the plan
    assert (confirmation.kind, list(confirmation.blocks)) == ("confirm", list(range(4, 12)))
    assert confirmation.comparison.name == "loaders: confirmation"
    assert confirmation.comparison.steps == screening.comparison.steps == comparison.steps


def test_arms_surely_behind_the_best_are_not_confirmed(sweep) -> None:
    _, rounds = sweep({"a": 100, "b": 150, "c": 120, "d": 110, "e": 149})
    assert ids(rounds[-1]) == ["a", "b", "e", "a:again"]


def test_what_could_tie_with_the_best_is_confirmed_even_where_it_is_surely_slower(build) -> None:
    truth = {"a": 100, "b": 150, "c": 149, "d": 148, "e": 90}
    comparison = build.comparison(*truth)
    screening = measured(next_round(comparison, Procedure(), ()), truth, wobble=0.01)
    assert ids(next_round(comparison, Procedure(), [screening])) == ["a", "b", "c", "a:again"]


def test_a_screening_that_shows_nothing_faster_is_the_last_round(sweep) -> None:
    _, rounds = sweep({"a": 100, "b": 100.2, "c": 90, "d": 80, "e": 99})
    assert [asked.kind for asked in rounds] == ["screen"]


def test_noise_keeps_in_question_what_quiet_screening_would_throw_out(build) -> None:
    truth = {"a": 100, "b": 150, "c": 140, "d": 90, "e": 80}
    comparison = build.comparison(*truth)
    screening = next_round(comparison, Procedure(), ())
    quiet, loud = (ids(next_round(comparison, Procedure(), [measured(screening, truth, wobble=by)])) for by in (1, 20))
    assert quiet == ["a", "b", "a:again"]
    assert loud == ["a", "b", "c", "a:again"]


def test_no_more_candidates_than_finalists_need_no_screening(sweep) -> None:
    _, rounds = sweep({"a": 100, "b": 90, "c": 80, "d": 70})
    assert [(asked.kind, asked.first_block) for asked in rounds] == [("confirm", 0)]
    assert ids(rounds[0]) == ["a", "b", "c", "d", "a:again"]


def test_a_plan_without_a_second_baseline_gets_one(sweep) -> None:
    _, rounds = sweep({"a": 100, "b": 90}, again=False)
    again = rounds[0].comparison.arms[-1]
    assert (again.id, again.role) == ("a:again", "aa")


def test_one_block_of_screening_ranks_and_drops_nobody(sweep) -> None:
    _, rounds = sweep({"a": 100, "b": 50, "c": 60, "d": 70, "e": 80}, Procedure(screen_blocks=1))
    assert ids(rounds[1]) == ["a", "c", "d", "e", "a:again"]


def test_many_arms_are_halved_in_short_trials_with_the_baseline_once(sweep) -> None:
    truth = {"a": 100.0} | {f"arm{number}": 101.0 + number for number in range(99)}
    comparison, rounds = sweep(truth, steps=240, window_s=6.0)
    assert [asked.comparison.name for asked in rounds] == [
        "loaders: halving 1",
        "loaders: halving 2",
        "loaders: screening",
        "loaders: confirmation",
    ]
    assert [len(ids(asked)) for asked in rounds] == [100, 34, 17, 5]
    first = rounds[0].comparison
    assert (first.steps, first.window_s, first.blocks) == (80, pytest.approx(2.0), 1)
    assert "a:again" not in ids(rounds[0])
    assert ids(rounds[0])[0] == ids(rounds[1])[0] == "a"
    assert ids(rounds[1])[1:] == [f"arm{number}" for number in range(66, 99)]
    assert rounds[2].comparison.steps == comparison.steps
    blocks = [block for asked in rounds for block in asked.blocks]
    assert blocks == list(range(len(blocks)))  # no number twice


@pytest.mark.parametrize(("arms", "kind"), [(16, "screen"), (17, "halve")])
def test_halving_begins_above_sixteen_arms_the_baseline_counted(build, arms, kind) -> None:
    asked = next_round(build.comparison(*(f"arm{number}" for number in range(arms))), Procedure(), ())
    assert asked.kind == kind


def test_an_arm_that_is_gone_is_in_no_later_round(build) -> None:
    truth = {"a": 100, "b": 150, "c": 149, "d": 148, "e": 147}
    comparison = build.comparison(*truth)
    result = measured(next_round(comparison, Procedure(), ()), truth, {"b": "killed: it was"}, wobble=3)
    assert ids(next_round(comparison, Procedure(), [result])) == ["a", "c", "d", "e", "a:again"]


@pytest.mark.parametrize("gone", [["a"], ["a:again"], ["b", "c", "d", "e"]])
def test_nothing_follows_where_nothing_can_be_compared(build, gone: Sequence[str]) -> None:
    truth = dict.fromkeys("abcde", 100.0)
    comparison = build.comparison(*truth)
    result = measured(next_round(comparison, Procedure(), ()), truth, dict.fromkeys(gone, "killed"))
    assert complete(Result(result.round, {}, result.gone))
    assert next_round(comparison, Procedure(), [result]) is None


def test_nothing_follows_an_incomplete_round(build) -> None:
    truth = {"a": 100.0, "b": 150.0, "c": 149.0, "d": 148.0, "e": 147.0}
    comparison = build.comparison(*truth)
    result = measured(next_round(comparison, Procedure(), ()), truth)
    cut = {arm: dict(list(rates.items())[: 3 if arm == "c" else 4]) for arm, rates in result.rates.items()}
    short = Result(result.round, cut, {})
    assert complete(result)
    assert not complete(short)
    assert next_round(comparison, Procedure(), [short]) is None
    without = Result(result.round, cut, {"c": "killed"})
    assert complete(without)
    assert next_round(comparison, Procedure(), [without]) is not None


def test_a_comparison_of_one_arm_asks_for_nothing(build) -> None:
    assert next_round(build.comparison("a"), Procedure(), ()) is None
    assert expected_trials(build.comparison("a"), Procedure()) == 0


@pytest.mark.parametrize(
    ("arms", "trials"),
    [(2, 8 * 3), (4, 8 * 5), (8, 4 * 9 + 8 * 5), (16, 4 * 17 + 8 * 5), (200, 200 + 68 + 24 + 4 * 17 + 8 * 5)],
)
def test_the_expected_trials_are_counted(build, arms, trials) -> None:
    assert expected_trials(build.comparison(*(f"arm{number}" for number in range(arms))), Procedure()) == trials


@pytest.mark.parametrize(
    ("trials", "screen", "confirm", "finalists"),
    [(76, 4, 8, 3), (75, 3, 8, 3), (58, 2, 8, 3), (57, 2, 7, 3), (48, 2, 6, 3), (47, 2, 7, 2), (36, 2, 6, 1)],
)
def test_a_budget_takes_blocks_first_and_then_finalists(build, trials, screen, confirm, finalists) -> None:
    comparison = build.comparison(*"abcdefgh")
    found = fitted(comparison, Procedure(cost=("prefetch",)), trials * 10.0, 10.0)
    assert found == Procedure(screen_blocks=screen, confirm_blocks=confirm, finalists=finalists, cost=("prefetch",))
    assert expected_trials(comparison, found) <= trials


def test_a_budget_can_be_too_small_for_anything(build) -> None:
    assert fitted(build.comparison(*"abcdefgh"), Procedure(), 359.9, 10.0) is None


def test_halving_trials_are_shorter_in_a_budget(build) -> None:
    comparison = build.comparison(*(f"arm{number}" for number in range(200)), window_s=6.0)
    long, short = 4 * 17 + 8 * 5, 200 + 68 + 24
    assert fitted(comparison, Procedure(), long * 8.0 + short * 4.0, 8.0) == Procedure()
    assert fitted(comparison, Procedure(), long * 8.0 + short * 4.0 - 1, 8.0) != Procedure()
