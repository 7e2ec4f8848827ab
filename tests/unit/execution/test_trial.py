"""Whether a trial that was killed ran out of memory, by what was read of it until then."""

from __future__ import annotations

import pytest

from xttsbench.execution import trial
from xttsbench.records.readings import HostReadings, Readings

GIB = 2**30


@pytest.mark.parametrize(("held_gib", "suspected"), [(1, False), (6, False), (7.5, True), (10, True)])
def test_a_killed_trial_that_held_most_of_the_memory_ran_out_of_it(held_gib, suspected, monkeypatch) -> None:
    monkeypatch.setattr(trial, "memory_limit_bytes", lambda: 10 * GIB)
    readings = Readings(host=HostReadings(t_ns=(1, 2), rss_bytes=(GIB, int(held_gib * GIB))))
    said = trial._out_of_memory(readings)
    assert (said is not None) is suspected
    if said:
        assert f"{held_gib:.1f} of 10.0 GiB" in said


def test_without_readings_nothing_is_suspected() -> None:
    assert trial._out_of_memory(Readings()) is None
