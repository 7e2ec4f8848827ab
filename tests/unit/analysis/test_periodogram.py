"""The periodogram's scale, its null, and how often noise crosses its threshold."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal

from xttsbench.analysis.periodogram import periodogram


def test_white_noise_of_variance_v_has_power_v() -> None:
    rng = np.random.default_rng(1)
    power = np.mean([periodogram(3 * rng.normal(size=400)).power for _ in range(400)], axis=0)
    # The trend that is taken out is in the lowest frequencies.
    assert power[4:] == pytest.approx(9, rel=0.25)
    assert power[4:].mean() == pytest.approx(9, rel=0.02)


@pytest.mark.parametrize("phi", [0.6, 0.9])
def test_red_noise_follows_its_null(phi: float) -> None:
    rng = np.random.default_rng(2)
    found = [periodogram(signal.lfilter([1.0], [1.0, -phi], rng.normal(size=900))[500:]) for _ in range(300)]
    exact = 1 / np.abs(1 - phi * np.exp(-2j * np.pi * found[0].frequency)) ** 2
    power = np.mean([one.power for one in found], axis=0)
    null = np.mean([one.null for one in found], axis=0)
    assert power[8:] == pytest.approx(exact[8:], rel=0.35)
    # Never much below what it stands for; above it by design, for slower noise under white noise.
    assert np.all(null[8:] > 0.85 * exact[8:])


@pytest.mark.parametrize("phi", [0.0, 0.6, 0.9])
def test_noise_crosses_the_threshold_in_one_series_of_a_hundred(phi: float) -> None:
    rng = np.random.default_rng(3)
    crossed = 0
    for _ in range(600):
        found = periodogram(signal.lfilter([1.0], [1.0, -phi], rng.normal(size=700))[300:])
        crossed += bool(np.any(found.power > found.threshold))
    assert crossed <= 15


def test_a_sinusoid_peaks_at_its_frequency_above_the_threshold() -> None:
    found = periodogram(np.sin(2 * np.pi * np.arange(400) / 8) + np.random.default_rng(4).normal(size=400))
    peak = int(np.argmax(found.power))
    assert found.frequency[peak] == pytest.approx(1 / 8)
    assert found.power[peak] > 3 * found.threshold[peak]
    assert found.frequency[[0, -1]].tolist() == [1 / 400, 0.5]


def test_a_trend_and_a_constant_have_no_power() -> None:
    assert periodogram(np.linspace(0, 5, 100)).power.max() < 1e-20
    assert periodogram(np.ones(64)).threshold.max() == 0


def test_too_short_a_series_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 8 steps; got 7"):
        periodogram(np.arange(7.0))
