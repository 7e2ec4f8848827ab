"""Measuring has a price; it is that of the loop which really runs, and it is told."""

from __future__ import annotations

import statistics
import time

import pytest
import tensorflow as tf

from xttsbench.step.watch import MANY_CALLS
from xttsbench.worker.bench import measure_overhead, overhead_of


@pytest.mark.parametrize("calls", [1, MANY_CALLS])
def test_measuring_costs_something_and_is_nobody_s_measurement(bench, calls):
    bench.watch.__exit__()  # as the ladder leaves it before
    found = measure_overhead(bench, calls)
    assert 0 <= found.overhead_s < 1e-2
    assert found.overhead_s > 0 or calls == MANY_CALLS  # whose own noise may be more
    assert found.pairs == 20
    assert f"20 pairs of {50 if calls == 1 else 10} steps ({calls} small compiled call" in found.method
    # None of its steps are anybody's measurement.
    assert (bench.channel.messages, bench.channel.rows.steps) == ([], 0)


def small_call_s():
    """Processor time of one call of a small compiled function, the median of twenty stretches of fifty."""
    function, batch, found = tf.function(lambda batch: batch + 1), tf.zeros([4, 4]), []
    function(batch)
    for _ in range(20):
        began = time.thread_time_ns()
        for _ in range(50):
            function(batch)
        found.append((time.thread_time_ns() - began) / 50e9)
    return statistics.median(found)


@pytest.mark.measured
@pytest.mark.parametrize("calls", [1, pytest.param(50, marks=pytest.mark.slow)])
def test_it_is_less_than_a_sixth_of_one_small_compiled_call(bench, calls):
    bench.watch.__exit__()
    assert any(6 * measure_overhead(bench, calls).overhead_s <= small_call_s() for _ in range(5))


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_a_known_difference_is_found_though_some_runs_are_held_up():
    runs = [0]

    def measured(steps):
        runs[0] += 1
        time.sleep(0.01)  # another's turn on the processor
        spin(steps * 100e-6 + (0.05 if runs[0] % 4 == 0 else 0.0))

    assert overhead_of(measured, lambda steps: None, "spins").overhead_s == pytest.approx(100e-6, rel=0.1)


def test_what_costs_less_than_nothing_costs_nothing():
    assert overhead_of(lambda steps: None, lambda steps: spin(0.001), "spins").overhead_s == 0.0
