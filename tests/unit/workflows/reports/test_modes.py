"""The modes of the step as arms: one figure for each, whatever the processes took."""

from __future__ import annotations

import numpy as np
import pytest

from xttsbench.diagnosis.diagnosis import build_diagnosis
from xttsbench.workflows.reports.modes import GROUP, mode_arms

MACHINE = {"cpu": {"allowed_cpus": 2.0}}


def test_times_rates_and_ratios_of_the_modes_agree(build) -> None:
    # The process of XLA ran on a slower machine than the main one: 300 ms as given there, 200 ms here.
    given = build.segment("step_only", step_s=[0.30] * 20, calls_s=0.30, valid_frames=500, frames=600)
    through_xla = build.segment("xla", step_s=[0.315] * 20, calls_s=0.315, valid_frames=500, frames=600)
    slow = build.trial("xla", build.segment("warm_up", step_s=[2.0]), given, through_xla, number=1)
    given = build.segment("step_only", step_s=[0.2] * 20, calls_s=0.2)
    eager = build.trial("eager", given, build.segment("eager", step_s=[0.8] * 20), number=2)
    failed = build.trial("precision", number=3, status="raised", cause="no kernel")
    trials = [build.ladder(step=0.2, steps=40), slow, eager, failed]
    evidence = build_diagnosis(trials, MACHINE).evidence
    arms = {arm.id: arm for arm in mode_arms(trials, evidence.modes, "graph", np.random.default_rng(0))}
    as_given = arms["step:graph"]
    assert {arm.group for arm in arms.values()} == {GROUP}
    assert as_given.step_time_s.estimate == pytest.approx(0.2, rel=0.02)
    for name, speedup in (("step:xla", 0.30 / 0.315), ("step:eager", 0.25)):
        arm = arms[name]
        assert arm.effect.estimate == pytest.approx(speedup, rel=1e-6)
        assert as_given.step_time_s.estimate / arm.step_time_s.estimate == pytest.approx(speedup, rel=1e-6)
        assert arm.throughput_per_s.estimate / as_given.throughput_per_s.estimate == pytest.approx(speedup, rel=1e-6)
        assert arm.step_time_s.low <= arm.step_time_s.estimate <= arm.step_time_s.high
