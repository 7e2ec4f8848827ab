"""Log-mels against closed forms: the discrete Fourier transform by definition, Slaney's scale, areas of triangles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from xttsbench.shipped import shipped
from xttsbench.xtts.features import FeatureSettings, log_mel, mel_filters
from xttsbench.xtts.recipe import load_recipe

SETTINGS = load_recipe(shipped("training", "tiny")).features


def changed(**values: Any) -> FeatureSettings:
    return FeatureSettings.model_validate(SETTINGS.model_dump() | values)


def test_the_shipped_settings_are_those_of_the_published_vocoders() -> None:
    assert tuple(SETTINGS.model_dump().values()) == (22050, 1024, 256, 1024, 80, 0.0, 8000.0, 1e-5)


def test_a_frame_is_the_transform_by_definition() -> None:
    samples = np.random.default_rng(1).normal(0, 0.1, 8000).astype(np.float32)
    mel = log_mel(samples, SETTINGS)
    assert mel.shape == (8000 // 256, 80)
    assert mel.dtype == np.float32
    frame = 7  # away from the reflected ends: it starts (1024 - 256) / 2 samples before its hop
    start = frame * 256 - 384
    n = np.arange(1024)
    windowed = samples[start : start + 1024].astype(np.float64) * np.sin(np.pi * n / 1024) ** 2
    dft = np.abs(np.exp(-2j * np.pi * np.outer(np.arange(513), n) / 1024) @ windowed)
    np.testing.assert_allclose(mel[frame], np.log(mel_filters(SETTINGS).astype(np.float64) @ dft), atol=2e-4)


def test_silence_is_the_logarithm_of_the_floor() -> None:
    np.testing.assert_allclose(log_mel(np.zeros(2560), SETTINGS), np.log(1e-5), rtol=1e-6)


@pytest.mark.parametrize(("samples", "frames"), [(511, 1), (512, 2), (767, 2), (768, 3), (22050, 86)])
def test_there_is_one_frame_per_whole_hop(samples: int, frames: int) -> None:
    assert len(log_mel(np.zeros(samples), SETTINGS)) == SETTINGS.frames(samples) == frames


def test_filters_are_slaneys() -> None:
    # Linear to 1 kHz at 200/3 Hz per mel, then 27 mels per factor of 6.4: 6,400 Hz is mel 42, and with 41 filters
    # from 0 Hz the edges fall on whole mels.
    filters = mel_filters(changed(n_mels=41, f_max_hz=6400, n_fft=16384, window_samples=1024))
    bins_hz = np.fft.rfftfreq(16384, 1 / 22050)
    peaks_hz = bins_hz[filters.argmax(axis=1)]
    mels = np.arange(1, 42)
    expected_hz = np.where(mels <= 15, mels * 200 / 3, 1000 * 6.4 ** ((mels - 15) / 27))
    np.testing.assert_allclose(peaks_hz, expected_hz, atol=bins_hz[1])
    np.testing.assert_allclose(filters.sum(axis=1) * bins_hz[1], 1, rtol=0.02)  # equal areas


def test_a_tone_lands_in_its_filter() -> None:
    centre = mel_filters(SETTINGS)[40].argmax() * 22050 / 1024
    tone = 0.5 * np.sin(2 * np.pi * centre * np.arange(22050) / 22050)
    assert set(log_mel(tone, SETTINGS)[5:-5].argmax(axis=1)) == {40}


@pytest.mark.parametrize("shape", [(384,), (2, 1000)])
def test_what_is_no_clip_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="more than 384 samples, got shape"):
        log_mel(np.zeros(shape), SETTINGS)


@pytest.mark.parametrize(
    "values", [{"hop_samples": 2048}, {"window_samples": 2048}, {"f_max_hz": 12000}, {"n_mels": 0}]
)
def test_settings_that_contradict_each_other_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=r"got|greater"):
        changed(**values)
