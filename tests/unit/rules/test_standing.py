"""How a comparison stands while it runs."""

from __future__ import annotations

import pytest

from xttsbench.rules.standing import standing


def trials(build, blocks: int, **walls: float):
    return [build.arm_trial(arm, wall, block=block) for block in range(blocks) for arm, wall in walls.items()]


def test_the_fastest_candidate_leads_with_an_interval_from_three_blocks_on(build) -> None:
    comparison = build.comparison(*"abc")
    for blocks in (1, 2, 3, 4):
        found = standing(comparison, trials(build, blocks, a=0.02, b=0.016, c=0.01))
        assert (found.alive, found.arms, found.leader) == (3, 3, "c")
        assert found.ratio == pytest.approx(2, rel=0.02)
        assert (found.interval is not None) == (blocks >= 3)
    assert found.interval is not None
    assert found.interval.low < 2 < found.interval.high
    assert str(found).startswith("3 of 3 arms alive; c leads, 2.0")


def test_an_arm_that_ended_does_not_lead(build) -> None:
    comparison = build.comparison(*"abc")
    found = standing(comparison, [*trials(build, 2, a=0.02, b=0.016, c=0.01), build.dead("c", block=2)])
    assert (found.alive, found.leader) == (2, "b")


def test_before_a_block_has_both_nobody_leads(build) -> None:
    comparison = build.comparison(*"ab")
    for some in ([], trials(build, 1, b=0.01), trials(build, 1, a=0.02)):
        found = standing(comparison, some)
        assert (found.alive, found.leader, str(found)) == (2, None, "2 of 2 arms alive")
