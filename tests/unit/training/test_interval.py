"""Sums of an interval's steps, in one session or in two."""

from __future__ import annotations

import math

import numpy as np
import pytest

from xttsbench.training.course import Sums, Values

RNG = np.random.default_rng(0)
STEPS = [Values(*RNG.normal(size=5).astype(np.float32).tolist(), 1.0) for _ in range(11)]
STEPS[4] = Values(math.nan, math.nan, 1.0, 1.0, math.inf, 0.0)
STEPS[7] = Values(math.inf, 1.0, 1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("cut", range(12))
def test_an_interval_cut_in_two_and_written_as_json_is_bit_equal(cut: int) -> None:
    whole = Sums().plus(STEPS)
    first = Sums.model_validate_json(Sums().plus(STEPS[:cut]).model_dump_json())
    assert first.plus(STEPS[cut:]) == whole


def test_means_are_of_good_steps_alone() -> None:
    interval = Sums().plus(STEPS).interval(last_step=20, learning_rate=0.1, loss_scale=8.0, epoch=2)
    good = [values for values in STEPS if values.applied and math.isfinite(values.total)]
    assert (interval.first_step, interval.steps, interval.skipped) == (10, 11, 2)
    assert interval.loss == pytest.approx(np.mean([values.total for values in good]), rel=1e-12)
    assert interval.gradient_norm == pytest.approx(np.mean([values.gradient_norm for values in good]), rel=1e-12)
    nothing = Sums().plus(STEPS[4:5]).interval(last_step=5, learning_rate=0.1, loss_scale=None, epoch=0)
    assert (nothing.loss, nothing.mel, nothing.skipped) == (None, None, 1)
