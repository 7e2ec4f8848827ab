"""Change of the rate: the same sound, of the right length, and nothing from above the new Nyquist frequency."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xttsbench.xtts.audio.resample import factors, resample

RATE = 22050
Floats = npt.NDArray[np.float32]


def tone(hertz: float, rate: int, seconds: float = 0.5) -> Floats:
    return np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate).astype(np.float32)


def level_db(samples: Floats) -> float:
    middle = samples[len(samples) // 5 : -len(samples) // 5].astype(np.float64)
    return float(20 * np.log10(np.sqrt(2 * np.mean(middle**2)) + 1e-12))


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 24000, 44100, 48000, 96000, 44101])
def test_a_tone_stays_that_tone(rate: int) -> None:
    hertz = 0.85 * min(rate, RATE) / 2
    there = resample(tone(hertz, rate), rate, RATE)
    expected = tone(hertz, RATE)[: len(there)]
    inner = slice(len(there) // 5, -len(there) // 5)
    # In phase as well: within a thousandth at every sample.
    np.testing.assert_allclose(there[inner], expected[inner], atol=1e-3)


@pytest.mark.parametrize("above", [1.01, 1.05, 1.3, 1.9])
@pytest.mark.parametrize("rate", [44100, 48000, 96000])
def test_a_tone_above_the_new_nyquist_frequency_does_not_come_back_below_it(rate: int, above: float) -> None:
    assert level_db(resample(tone(above * RATE / 2, rate), rate, RATE)) < -75


def test_taking_every_second_sample_would_fail_that() -> None:
    assert level_db(tone(1.3 * RATE / 2, 2 * RATE)[::2]) > -1


def test_no_image_appears_where_the_rate_rises() -> None:
    spectrum = np.abs(np.fft.rfft(resample(tone(3000, 8000, 1.0), 8000, RATE).astype(np.float64) * np.hanning(RATE)))
    assert spectrum[4100:].max() < 1e-4 * spectrum.max()


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 3000),
    rates=st.sampled_from([(44100, RATE), (48000, RATE), (16000, RATE), (8000, 48000), (RATE, 16000)]),
)
def test_the_length(count: int, rates: tuple[int, int]) -> None:
    resampled = resample(np.ones(count, np.float32), *rates)
    assert len(resampled) == math.ceil(count * rates[1] / rates[0])
    assert resampled.dtype == np.float32


def test_the_same_rate_changes_nothing() -> None:
    samples = tone(100, RATE)
    assert resample(samples, RATE, RATE) is samples


@pytest.mark.parametrize("rate", range(8000, 8100))
def test_usual_ratios_are_exact_and_odd_ones_near(rate: int) -> None:
    up, down = factors(rate, RATE)
    assert up * rate == down * RATE


@pytest.mark.parametrize("rates", [(0, RATE), (RATE, 999), (1_000_000, RATE), (-1, RATE)])
def test_rates_that_no_speech_has_are_refused(rates: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="Hz can be converted"):
        resample(tone(100, RATE), *rates)


def test_a_ratio_of_primes_is_replaced_by_one_close_by() -> None:
    up, down = factors(192_001, RATE)
    assert max(up, down) <= 50_000
    assert up / down == pytest.approx(RATE / 192_001, rel=1e-4)
