"""Batches of timed runs, compared by their digests: what differs is found, and what tells nothing says so."""

from __future__ import annotations

import pytest

from xttsbench.records.pipeline import Contents
from xttsbench.samedata.judge import compare_timed

FORM = 7 << 32


def contents(values: dict[int, int], *, epoch: int = 0, seen: int | None = None) -> Contents:
    return Contents(
        epochs=(epoch,) * len(values),
        batches=tuple(values),
        digests=tuple(FORM | value for value in values.values()),
        seen=seen or len(values),
    )


SLOW = contents({number: number + 100 for number in range(10)})
FAST = contents({number: number + 100 for number in range(0, 64, 4)}, seen=64)


def test_the_batches_that_both_have_are_compared() -> None:
    found = compare_timed({1: [SLOW, SLOW]}, {1: [FAST]}, bits=True)
    assert (found.same, found.compared, found.of) == (True, 3, 64)


@pytest.mark.parametrize("twice", [True, False])
def test_another_value_is_found_and_held_against_the_fix_where_the_original_is_known_to_repeat(twice) -> None:
    wrong = contents({0: 100, 4: 105, 8: 108})
    found = compare_timed({1: [SLOW] * (1 + twice)}, {1: [wrong]}, bits=True)
    assert found.same is (False if twice else None)
    assert found.compared == 3
    assert found.sentence.startswith("batch 5 of epoch 1, as it was timed, has other values")


def test_where_values_may_be_rounded_the_form_is_compared() -> None:
    rounded = contents({0: 1, 4: 2})
    assert compare_timed({1: [SLOW, SLOW]}, {1: [rounded]}, bits=False).same is True
    other = rounded.model_copy(update={"digests": (FORM | 1, (8 << 32) | 2)})
    found = compare_timed({1: [SLOW, SLOW]}, {1: [other]}, bits=False)
    assert found.same is False
    assert "another dtype or shape" in found.sentence


def test_an_original_that_does_not_repeat_itself_tells_nothing() -> None:
    found = compare_timed({1: [SLOW, contents({3: 0})]}, {1: [FAST]}, bits=True)
    assert (found.same, found.compared) == (None, 0)
    assert "run to run" in found.sentence


def test_another_block_has_seeds_of_its_own_and_another_epoch_batches_of_its_own() -> None:
    for fixed in ({2: [FAST]}, {1: [FAST.model_copy(update={"epochs": (1,) * 16})]}):
        found = compare_timed({1: [SLOW, SLOW]}, fixed, bits=True)
        assert (found.same, found.compared, found.sentence) == (None, 0, "there are none of both")
