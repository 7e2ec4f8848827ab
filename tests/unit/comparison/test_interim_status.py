"""How a comparison stands while it runs."""

from __future__ import annotations

import pytest

from xttsbench.comparison.effects import interim_status


def trials(build, blocks: int, **walls: float):
    return [build.arm_trial(arm, wall, block=block) for block in range(blocks) for arm, wall in walls.items()]


def test_the_fastest_candidate_leads_from_the_first_round_on(build) -> None:
    comparison = build.comparison(*"abc")
    for blocks, word in ((1, "faster"), (2, "clearly_faster")):
        found = interim_status(comparison, trials(build, blocks, a=0.02, b=0.016, c=0.01))
        assert (found.alive, found.arms, found.leader, found.word) == (3, 3, "c", word)
        assert found.ratio.estimate == pytest.approx(2, rel=0.02)
        assert found.ratio.low < 2 < found.ratio.high
    assert str(found).startswith("3 of 3 configurations alive; c leads, 2.0")
    assert str(found).endswith(" the baseline: clearly faster")


def test_an_arm_that_ended_does_not_lead(build) -> None:
    comparison = build.comparison(*"abc")
    found = interim_status(comparison, [*trials(build, 2, a=0.02, b=0.016, c=0.01), build.dead("c", block=2)])
    assert (found.alive, found.leader) == (2, "b")


def test_before_a_block_has_both_nobody_leads(build) -> None:
    comparison = build.comparison(*"ab")
    for some in ([], trials(build, 1, b=0.01), trials(build, 1, a=0.02)):
        found = interim_status(comparison, some)
        assert (found.alive, found.leader, str(found)) == (2, None, "2 of 2 configurations alive")
