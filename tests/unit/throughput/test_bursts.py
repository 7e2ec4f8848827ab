"""Bursts: closed forms, bounds, an event simulation that knows nothing of the recurrence, and times read back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.analysis.simulator import Resource, Simulation
from xttsbench.throughput.bursts import period_s, production_times_s


def simulated(production_s, rest_s, ahead):
    """Waits of a consumer behind a buffer, by events: a producer that needs room, and a consumer that needs a batch."""
    simulation, room, items = Simulation(), Resource(ahead), Resource(0)
    waits: list[float] = []

    def producer():
        for seconds in production_s:
            yield "take", room
            yield "wait", float(seconds)
            yield "release", items

    def consumer():
        for seconds in rest_s:
            asked = simulation.now
            yield "take", items
            yield "release", room
            waits.append(simulation.now - asked)
            yield "wait", float(seconds)

    simulation.start(producer())
    simulation.start(consumer())
    simulation.run(lambda: len(waits) == len(rest_s))
    return np.array(waits)


def every_sixteenth(count=160):
    return np.where(np.arange(count) % 16 == 0, 0.08, 0.0005)


def test_a_burst_costs_what_the_buffer_does_not_last_for():
    # 80 ms every 16 batches beside steps of 8 ms: one batch in store hides 8 ms of it, so 72 ms are waited for.
    step = np.full(160, 0.008)
    assert period_s(every_sixteenth(), step, 1) == pytest.approx((16 * 0.008 + 0.072) / 16, rel=0.01)
    assert period_s(every_sixteenth(), step, 16) == pytest.approx(0.008, rel=0.01)


def test_an_even_input_gains_nothing_from_a_buffer():
    assert period_s(np.full(50, 0.02), np.full(50, 0.01), 1) == pytest.approx(0.02)
    assert period_s(np.full(50, 0.02), np.full(50, 0.01), 64) == pytest.approx(0.02)


def test_without_a_buffer_the_two_take_turns():
    assert period_s(np.full(50, 0.02), np.full(50, 0.01), 0) == pytest.approx(0.03)


TIMES = st.lists(st.floats(0.0, 0.1), min_size=5, max_size=40)


@given(TIMES, st.floats(0.001, 0.05), st.integers(1, 8))
def test_more_room_is_never_slower_and_never_beats_the_slower_of_the_two(times, step, ahead):
    production, rest = np.array(times), np.full(len(times), step)
    now = period_s(production, rest, ahead)
    assert period_s(production, rest, ahead + 1) <= now * (1 + 1e-9)
    assert max(production.mean(), step) * (1 - 1e-9) <= now <= (production.mean() + step) * (1 + 1e-9)


@settings(deadline=None)
@given(TIMES, st.floats(0.001, 0.05), st.integers(1, 6))
def test_the_recurrence_is_what_a_simulation_by_events_does(times, step, ahead):
    production, rest = np.array(times * 6), np.full(len(times) * 6, step)
    waits = simulated(production, rest, ahead)
    first = len(times) * 4
    seen = float((waits + rest)[first:].mean())
    assert period_s(np.array(times), rest[: len(times)], ahead) == pytest.approx(seen, rel=0.25, abs=0.1 / first)


@pytest.mark.parametrize("seed", range(5))
def test_what_a_larger_buffer_gives_is_told_from_the_waits_behind_a_small_one(seed):
    """Rare, random bursts: the input's times are read from the waits alone, and the larger buffer is then simulated."""
    rng = np.random.default_rng(seed)
    production = np.where(rng.random(600) < 0.05, 0.15, 0.004)
    rest = np.full(600, 0.016)
    small = simulated(production, rest, 1)
    read = production_times_s(small, rest, 1, float(production.mean()))
    assert read.mean() == pytest.approx(production.mean(), rel=0.05)
    assert period_s(read, rest, 1) == pytest.approx(float((small + rest).mean()), rel=0.03)
    large = float((simulated(production, rest, 32) + rest).mean())
    assert period_s(read, rest, 32) == pytest.approx(large, rel=0.1)


def test_times_that_nobody_waited_for_are_those_that_give_the_mean():
    waits = simulated(every_sixteenth(), np.full(160, 0.008), 1)
    read = production_times_s(waits, np.full(160, 0.008), 1, float(every_sixteenth().mean()))
    assert np.quantile(read, 0.5) == pytest.approx(0.0005, abs=2e-4)
    assert read.max() == pytest.approx(0.08, rel=0.02)
