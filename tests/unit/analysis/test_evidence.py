"""Evidence from paired log ratios: the closed form beside the integral, error rates, coverage, and the words."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

from xttsbench.analysis.evidence import (
    LEAST_SCALE,
    Sample,
    confidence_sequence,
    decide,
    e_value,
    interval,
    noise_scale,
    paired,
    round_scale,
    rounds_to_decide,
    unpaired,
)

S0 = 0.03


def published(ratios: np.ndarray, s0: float) -> float:
    """The formula as it stands in the method."""
    n, squares = len(ratios), float((ratios**2).sum())
    known = 3 * s0**2 + squares
    return float((1 + 100 * n) ** -0.5 * (known / (known - n**2 * ratios.mean() ** 2 / (n + 0.01))) ** ((3 + n) / 2))


def integrated(ratios: np.ndarray, covariance: np.ndarray, s0: float) -> float:
    """The two marginal likelihoods, integrated over the variance numerically, the mean by its covariance."""
    ones = np.ones((len(ratios), len(ratios)))
    # sigma^2 = 3 s0^2 / chi, with chi of three degrees of freedom.
    chi = stats.chi2(3)

    def marginal(shape: np.ndarray) -> float:
        def density(of: float) -> float:
            sigma = 3 * s0**2 / of
            return float(stats.multivariate_normal.pdf(ratios, cov=sigma * shape)) * float(chi.pdf(of))

        return float(integrate.quad(density, 0, 60, epsrel=1e-9, limit=400, points=(0.01, 0.1, 1, 5))[0])

    return marginal(covariance + 100 * ones) / marginal(covariance)


@pytest.mark.parametrize("ratios", [(0.02,), (0.1, 0.14), (0.05, -0.02, 0.01), (0.04, 0.05, 0.06, 0.05)])
def test_the_e_value_is_the_integral(ratios: tuple[float, ...]) -> None:
    found = np.array(ratios)
    assert e_value(found, S0) == pytest.approx(integrated(found, np.eye(len(found)), S0), rel=1e-5)
    assert e_value(found, S0) == pytest.approx(published(found, S0))


def test_rounds_of_one_pair_average_out_and_what_pairs_differ_by_does_not() -> None:
    ratios = [0.08, 0.15, 0.03, 0.09, 0.01]
    found = paired(ratios, ["p", "p", "q", "q", "q"])
    within = float(np.var(ratios[:2]) * 2 + np.var(ratios[2:]) * 3)
    a_round = (3 * 0.03**2 + within) / (3 + 3)
    pairs = [0.03**2 + a_round / 2, 0.03**2 + a_round / 3]  # the variances of their means
    assert found.mean == pytest.approx(np.average([0.115, 0.13 / 3], weights=[1 / pair for pair in pairs]))
    assert (found.rounds, found.processes, found.freedom, found.within_freedom) == (5, 2, 1, 3)
    assert found.within == pytest.approx(within)
    assert S0**2 + a_round / found.each == pytest.approx(2 / sum(1 / pair for pair in pairs))
    # With very many rounds a pair knows its own mean, and nothing else of what pairs differ by.
    many = paired([0.1 + 0.001 * (-1) ** n for n in range(1000)], ["p"] * 1000).student(S0)
    assert (many.variance, many.freedom) == (pytest.approx(S0**2, rel=0.01), pytest.approx(5, rel=0.01))


def test_a_pair_says_no_more_however_long_it_lives() -> None:
    """The deviation between two processes is one, however many rounds they live through (E6)."""
    for rounds in (1, 8, 100):
        against_itself = paired([0.06] * rounds, ["p"] * rounds)
        s0 = noise_scale(against_itself)
        assert s0 == pytest.approx(math.sqrt((3 * 0.03**2 + 0.06**2) / 4), rel=0.01)
        assert decide(paired([0.1] * rounds, ["p"] * rounds), s0, margin=0.02).word == "undecided"
    # However many rounds repeat it, what one process differs by (here 4 %) does not decide.
    repeated = 0.04 + np.random.default_rng(0).normal(0, 0.005, 30)
    assert e_value(repeated, S0) > 1000
    assert e_value(paired(repeated, [0] * 30), S0) < 20


def test_noise_of_neighbours_is_not_taken_for_the_luck_of_a_process() -> None:
    """Eight rounds of one pair of processes beside others that used three quarters of the machine, truth 7.8 times."""
    seen = [2.12, 1.98, 1.86, 1.17, 1.51, 2.45, 2.44, 1.71]
    found = paired(seen, ["p"] * 8)
    said = decide(found, S0, candidates=3, margin=0.02)
    assert said.word == "clearly_faster"
    assert said.ratio.low < 7.8 < said.ratio.high


def test_one_round_gives_1015_at_most() -> None:
    assert e_value([60.0], S0) == pytest.approx(1015, abs=1)
    assert decide([5.0], S0, margin=0.02).word == "faster"


@pytest.mark.parametrize("ratio", [8.0, 2.0])
def test_large_differences_take_one_round_and_are_clear_after_two(ratio: float) -> None:
    d = math.log(ratio)
    assert decide([d], S0, candidates=4, margin=0.02).word == "faster"
    twice = paired([0.98 * d, 1.02 * d], ["p", "p"])
    assert decide(twice, S0, candidates=4, margin=0.02).word == "clearly_faster"
    assert decide(replace(twice, mean=-d), S0, candidates=4, margin=0.02).word == "clearly_slower"
    assert decide(twice, S0, candidates=4, margin=0.02, undisturbed=False).word == "faster"


def test_the_words_follow_the_evidence() -> None:
    """With the number of candidates the same rounds come down from *faster* to nothing."""
    rounds = [0.07, 0.09, 0.08, 0.08]
    assert 120 < e_value(rounds, S0) < 140
    words = [decide(rounds, S0, candidates=m, margin=0.02).word for m in (1, 6, 7, 40, 47)]
    assert words == ["faster", "faster", "likely_faster", "likely_faster", "undecided"]
    assert decide([-d for d in rounds], S0, margin=0.02).word == "slower"


def test_what_would_decide_is_told() -> None:
    early = decide([0.06, 0.05], S0, candidates=8, margin=0.02)
    assert early.word == "undecided"
    assert early.more_rounds is not None
    # As many more that are like these decide; a few less do not.
    more = early.more_rounds
    assert decide([0.06, 0.05] + [0.03, 0.08] * (more // 2 + 1), S0, candidates=8, margin=0.02).word == "faster"
    assert not decide([0.06, 0.05] + [0.03, 0.08] * (more // 2 - 1), S0, candidates=8, margin=0.02).decided
    assert rounds_to_decide(paired([1e-9]), S0, candidates=1, margin=1e-6) is None
    assert decide([0.6, 0.7], S0, margin=0.02).more_rounds is None


def test_no_difference_takes_rounds_and_not_a_missing_one() -> None:
    rng = np.random.default_rng(0)
    alike = rng.normal(0, 0.01, 40)
    assert decide(alike[:3], S0, margin=0.02).word == "undecided"
    found = decide(alike, S0, margin=0.02)
    assert found.word == "no_difference"
    ends = confidence_sequence(alike, S0)
    assert 1 / 1.02 <= ends.low < 1 < ends.high <= 1.02
    # Certain, and too small to matter.
    small = decide(0.008 + 0.1 * alike, 0.002, margin=0.02)
    assert small.value > 1000
    assert small.word == "no_difference"


@pytest.mark.parametrize("rounds", [1, 4])
def test_looking_after_every_round_is_wrong_in_five_of_a_hundred_at_most(rounds: int) -> None:
    """Equal configurations, looked at after each of 24 rounds; half of the variance is that of the process."""
    rng = np.random.default_rng(1)
    wrong = 0
    names = [number // rounds for number in range(24)]
    for _ in range(500):
        sigma = S0 * math.sqrt(3 / rng.chisquare(3))
        own = rng.normal(0, sigma * math.sqrt(0.5), 24)[names] + rng.normal(0, sigma * math.sqrt(0.5), 24)
        wrong += any(e_value(paired(own[:n], names[:n]), S0) >= 20 for n in range(1, 25))
    assert wrong / 500 <= 0.05


def test_the_confidence_sequence_inverts_the_e_value() -> None:
    sample = paired([0.05, 0.02, 0.04, 0.01, 0.03])
    ends = confidence_sequence(sample, S0)
    for edge in (ends.low, ends.high):
        assert e_value(sample, S0, null=math.log(edge)) == pytest.approx(20)
    assert e_value(sample, S0, null=sample.mean) < 1
    wider = confidence_sequence(sample, S0, level=0.99)
    assert wider.low < ends.low < ends.high < wider.high


@pytest.mark.parametrize("candidates", [1, 4, 20])
def test_the_interval_of_one_of_several_leaves_1_out_where_it_is_decided(candidates: int) -> None:
    """It is corrected for the choice, so that the best of them is not told with an interval of its own (FCR)."""
    for mean in np.linspace(0.02, 0.3, 29):
        found = decide([mean, 1.1 * mean], S0, candidates=candidates, margin=0.001)
        assert (found.ratio.low > 1) == (found.value >= 20 * candidates)
    # One round is too few for any end at the level of so many; it is given its own.
    assert decide([0.5], S0, candidates=400, margin=0.02).ratio == decide([0.5], S0, margin=0.02).ratio


@pytest.mark.parametrize("between", [0.01, 0.03, 0.05, 0.08])
@pytest.mark.parametrize(("rounds", "disturbed"), [(1, 0.05), (12, 0.0), (12, 0.05)])
def test_the_confidence_sequence_covers_whatever_pairs_differ_by(between: float, rounds: int, disturbed: float) -> None:
    """One to twelve pairs, with the noise check of the same session (E7); the truth is never left out for long."""
    rng, outside, strong = np.random.default_rng(3), np.zeros(12), 0
    sessions = 120
    for _ in range(sessions):
        logs = between / math.sqrt(2) * rng.standard_normal((3, 12, 1)) + 0.03 * rng.standard_normal((3, 12, rounds))
        logs += np.where(rng.random(logs.shape) < disturbed, np.log1p(-rng.uniform(0.05, 0.25, logs.shape)), 0.0)
        clear = False
        for count in range(1, 13):
            names = np.repeat(range(count), rounds).tolist()
            candidate, again = (paired((logs[of] - logs[0])[:count].ravel(), names) for of in (1, 2))
            value = e_value(candidate, noise_scale(again, [candidate]))
            outside[count - 1] += value >= 20
            clear |= value >= 1000
        strong += clear
    assert (1 - outside / sessions).min() >= 0.95
    assert strong / sessions <= 0.01


def test_none_is_faster_is_concluded_by_what_may_be_read_after_every_round() -> None:
    """Equal to the margin, looked at after each pair: what is given up is not called ruled out."""
    rng, ruled_out, given_up = np.random.default_rng(5), 0, 0
    for _ in range(150):
        ratios = math.log(1.02) + rng.normal(0, 0.03, 20)
        found = [decide(ratios[:count], S0, margin=0.02) for count in range(1, 21)]
        ruled_out += any(one.no_gain for one in found)
        given_up += any(one.futile for one in found)
    assert ruled_out / 150 <= 0.05 < given_up / 150


@pytest.mark.parametrize("rounds", [1, 2, 3, 6, 12])
@pytest.mark.parametrize("realistic", [False, True])
def test_intervals_cover_what_they_say(rounds: int, realistic: bool) -> None:
    """The spread is that of the prior, or as sessions have it: within a factor of 2.7 of ``s0`` in 95 of a hundred."""
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(3000):
        sigma = S0 * (math.exp(rng.normal(0, 0.5)) if realistic else math.sqrt(3 / rng.chisquare(3)))
        found = interval(rng.normal(0.2, sigma, rounds), S0)
        hits += found.low <= math.exp(0.2) <= found.high
    assert 0.93 <= hits / 3000 <= 0.98


def test_the_interval_needs_one_round() -> None:
    found = interval([math.log(1.5)], S0)
    assert found.estimate == pytest.approx(1.5)
    # Student's 2.5 % point at three degrees of freedom.
    assert found.high == pytest.approx(1.5 * math.exp(3.1824 * S0), rel=1e-4)


def test_unpaired_processes_are_a_difference_of_means() -> None:
    found = unpaired([0.0, 0.02, 0.01], [0.2, 0.22, 0.24])
    assert found.mean == pytest.approx(0.21)
    assert (found.weight, found.freedom, found.processes) == (3, 4, 3)
    assert found.squares == pytest.approx(2 * (0.0002 + 0.0008))
    # Sessions differ by something that no process shows: with it the same numbers weigh less.
    wide = replace(found, fixed=2 * 0.02**2)
    assert e_value(wide, S0) < e_value(found, S0)
    ratio = interval(wide, S0)
    assert math.log(ratio.high) - 0.21 > math.log(interval(found, S0).high) - 0.21


def test_the_noise_scale_is_the_largest_of_what_is_known() -> None:
    assert noise_scale(None) == pytest.approx(LEAST_SCALE)
    assert noise_scale(paired([0.08])) == pytest.approx(math.sqrt((3 * 0.03**2 + 0.08**2) / 4))
    assert noise_scale(paired([0.08] * 400)) == pytest.approx(0.08, rel=0.01)
    assert noise_scale(paired([0.001, -0.002])) == LEAST_SCALE
    spread = [paired([0.5, 0.6]), paired([0.1, 0.2]), paired([-0.3, -0.2])]
    assert noise_scale(None, spread) == pytest.approx(math.sqrt((3 * 0.03**2 + 0.015) / 6))
    assert noise_scale(None, [paired([0.4])]) == pytest.approx(LEAST_SCALE)  # one round has no spread
    assert noise_scale(None, [paired([0.4, 0.5], ["p"] * 2)]) == pytest.approx(LEAST_SCALE)  # nor has one pair
    assert noise_scale(None, mostly_invalid=True) == pytest.approx(1.25 * LEAST_SCALE)


def test_what_rounds_differ_by_is_told_from_what_pairs_differ_by() -> None:
    steady = paired([0.1, 0.1, 0.3, 0.3], ["p", "p", "q", "q"])
    assert round_scale([steady]) == pytest.approx(math.sqrt(3 / 5) * 0.03)
    assert round_scale([paired([0.1, 0.3], ["p", "p"])]) == pytest.approx(math.sqrt((3 * 0.03**2 + 0.02) / 4))
    assert round_scale([]) == pytest.approx(LEAST_SCALE)


@pytest.mark.parametrize("given", [[], [math.nan], [math.inf, 0.0]])
def test_what_is_no_number_is_refused(given: list[float]) -> None:
    with pytest.raises(ValueError, match="finite log ratio"):
        paired(given)
    with pytest.raises(ValueError, match="finite numbers"):
        unpaired(given, [1.0])


def test_a_sample_stands_for_its_rounds() -> None:
    assert isinstance(paired([0.1, 0.2]), Sample)
    assert decide(paired([0.1, 0.2]), S0, margin=0.02) == decide([0.1, 0.2], S0, margin=0.02)
