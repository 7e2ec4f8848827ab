from __future__ import annotations

import numpy as np

from xttsbench.records.trial import Segment
from xttsbench.reporting.scene import from_segment


def test_columns_become_seconds_from_the_first_step() -> None:
    columns = {
        "start_ns": (1_000, 2_000_001_000, 5_000_001_000),
        "wall_ns": (2_000_000_000, 3_000_000_000, 1_000_000_000),
        "wait_ns": (500_000_000, 0, 250_000_000),
        "step_ns": (1_500_000_000, 3_000_000_000, 750_000_000),
        "emulated_ns": (0, 1_000_000_000, 1_000_000_000),
        "cpu_ns": (10, 20, 30),
    }
    series = from_segment(Segment(name="as_is", columns=columns, warmup_steps=1), label="a")
    assert series is not None
    assert series.zero_ns == 1_000
    np.testing.assert_allclose(series.end_s, [2, 5, 6])
    np.testing.assert_allclose(series.wait_s, [0.5, 0, 0.25])
    np.testing.assert_allclose(series.accelerator_s, [0, 1, 1])
    assert series.steady_from == 1
    np.testing.assert_allclose(series.steady_wall_s, [3, 1])


def test_what_was_not_recorded_is_nan_or_none_and_never_zero() -> None:
    series = from_segment(Segment(name="as_is", columns={"start_ns": (5,), "wall_ns": (10,)}), label="a")
    assert series is not None
    assert series.accelerator_s is None
    for column in (series.wait_s, series.step_s, series.cpu_s):
        assert np.isnan(column).all()


def test_the_steady_state_starts_after_warm_up_and_what_the_analysis_cuts() -> None:
    wall = (900, 900, *(300,) * 20, *(100, 101, 99, 100) * 25)
    columns = {"start_ns": tuple(np.cumsum((0, *wall[:-1])).tolist()), "wall_ns": wall}
    series = from_segment(Segment(name="as_is", columns=columns, warmup_steps=2), label="a")
    assert series is not None
    assert series.steady_from == 22


def test_no_steps_no_series() -> None:
    assert from_segment(Segment(name="as_is"), label="a") is None
    assert from_segment(Segment(name="as_is", columns={"wait_ns": (1,)}), label="a") is None
