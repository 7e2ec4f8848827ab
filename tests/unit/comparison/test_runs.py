"""What trials of parity come to together, data and losses."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.analysis.test_disturbance import S, host
from xttsbench.analysis.disturbance import gate
from xttsbench.comparison.arms import compare
from xttsbench.comparison.runs import Taken, collect, parity_found, taken_in
from xttsbench.records.trial import Parity, RoundMark, TrialRecord


def test_an_arm_with_other_losses_is_refused_for_its_losses(build) -> None:
    comparison = build.comparison("a", "slow", "b", "data")
    where = "step 1: the loss is 2.2, and the baseline's 2"
    told = Parity(
        batches=4,
        tolerance=1e-4,
        same=("b",),
        differences={"slow": where, "data": "batch 0, mel: row 1"},
        losses={"slow": 0.09, "b": 1e-6},
        other_losses=("slow",),
    )
    trial = build.parity("slow", "b", "data", found=told)
    found = parity_found(comparison, [trial])
    assert found.same == ("b",)
    assert found.why_refused("slow") == f"its losses are not the baseline's: {where}"
    assert found.why_refused("data") == "its data are not the baseline's: batch 0, mel: row 1"
    assert found.why_refused("b") is None
    assert found.losses == {"slow": 0.09, "b": 1e-6}
    compared = compare(comparison, [trial])
    assert {arm.id: arm.decision for arm in compared.arms}["slow"] == "ended"
    assert compared.parity is not None
    assert compared.parity["losses"] == {"slow": 0.09, "b": 1e-6}
    assert dict(compared.refused) == dict(told.differences)


def test_trials_after_one_that_died_add_up(build) -> None:
    comparison = build.comparison("a", "b", "dies", "c")
    first = Parity(batches=4, tolerance=1e-4, same=("b",), losses={"b": 0.0})
    second = Parity(batches=4, tolerance=1e-4, same=("c",), losses_unknown={"c": "no loss"})
    found = parity_found(
        comparison,
        [
            build.parity("b", "dies", "c", found=first, status="killed", cause="SIGSEGV"),
            build.parity("c", found=second, number=1),
        ],
    )
    assert (found.same, found.losses, found.losses_unknown) == (("b", "c"), {"b": 0.0}, {"c": "no loss"})
    assert found.unknown == {"dies": "reading its data ended as killed: SIGSEGV"}


def test_a_line_of_an_older_journal_is_read(build) -> None:
    line = build.parity("b", found=Parity(batches=4, tolerance=1e-4, same=("b",))).model_dump(mode="json")
    for key in ("losses", "losses_unknown", "other_losses"):
        del line["parity"][key]
    for key in ("loss_steps", "loss_tolerance", "same_data"):
        del line["spec"][key]
    read = TrialRecord.model_validate(line)
    assert read.parity is not None
    assert (read.parity.same, read.parity.losses, read.spec.loss_steps) == (("b",), {}, 0)


EFFECTS = {"b": 0.0, "c": 0.2, "d": -0.1}


def session(seed: int, slope: float, rounds: int = 24, *, noise: float = 0.03, spread: float = 0.15):
    """What neighbours left in each turn of four configurations, and speeds that follow it, over the first one's."""
    rng = np.random.default_rng(seed)
    turns = [(block, number) for block in range(3) for number in range(rounds // 3)]
    left = {name: {turn: -abs(rng.normal(0, spread)) for turn in turns} for name in ("a", *EFFECTS)}
    ratios = {
        name: {
            turn: effect + slope * (left[name][turn] - left["a"][turn]) + rng.normal(0, noise * np.sqrt(2))
            for turn in turns
        }
        for name, effect in EFFECTS.items()
    }
    return left, ratios


def adjusted(found: Taken, ratios, name: str) -> np.ndarray:
    return np.array([ratio - found.gave(name, "a", turn) for turn, ratio in ratios[name].items()])


def test_where_the_processors_limit_a_speed_the_noise_of_the_neighbours_is_gone() -> None:
    left, ratios = session(1, slope=1.0)
    found = taken_in("a", left, ratios)
    assert found.slope == pytest.approx(0.97, abs=0.04)
    for name, effect in EFFECTS.items():
        assert adjusted(found, ratios, name).std() < 0.5 * np.std([*ratios[name].values()])
        assert adjusted(found, ratios, name).mean() == pytest.approx(effect, abs=0.03)


@pytest.mark.parametrize(("slope", "rounds", "spread"), [(0.0, 24, 0.15), (1.0, 6, 0.15), (1.0, 24, 0.005)])
def test_nothing_is_taken_out_of_what_does_not_follow_it_or_of_too_little(slope, rounds, spread) -> None:
    """A step that sleeps; rounds so few that a slope may be chance; a quiet machine, whose readings are mere noise."""
    found = [taken_in("a", *session(seed, slope, rounds, spread=spread)).slope for seed in range(50)]
    assert np.mean([one == 0.0 for one in found]) >= 0.96


def test_what_is_taken_out_is_no_effect_of_the_configurations() -> None:
    """The mean of many sessions is the effect: 0.002 is three standard errors of it."""
    means = []
    for seed in range(400):
        left, ratios = session(seed, slope=0.8, rounds=9)
        means.append(adjusted(taken_in("a", left, ratios), ratios, "c").mean())
    assert np.mean(means) == pytest.approx(EFFECTS["c"], abs=3 * np.std(means) / 20)


def test_a_turn_without_readings_stays_as_it_was() -> None:
    left, ratios = session(2, slope=1.0)
    del left["b"][0, 0]
    found = taken_in("a", left, ratios)
    assert found.slope > 0
    assert found.gave("b", "a", (0, 0)) == 0.0
    assert found.gave("b", "a", (0, 1)) == pytest.approx(found.slope * (left["b"][0, 1] - left["a"][0, 1]))
    assert found.gave("b", "c", (0, 1)) == pytest.approx(found.slope * (left["b"][0, 1] - left["c"][0, 1]))


def test_the_share_that_was_left_is_read_from_the_turns(build) -> None:
    readings = host(foreign=lambda second: 1.0 if 10 <= second < 20 else 0.0)
    trial = build.trial("arm", build.segment(wait_s=[0.01] * 4))
    marks = tuple(RoundMark(round=n, start_ns=10 * n * S, end_ns=10 * (n + 1) * S) for n in range(3))
    spec = trial.spec.model_copy(update={"turns": True, "arm": "a"})
    own = trial.readings.model_copy(update={"host": readings})
    trial = trial.model_copy(update={"spec": spec, "rounds": marks, "readings": own})
    found = gate([trial]).left["a"]
    assert [round(float(np.exp(found[0, number])), 2) for number in range(3)] == [1.0, 0.5, 1.0]


def test_a_trial_beside_the_baseline_of_another_machine_is_left_out(build) -> None:
    comparison = build.comparison("a", "b", again=False)
    trials = [
        build.on(build.arm_trial(arm, 0.02, block=block), node)
        for arm, block, node in (("b", 0, "n0"), ("a", 0, "n1"), ("a", 1, "n1"), ("b", 1, "n1"), ("b", 2, "n2"))
    ]
    (group,) = collect(comparison, trials)
    assert [[*runs.trials] for runs in group.arms] == [[0, 1], [1, 2]]
