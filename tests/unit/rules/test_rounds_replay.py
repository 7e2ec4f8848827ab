"""A sweep's journal, read again: the same rounds, the same rates, the same decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from xttsbench.records.plan import Comparison, Procedure
from xttsbench.records.trial import Parity, TrialRecord
from xttsbench.rules.replay import results_of
from xttsbench.rules.rounds import Round, complete, next_round
from xttsbench.rules.winner import choose

WALLS = {"a": 0.04, "b": 0.03, "c": 0.05, "d": 0.041, "e": 0.045}
FEW = Procedure(screen_blocks=2, confirm_blocks=6)


@pytest.fixture
def journal(build):
    """``journal(comparison, procedure, walls)``: every trial of a sweep, as it would have been written."""

    def trials_of(asked: Round, walls: Mapping[str, float], **how: Any) -> list[TrialRecord]:
        return [
            build.arm_trial(
                arm.id,
                walls[arm.id.removesuffix(":again")],
                block=block,
                group=asked.comparison.name,
                **{"process_sd": 0.005, "steps": 30} | how,
            )
            for block in asked.blocks
            for arm in asked.comparison.arms
        ]

    def written(comparison: Comparison, procedure: Procedure, walls: Mapping[str, float], **how: Any):
        trials: list[TrialRecord] = []
        while True:
            results = results_of(comparison, procedure, trials)
            asked = next_round(comparison, procedure, results)
            if asked is None:
                return trials
            trials += trials_of(asked, walls, **how)

    return written


def test_the_journal_alone_gives_the_rounds_and_the_winner(build, journal) -> None:
    comparison = build.comparison(*WALLS)
    trials = journal(comparison, FEW, WALLS)
    results = results_of(comparison, FEW, trials)
    assert [result.round.comparison.name for result in results] == ["loaders: screening", "loaders: confirmation"]
    assert all(complete(result) for result in results)
    assert list(results[0].rates["b"]) == [0, 1]
    assert list(results[1].rates["b"]) == list(range(2, 8))
    assert results[1].rates["b"][2] == pytest.approx(8 / 0.03, rel=0.03)  # eight samples in a batch
    found = choose(comparison, FEW, results)
    assert (found.winner, found.proven) == ("b", True)
    assert found.effect.estimate == pytest.approx(4 / 3, rel=0.01)


def test_the_order_of_the_journal_does_not_matter_and_the_answer_is_the_same_each_time(build, journal) -> None:
    comparison = build.comparison(*WALLS)
    trials = journal(comparison, FEW, WALLS)
    first, again, backwards = (
        repr(choose(comparison, FEW, results_of(comparison, FEW, own))) for own in (trials, trials, trials[::-1])
    )
    assert first == again == backwards
    read = [TrialRecord.model_validate_json(trial.model_dump_json()) for trial in trials]
    assert repr(choose(comparison, FEW, results_of(comparison, FEW, read))) == first


def test_a_journal_cut_anywhere_gives_complete_rounds_but_for_the_last(build, journal) -> None:
    comparison = build.comparison(*WALLS)
    trials = journal(comparison, FEW, WALLS)
    for count in range(0, len(trials) + 1, 3):
        results = results_of(comparison, FEW, trials[:count])
        assert all(complete(result) for result in results[:-1])
        assert sum(len(own) for result in results for own in result.rates.values()) == count
        found = choose(comparison, FEW, results)
        assert found.proven == (count == len(trials))


def test_an_arm_with_other_data_is_in_no_round_and_parity_counts_once(build, journal) -> None:
    comparison = build.comparison(*WALLS)
    group = "loaders: screening"
    told = Parity(
        batches=8, tolerance=1e-4, same=("c", "d"), differences={"b": "batch 0, mel"}, failed={"e": "no such file"}
    )
    parity = build.parity("b", "c", "d", "e", found=told)
    parity = parity.model_copy(update={"spec": parity.spec.model_copy(update={"group": group})})
    cut_off = parity.model_copy(update={"status": "interrupted", "parity": None})
    trials = [cut_off, parity, *journal(comparison, FEW, WALLS)]
    (screening,) = results_of(comparison, FEW, trials)  # what is left is not faster
    assert screening.gone == {
        "b": "refused: its data are not the baseline's: batch 0, mel",
        "e": "whether it yields the baseline's data is not known: its data could not be read: no such file",
    }
    found = choose(comparison, FEW, [screening])
    assert (found.winner, found.proven) == ("a", False)


def test_a_baseline_whose_data_cannot_be_read_is_gone(build) -> None:
    comparison = build.comparison(*WALLS)
    parity = build.parity("b", "c", "d", "e", status="raised", cause="ValueError: no file")
    spec = parity.spec.model_copy(update={"group": "loaders: screening"})
    (result,) = results_of(comparison, FEW, [parity.model_copy(update={"spec": spec, "parity": None})])
    assert result.gone["a"] == "its data could not be read: raised: ValueError: no file"
    assert "nothing can be compared" in choose(comparison, FEW, [result]).why


@pytest.mark.parametrize(("status", "gone"), [("killed", {"b"}), ("interrupted", set())])
def test_a_trial_that_dies_ends_its_arm_and_an_interrupted_one_does_not(build, journal, status, gone) -> None:
    comparison = build.comparison(*WALLS)
    trials = journal(comparison, FEW, WALLS)
    dead = build.dead("b", status, block=1, group="loaders: screening")
    results = results_of(comparison, FEW, [*trials[:6], dead, *trials[6:]])
    assert set(results[0].gone) == gone
    assert {arm.id for arm in results[-1].round.comparison.arms} >= ({"b"} - gone)


def test_elements_without_a_batch_dimension_count_as_steps(build, journal) -> None:
    comparison = build.comparison("a", "b")
    trials = journal(comparison, FEW, {"a": 0.04, "b": 0.03}, columns={"batch_size": 0})
    (result,) = results_of(comparison, FEW, trials)
    assert result.gone == {}
    assert all(rate == pytest.approx(1 / 0.03, rel=0.02) for rate in result.rates["b"].values())


def test_other_groups_and_accelerators_are_left_alone(build, journal) -> None:
    device = build.emulated(10)
    comparison = build.comparison(*WALLS, accelerators=(device, build.emulated(20)))
    times = {"emulated_ms": device.step_times_ms}
    trials = journal(comparison, FEW, WALLS, **times)
    noise = [build.arm_trial("b", 9.0, group="loaders"), build.arm_trial("b", 9.0, group="loaders: screening")]
    assert results_of(comparison, FEW, [*noise, *trials]) == results_of(comparison, FEW, trials)
    asked = next_round(comparison, FEW, ())
    assert asked is not None
    assert asked.comparison.accelerators == (device,)
