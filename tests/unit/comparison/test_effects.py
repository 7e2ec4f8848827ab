"""Effects between two sides: simulated sessions, reports alone, and their limits."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.analysis.evidence import LEAST_SCALE, interval, paired, unpaired
from xttsbench.comparison.arms import interim_status
from xttsbench.comparison.effects import SESSION_NOISE, decide_pairs, reported
from xttsbench.records.base import FASTER, SLOWER, Estimate

RATES = st.lists(st.floats(10, 1000), min_size=2, max_size=9)
OPPOSITE = {word: word.replace("faster", "slower") for word in (*FASTER, "likely_faster")}


def found(a, b, noise: float = 0.0):
    return decide_pairs({"x": unpaired(np.log(a), np.log(b))}, margin=0.02, session_noise=noise)["x"]


def words(rng: np.random.Generator, *, repeats: int, n: int = 8, effect: float = 1.0, session: float, noise: float):
    """What is said of simulated sessions: 2 % noise between processes, ``session`` between sessions."""
    said = []
    for _ in range(repeats):
        luck = session * rng.normal(size=2)
        a = np.exp(luck[0] + 0.02 * rng.normal(size=n))
        b = effect * np.exp(luck[1] + 0.02 * rng.normal(size=n))
        said.append(found(a, b, noise).word)
    return said


def test_the_noise_of_sessions_is_added_as_known() -> None:
    rng = np.random.default_rng(0)
    a, b = np.exp(0.02 * rng.normal(size=(2, 400)))
    naive, allowed = found(a, b), found(a, b, 0.02)
    assert math.log(naive.ratio.high / naive.ratio.low) < 0.02  # of so many processes next to nothing is left
    # It is drawn once, however often it is read.
    reach = 1.96 * math.sqrt(2) * math.log(1.02)
    assert math.log(allowed.ratio.high / allowed.ratio.low) / 2 == pytest.approx(reach, rel=0.02)


@pytest.mark.parametrize("n", [2, 20])
def test_the_interval_between_sessions_holds_the_truth(n: int) -> None:
    rng, held = np.random.default_rng(n), 0
    for _ in range(1000):
        a, b = (np.exp(0.02 * rng.normal() + 0.02 * rng.normal(size=n)) for _ in "ab")
        ratio = found(a, b, 0.02).ratio
        held += ratio.low <= 1 <= ratio.high
    assert held / 1000 >= 0.94


@given(RATES, RATES, st.sampled_from([0.0, 0.02]))
def test_swapping_the_sides_inverts_the_effect(a: list[float], b: list[float], noise: float) -> None:
    there, back = found(a, b, noise), found(b, a, noise)
    assert OPPOSITE.get(there.word, there.word) == OPPOSITE.get(back.word, back.word)
    assert there.word not in FASTER or back.word in SLOWER
    assert there.evidence == pytest.approx(back.evidence)
    assert there.ratio is not None
    assert back.ratio is not None
    assert there.ratio.estimate == pytest.approx(1 / back.ratio.estimate)
    assert there.ratio.low == pytest.approx(1 / back.ratio.high)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_false_alarms_between_equal_runs_are_at_most_five_percent(n: int) -> None:
    said = words(np.random.default_rng(n), repeats=400, n=n, session=0.0, noise=0.0)
    assert np.mean([one in (*FASTER, *SLOWER) for one in said]) < 0.05


def test_sessions_that_differ_by_two_percent_raise_false_alarms_unless_that_is_allowed_for() -> None:
    naive = words(np.random.default_rng(5), repeats=300, n=20, session=0.02, noise=0.0)
    allowed = words(np.random.default_rng(5), repeats=300, n=20, session=0.02, noise=SESSION_NOISE)
    assert np.mean([one in (*FASTER, *SLOWER) for one in naive]) > 0.2
    assert np.mean([one in (*FASTER, *SLOWER) for one in allowed]) < 0.02


def test_a_seventh_slower_is_seen_between_sessions() -> None:
    said = words(np.random.default_rng(6), repeats=200, session=0.02, noise=SESSION_NOISE, effect=0.85)
    assert sum(one in SLOWER for one in said) > 0.9 * len(said)
    assert not any(one in FASTER for one in said)


def test_many_equal_arms_name_no_more_than_one_alone() -> None:
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(200):
        pairs = {str(arm): unpaired(*(0.02 * rng.normal(size=(2, 6)))) for arm in range(8)}
        effects = decide_pairs(pairs, margin=0.02, session_noise=0.0)
        wrong += any(one.word in (*FASTER, *SLOWER) for one in effects.values())
    assert wrong / 200 < 0.05


@pytest.mark.parametrize("n", [2, 3, 8])
def test_a_report_alone_says_what_its_processes_say(n: int) -> None:
    rng = np.random.default_rng(n)
    logs = 0.05 * rng.normal(size=(2, n))
    ours, theirs = (interval(paired(own), LEAST_SCALE) for own in logs)
    alone = reported(ours, n, theirs, n)
    whole = unpaired(*logs)
    assert (alone.mean, alone.weight, alone.freedom) == pytest.approx((whole.mean, whole.weight, whole.freedom))
    assert interval(alone, LEAST_SCALE).high == pytest.approx(interval(whole, LEAST_SCALE).high, rel=0.06)


def test_what_cannot_be_taken_the_logarithm_of_is_refused() -> None:
    good = Estimate(estimate=1, low=0.9, high=1.1)
    for one, count in ((Estimate(estimate=1, low=0, high=1), 6), (good, 0)):
        with pytest.raises(ValueError, match="positive interval"):
            reported(good, 3, one, count)


def test_paired_rounds_decide_from_two_processes_on() -> None:
    samples = {"two": paired([0.3, 0.31]), "one": paired([0.3, 0.31, 0.3], ["p"] * 3)}
    effects = decide_pairs(samples, margin=0.02)
    assert [effects[name].word for name in ("two", "one")] == ["faster", "undecided"]
    assert [effects[name].sure for name in ("two", "one")] == [True, False]
    assert effects["one"].why == "1 process of each; a result takes 2"
    assert effects["one"].ratio is not None
    open_ = decide_pairs({"x": paired([0.03, 0.01, 0.02])}, margin=0.02)["x"]
    assert (open_.word, open_.sure) == ("undecided", True)
    assert "20 decides; about" in open_.why


def test_a_withheld_effect_keeps_its_interval_and_proves_nothing() -> None:
    effect = decide_pairs({"x": paired([0.1, 0.11, 0.1, 0.09, 0.1, 0.1])}, margin=0.02)["x"]
    kept = effect.withheld("it died")
    assert effect.word == "clearly_faster"
    assert (kept.word, kept.sure, kept.why, kept.ratio) == ("undecided", False, "it died", effect.ratio)


def trials(build, blocks: int, **walls: float):
    return [build.arm_trial(arm, wall, block=block) for block in range(blocks) for arm, wall in walls.items()]


def test_the_fastest_candidate_leads_from_the_first_round_on(build) -> None:
    comparison = build.comparison(*"abc")
    for blocks, word in ((1, "faster"), (2, "clearly faster")):
        found = interim_status(comparison, trials(build, blocks, a=0.02, b=0.016, c=0.01))
        said = r"3 of 3 configurations alive; c leads, (\S+)x \((\S+) to (\S+)\) the baseline: " + word
        speed, low, high = map(float, re.fullmatch(said, found).groups())
        assert speed == pytest.approx(2, rel=0.02)
        assert low < 2 < high


def test_an_arm_that_ended_does_not_lead(build) -> None:
    comparison = build.comparison(*"abc")
    found = interim_status(comparison, [*trials(build, 2, a=0.02, b=0.016, c=0.01), build.dead("c", block=2)])
    assert found.startswith("2 of 3 configurations alive; b leads, ")


def test_before_a_block_has_both_nobody_leads(build) -> None:
    comparison = build.comparison(*"ab")
    for some in ([], trials(build, 1, b=0.01), trials(build, 1, a=0.02)):
        assert interim_status(comparison, some) == "2 of 2 configurations alive"
