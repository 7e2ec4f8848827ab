"""The order of the trials: complete blocks, random from the seed, balanced for two arms."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xttsbench.planning import block_order
from xttsbench.records.plan import Accelerator


def names(comparison, block, seed):
    return [(slot.accelerator.label, slot.arm.id) for slot in block_order(comparison, block, seed)]


@settings(max_examples=60)
@given(arms=st.integers(1, 6), devices=st.integers(1, 3), block=st.integers(0, 99), seed=st.integers(0, 2**31 - 1))
def test_every_block_holds_every_arm_once_on_every_accelerator(build, arms, devices, block, seed) -> None:
    accelerators = (Accelerator(), build.emulated(5), build.emulated(10))[:devices]
    comparison = build.comparison(*"abcdef"[:arms], accelerators=accelerators)
    found = names(comparison, block, seed)
    assert sorted(found) == sorted((a.label, arm.id) for a in accelerators for arm in comparison.arms)
    # The arms of one accelerator follow one another: its label changes as often as there are further ones.
    assert sum(one[0] != other[0] for one, other in pairwise(found)) == devices - 1
    assert names(comparison, block, seed) == found


def test_blocks_and_seeds_have_orders_of_their_own(build) -> None:
    comparison = build.comparison(*"abcdef")
    assert len({tuple(names(comparison, block, 0)) for block in range(20)}) == 20
    assert names(comparison, 3, 1) != names(comparison, 3, 2)


def test_each_arm_comes_to_each_place_as_often(build) -> None:
    comparison = build.comparison("a", "b", "c", again=False)
    places = Counter((place, arm) for block in range(900) for place, (_, arm) in enumerate(names(comparison, block, 7)))
    assert len(places) == 9
    assert min(places.values()) > 250  # 300 each; six standard deviations are 85
    assert max(places.values()) < 350


@pytest.mark.parametrize("again", [False, True])
def test_two_arms_are_balanced_in_pairs_of_blocks(build, again) -> None:
    comparison = build.comparison("a", "b", again=again, accelerators=(Accelerator(), build.emulated()))
    orders = [names(comparison, block, 3) for block in range(40)]
    for first, second in zip(orders[::2], orders[1::2], strict=True):
        assert second == first[::-1]
    assert len({tuple(order) for order in orders[::2]}) > 2  # and each pair is drawn anew
