"""The vector, its closed forms, and the reasons of its nulls."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xttsbench.analysis.oscillation import burstiness, oscillation, robust_cv
from xttsbench.records.report import Oscillation

FloatArray = npt.NDArray[np.float64]


def every_16(n: int = 400, seed: int = 0) -> FloatArray:
    rng = np.random.default_rng(seed)
    steps: FloatArray = 0.01 * (1 + 0.02 * rng.normal(size=n) + 20 * (np.arange(n) % 16 == 5))
    return steps


@pytest.mark.parametrize("n", [2, 9, 40])
def test_regular_gaps_are_minus_one(n: int) -> None:
    assert burstiness(np.full(n, 16)) == pytest.approx(-1)


@pytest.mark.parametrize("n", [9, 20, 200])
def test_gaps_of_a_poisson_process_are_zero_however_few(n: int) -> None:
    rng = np.random.default_rng(1)
    assert np.mean([burstiness(rng.exponential(size=n)) for _ in range(2000)]) == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize("n", [9, 30])
def test_the_burstiest_series_of_any_length_is_one(n: int) -> None:
    assert burstiness([*[0.0] * (n - 1), 100.0]) == pytest.approx(1)


@pytest.mark.parametrize("gaps", [[], [3.0], [0.0, 0.0]])
def test_too_few_gaps_are_refused(gaps: list[float]) -> None:
    with pytest.raises(ValueError, match="two positive gaps"):
        burstiness(gaps)


def test_robust_cv_is_the_cv_of_normal_noise_and_ignores_outliers() -> None:
    steps = np.random.default_rng(2).normal(1, 0.1, 20_000)
    assert robust_cv(steps) == pytest.approx(0.1, rel=0.03)
    steps[:1000] = 1e6
    assert robust_cv(steps) == pytest.approx(0.1, rel=0.1)


def test_stalls_every_16_steps() -> None:
    steps = every_16()
    found, reasons = oscillation(steps)
    assert reasons == {}
    assert found.period_steps == 16
    assert found.period_s == pytest.approx(16 * steps.mean())
    assert found.variance_share is not None
    assert found.variance_share > 0.5
    assert found.burstiness == pytest.approx(-1)
    assert found.p_value is not None
    assert found.p_value <= 0.01
    assert found.cv == pytest.approx(0.02, rel=0.4)
    assert found.p99_over_p50 == pytest.approx(21, rel=0.05)
    assert found.std_over_mean == pytest.approx(np.std(steps, ddof=1) / np.mean(steps))
    assert found.std_over_mean is not None
    assert found.std_over_mean > 0.5
    assert found.ljung_box_p is not None
    assert found.ljung_box_p < 0.01


def test_white_noise_is_described_and_not_periodic() -> None:
    found, reasons = oscillation(np.random.default_rng(3).normal(1, 0.05, 400))
    assert set(reasons) == {"period_steps", "period_s", "variance_share", "p_value", "burstiness"}
    assert "red noise" in reasons["period_steps"]
    assert "stalls" in reasons["burstiness"]
    assert found.autocorrelation == pytest.approx(0, abs=0.15)
    assert found.effective_steps == pytest.approx(400, rel=0.4)


@pytest.mark.parametrize("n", [0, 1, 5, 19, 20, 63, 64, 99, 100, 399])
@pytest.mark.parametrize("constant", [True, False])
def test_every_null_has_a_reason_and_nothing_else_has(n: int, constant: bool) -> None:
    steps = np.full(n, 0.1) if constant else every_16(n)
    found, reasons = oscillation(steps)
    assert {name for name in Oscillation.model_fields if getattr(found, name) is None} == set(reasons)
    if n < 20:
        assert reasons["cv"] == f"only {n} steps, 20 are needed"
    if 20 <= n < 64:
        assert reasons["period_steps"].startswith(f"only {n} steps")


def test_a_short_miss_says_how_many_steps_are_wanted() -> None:
    _, reasons = oscillation(np.random.default_rng(4).normal(1, 0.05, 100))
    assert "400 are wanted" in reasons["period_steps"]


def test_steps_of_no_time_have_no_ratios() -> None:
    found, reasons = oscillation(np.zeros(100))
    assert found == Oscillation()
    assert set(reasons) == set(Oscillation.model_fields)


@settings(max_examples=8, deadline=None)
@given(scale=st.floats(1e-4, 1e4), seed=st.integers(0, 100))
def test_the_unit_of_time_does_not_matter(scale: float, seed: int) -> None:
    one, _ = oscillation(every_16(128, seed))
    other, _ = oscillation(scale * every_16(128, seed))
    assert other.period_s is not None
    assert one.period_s is not None
    assert other.period_s == pytest.approx(scale * one.period_s)
    shapes = [vector.model_dump(exclude={"period_s"}, exclude_none=True) for vector in (one, other)]
    assert shapes[1] == pytest.approx(shapes[0], rel=1e-6)
