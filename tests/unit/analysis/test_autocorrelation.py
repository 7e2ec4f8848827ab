"""Closed forms of AR(1) noise, and its memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy import signal, stats

from xttsbench.analysis.autocorrelation import autocorrelation, effective_size, ljung_box


def ar1(phi: float, n: int, seed: int) -> npt.NDArray[np.float64]:
    noise: npt.NDArray[np.float64] = signal.lfilter(
        [1.0], [1.0, -phi], np.random.default_rng(seed).normal(size=n + 300)
    )[300:]
    return noise


@pytest.mark.parametrize("phi", [-0.5, 0.0, 0.6, 0.9])
def test_ar1_forgets_as_powers_of_phi(phi: float) -> None:
    assert autocorrelation(ar1(phi, 100_000, 1), 6) == pytest.approx(phi ** np.arange(7.0), abs=0.03)


def test_the_definition() -> None:
    x = np.random.default_rng(2).normal(size=50)
    centred = x - x.mean()
    by_hand = [np.sum(centred[k:] * centred[: 50 - k]) / np.sum(centred**2) for k in range(8)]
    assert autocorrelation(x, 7) == pytest.approx(by_hand)


def test_constants_and_lags_past_the_end_are_zero() -> None:
    assert autocorrelation(np.full(10, 0.1), 3).tolist() == [1, 0, 0, 0]
    assert autocorrelation([1.0, 2.0], 4)[2:].tolist() == [0, 0, 0]
    assert autocorrelation([], 1).tolist() == [1, 0]


@pytest.mark.parametrize("phi", [-0.5, 0.0, 0.3, 0.6, 0.9])
def test_effective_size_of_ar1(phi: float) -> None:
    found = np.mean([effective_size(ar1(phi, 4000, seed)) for seed in range(10)]) / 4000
    assert found == pytest.approx((1 - phi) / (1 + phi), rel=0.15)


def test_effective_size_is_finite_for_constants_and_alternations() -> None:
    assert effective_size(np.ones(100)) == 100
    assert effective_size([1.0]) == 1
    assert 100 <= effective_size(np.tile([1.0, 2.0], 50)) <= 200


def test_ljung_box_is_uniform_on_noise_and_sees_memory() -> None:
    values = [ljung_box(np.random.default_rng(seed).normal(size=300), 10) for seed in range(300)]
    assert stats.kstest(values, "uniform").pvalue > 0.01
    assert ljung_box(ar1(0.4, 300, 3), 10) < 1e-4
    assert ljung_box(np.ones(30), 5) == 1


def test_ljung_box_by_hand() -> None:
    x = np.array([1.0, 2.0, 4.0, 3.0])
    # rho_1 = (-1.5*-0.5 + -0.5*1.5 + 1.5*0.5) / 5 = 0.15, so Q = 4 * 6 * 0.15^2 / 3 = 0.18.
    assert ljung_box(x, 1) == pytest.approx(stats.chi2.sf(0.18, 1))


@pytest.mark.parametrize("lags", [0, 4])
def test_ljung_box_refuses_lags_that_the_series_lacks(lags: int) -> None:
    with pytest.raises(ValueError, match="more steps than lags"):
        ljung_box([1.0, 2.0, 3.0, 5.0], lags)
