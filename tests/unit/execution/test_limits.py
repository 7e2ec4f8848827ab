"""Limits follow the machine's pace: what is merely slow is not taken for hung."""

from __future__ import annotations

import pytest

from xttsbench.execution.limits import Limits, at_pace, pace
from xttsbench.records.readings import HostReadings, Readings
from xttsbench.records.trial import RoundMark, TrialRecord

S = 1_000_000_000


def beside(build, *, steal: float = 0.0, foreign: float = 0.0) -> TrialRecord:
    """Ten seconds on two processors, of which others take a share."""
    times = tuple(second * S for second in range(12))
    used = {"busy": 2 * foreign, "steal": 2 * steal, "idle": 2 - 2 * foreign - 2 * steal}
    machine = {f"machine_{name}_s": tuple(cpus * second for second in range(12)) for name, cpus in used.items()}
    host = HostReadings(t_ns=times, allowed_cpus=2, cpu_s=(0.0,) * 12, **machine)
    return build.trial("ladder", build.segment(step_s=[0.1] * 90), readings=Readings(host=host))


def test_an_ordinary_machine_has_pace_one(build) -> None:
    assert pace(5.0, []) == 1.0
    assert pace(6.0, [beside(build)]) == 1.0


def test_an_import_that_takes_long_tells_of_a_slow_machine() -> None:
    assert pace(15.0, []) == pytest.approx(2.5)
    assert pace(600.0, []) == 10.0  # a cold disk


def test_so_does_what_others_took(build) -> None:
    assert pace(5.0, [beside(build, steal=0.6)]) == pytest.approx(2.5)
    assert pace(5.0, [beside(build), beside(build, foreign=0.5)]) == pytest.approx(2.0)
    assert pace(5.0, [beside(build, foreign=0.5), *[beside(build)] * 8]) == 1.0  # that was long ago


def test_and_the_canary(build) -> None:
    marks = [RoundMark(round=i, start_ns=0, end_ns=S, canary_before_ns=ns) for i, ns in enumerate((400, 1200, 400))]
    assert pace(5.0, [build.trial("arm").model_copy(update={"rounds": tuple(marks)})]) == pytest.approx(3.0)


def test_silence_may_last_four_times_what_starting_took(build) -> None:
    segment = build.segment("warm_up", wait_s=[4.0, 0.1], step_s=[6.0, 0.1])
    trial = build.trial("ladder", segment, setup_s=3.0)
    found = at_pace(Limits(20.0, 15.0), 7.0, [trial])
    assert found.stall_s == pytest.approx(4 * (7 + 3 + 4 + 6))
    assert found.time_s == found.stall_s


def test_a_fork_that_takes_fifteen_seconds_on_a_slow_machine_is_no_stall() -> None:
    """What a check of the same data gave up after: a machine that lost two thirds of its time imports in 18 s."""
    assert at_pace(Limits(20.0, 15.0), 18.0, []).stall_s >= 60.0
    assert at_pace(Limits(20.0, 15.0), 5.0, []).stall_s >= 20.0


def test_limits_are_never_shorter_than_asked_for_and_an_end_is_kept() -> None:
    assert at_pace(Limits(300.0, 60.0), 1.0, []).stall_s == 60.0
    assert at_pace(Limits(300.0, 60.0), 1.0, []).time_s >= 300.0
    assert at_pace(Limits(40.0, 30.0, most_s=55.0), 60.0, []).time_s == 55.0


@pytest.mark.parametrize(("time_s", "stall_s"), [(0, 1), (1, 0), (-1, 1)])
def test_limits_are_positive(time_s: float, stall_s: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        Limits(time_s, stall_s)
