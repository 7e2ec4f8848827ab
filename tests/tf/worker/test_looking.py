"""Looking has a price, and it is told."""

from __future__ import annotations

from xttsbench.worker.looking import measure_looking


def test_looking_costs_something_and_well_below_a_millisecond(bench):
    bench.watch.__exit__()  # as the ladder leaves it before
    found = measure_looking(bench)
    assert 0 < found.overhead_s < 1e-3
    assert found.pairs == 20
    assert "20 pairs of 50" in found.method
    # None of its steps are anybody's measurement.
    assert bench.channel.messages == []
