from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.throughput.stages import in_order

times = st.lists(st.floats(1e-4, 1.0), min_size=8, max_size=40).map(tuple)


def test_calls_of_one_length_lose_nothing() -> None:
    assert in_order((0.01,) * 10, 8) == pytest.approx(1.0, rel=0.01)


def test_one_at_a_time_is_in_order_anyway() -> None:
    assert in_order((0.001, 0.1) * 8, 1) == 1.0


def test_few_times_say_nothing() -> None:
    assert in_order((0.001, 0.1), 8) == 1.0


def test_two_slots_and_two_lengths() -> None:
    """Where some calls take no time, two slots hold pairs up by the longer of the two, at most."""
    found = in_order((0.0,) * 8 + (1.0,) * 8, 2)
    # Calls of length 1 follow one another in order; two of them overlap only where they are neighbours in their slots.
    assert 1.0 < found <= 2.0


def test_rare_long_calls_among_many_slots_take_their_own_length() -> None:
    """One in twenty takes a hundred times as long, so that most slots hold results that are ready."""
    mostly = (0.001,) * 19 + (0.1,)
    assert in_order(mostly, 8) > 2.0
    assert in_order(mostly, 8) > in_order(mostly, 2)


@given(times, st.integers(1, 16))
def test_order_never_helps_and_never_costs_more_than_taking_turns(found: tuple[float, ...], calls: int) -> None:
    assert 1.0 <= in_order(found, calls) <= calls + 1e-9


@given(times, st.integers(2, 8), st.floats(0.1, 10.0))
def test_units_do_not_matter(found: tuple[float, ...], calls: int, scale: float) -> None:
    scaled = tuple(one * scale for one in found)
    assert in_order(scaled, calls) == pytest.approx(in_order(found, calls), rel=1e-6)
