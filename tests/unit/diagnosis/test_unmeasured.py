"""Reasons for what a diagnosis could not measure: they agree with the counts of steps beside them."""

from __future__ import annotations

import numpy as np

from tests.unit.diagnosis.test_diagnosis import MACHINE
from xttsbench.diagnosis import build_diagnosis


def test_of_the_steps_of_several_rounds_it_is_said_how_many_follow_one_another(build) -> None:
    number = np.repeat([0, 1, 2], [26, 25, 24])
    given = build.segment(wait_s=[0.05] * 75, step_s=[0.01] * 75, round=number, batch=np.arange(75))
    found = build_diagnosis([build.trial("ladder", given)], MACHINE).unmeasured
    assert found["oscillation.period_steps"].startswith("only 26 steps in a row (of 75), 64 are needed")
    assert found["oscillation.p99_over_p50"].startswith("only 75 steps, 100 are needed"), "of all steps, as the 95th is"


def test_where_no_period_was_found_it_is_said_in_how_many_steps_of_all(build) -> None:
    number = np.repeat([0, 1], [80, 40])
    wait = build.noisy(0.05, 120, np.random.default_rng(0))
    given = build.segment(wait_s=wait, step_s=[0.01] * 120, round=number, batch=np.arange(120))
    found = build_diagnosis([build.trial("ladder", given)], MACHINE).unmeasured
    assert "at 1 % in 80 steps in a row (of 120)" in found["oscillation.period_steps"]


def test_steps_that_were_all_warm_up_are_not_called_none(build) -> None:
    early = build.trial("ladder", build.segment("warm_up", wait_s=[0.1, 0.1], step_s=[0.01, 0.01]))
    assert build_diagnosis([early], MACHINE).why_undecided == "only 2 step(s) ended, which are warm-up"
