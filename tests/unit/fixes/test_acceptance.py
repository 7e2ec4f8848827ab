"""How often a fix that is worth nothing is called faster, and one that is worth something is found."""

from __future__ import annotations

import pytest

from tests.unit.fixes.verification import accepted


@pytest.mark.parametrize("machine", [{}, {"noise": 0.05, "burst": 0.02}])
def test_of_fixes_that_are_worth_nothing_none_is_accepted(machine) -> None:
    found = accepted({"prefetch": 1.0, "parallel-map": 1.0}, range(30), **machine)
    assert (found["prefetch"], found["parallel-map"]) == (0, 0)


def test_a_fix_that_is_worth_something_is_accepted_in_most_verifications_and_one_beside_it_that_is_not_in_few() -> None:
    found = accepted({"prefetch": 1.3, "parallel-map": 1.0}, range(30), noise=0.05)
    assert found["prefetch"] >= 0.9
    assert found["parallel-map"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(("worth", "low", "high"), [(1.0, 0.0, 0.02), (1.3, 0.8, 1.0)])
@pytest.mark.parametrize("machine", [{}, {"noise": 0.1}, {"noise": 0.05, "burst": 0.02}])
def test_of_four_hundred_verifications(worth, low, high, machine) -> None:
    found = accepted({"prefetch": worth}, range(1_000, 1_400), **machine)
    print(f"worth {worth}, {machine}: {found}")
    assert low <= found["prefetch"] <= high
