"""Log-mels against closed forms: the discrete Fourier transform by definition, Slaney's scale, areas of triangles."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from xttsbench.shipped import shipped
from xttsbench.xtts.data.synthesis import utterance
from xttsbench.xtts.features import (
    FeatureSettings,
    griffin_lim,
    log_mel,
    log_mel_frames,
    magnitudes,
    mel_filters,
    sound,
    spectra,
)
from xttsbench.xtts.recipe import load_recipe

SETTINGS = load_recipe(shipped("training", "tiny")).features


def changed(**values: Any) -> FeatureSettings:
    return FeatureSettings.model_validate(SETTINGS.model_dump() | values)


def test_the_shipped_settings_are_those_of_the_published_vocoders() -> None:
    assert tuple(SETTINGS.model_dump().values()) == (22050, 1024, 256, 1024, 80, 0.0, 8000.0, 1e-5)


def signals() -> dict[str, npt.NDArray[np.float64]]:
    """Clips in which quiet bins stand beside loud ones, where precision matters, and some ordinary ones."""
    seconds = np.arange(33_000) / 22050
    rng = np.random.default_rng(5)
    click = np.zeros(33_000)
    click[15_000] = 1
    return {
        "speech": utterance(1, 0, 1, 2).samples.astype(np.float64),
        "click in silence": click,
        "loud low tone": 0.99 * np.sin(2 * np.pi * 100 * seconds),
        "loud low tone and noise at -70 dB": 0.98 * np.sin(200 * np.pi * seconds) + 3e-4 * rng.normal(size=33_000),
        "tone after silence": np.where(seconds < 0.7, 0, 0.9 * np.sin(400 * np.pi * seconds)),
        "constant": np.full(33_000, 0.5),
        "white noise": 0.3 * rng.normal(size=33_000),
        "noise of a few steps": 1e-4 * rng.normal(size=33_000),
    }


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("name", signals())
def test_every_bin_of_every_frame_is_that_of_float64(name: str, bits: int) -> None:
    # The tolerance between loaders is 1e-4. A float32 transform misses it a hundredfold in the tones.
    samples = signals()[name].astype(np.float32)
    if bits == 16:
        samples = (np.round(samples * 32768) / 32768).astype(np.float32)
    padded = np.pad(samples.astype(np.float64), (1024 - 256) // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, 1024)[::256]
    magnitudes = np.abs(np.fft.rfft(frames * np.sin(np.pi * np.arange(1024) / 1024) ** 2))
    expected = np.log(np.maximum(magnitudes @ mel_filters(SETTINGS).astype(np.float64).T, 1e-5))
    np.testing.assert_allclose(log_mel(samples, SETTINGS), expected, rtol=0, atol=5e-6)


@cache
def clip_and_mel(samples: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    clip = np.random.default_rng(samples).normal(0, 0.1, samples).astype(np.float32)
    return clip, log_mel(clip, SETTINGS)


@given(
    samples=st.sampled_from([385, 511, 512, 1000, 1279, 1280, 9_999, 30_000]),
    start=st.integers(0, 130),
    count=st.integers(0, 130),
)
@example(samples=385, start=0, count=1)
@example(samples=30_000, start=116, count=1)
@example(samples=30_000, start=0, count=117)
def test_some_frames_are_those_of_the_whole(samples: int, start: int, count: int) -> None:
    clip, mel = clip_and_mel(samples)
    part = log_mel_frames(clip, SETTINGS, start, count)
    assert part.dtype == np.float32
    assert part.flags.c_contiguous
    np.testing.assert_allclose(part, mel[start : start + count], rtol=0, atol=1e-6, strict=True)


@pytest.mark.parametrize(("start", "count"), [(-1, 3), (0, -1)])
def test_frames_before_the_clip_are_refused(start: int, count: int) -> None:
    with pytest.raises(ValueError, match=f"0 or more, got {start} and {count}"):
        log_mel_frames(np.zeros(5000), SETTINGS, start, count)


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


@pytest.mark.parametrize("shape", [(384,), (2, 1000)])
def test_what_is_no_clip_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="more than 384 samples, got shape"):
        log_mel(np.zeros(shape), SETTINGS)


@pytest.mark.parametrize(
    "values",
    [{"hop_samples": 2048}, {"window_samples": 2048}, {"hop_samples": 255}, {"f_max_hz": 12000}, {"n_mels": 0}],
)
def test_settings_that_contradict_each_other_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=r"got|greater"):
        changed(**values)


SPEECH = [utterance(index, seed=7, min_s=1.0, max_s=1.5).samples for index in range(4)]


@pytest.mark.parametrize(
    "change", [{}, {"n_fft": 800, "hop_samples": 200, "window_samples": 800}, {"n_fft": 512, "hop_samples": 150}]
)
def test_sound_is_the_inverse_of_spectra(change: dict[str, int]) -> None:
    settings = FeatureSettings(**(SETTINGS.model_dump() | {"window_samples": 512} | change))
    samples = SPEECH[0][: 60 * settings.hop_samples]
    np.testing.assert_allclose(sound(spectra(samples, settings), settings), samples, atol=1e-5)


@pytest.mark.parametrize("samples", SPEECH)
def test_the_features_of_the_sound_are_near_those_it_was_made_from(samples: np.ndarray) -> None:
    mel = log_mel(samples, SETTINGS)
    made = griffin_lim(mel, SETTINGS)
    assert made.shape == (len(mel) * SETTINGS.hop_samples,)
    assert made.dtype == np.float32
    assert np.abs(made).max() <= 1
    wanted = magnitudes(mel, SETTINGS)
    convergence = np.linalg.norm(np.abs(spectra(made, SETTINGS)) - wanted) / np.linalg.norm(wanted)
    assert convergence < 0.2  # 0.11 to 0.14 of such speech; random phases alone have 0.5 and more
    assert np.abs(log_mel(made, SETTINGS) - mel).mean() < 0.2  # 0.09 to 0.13 of such speech


@pytest.mark.parametrize("shape", [(80,), (5, 79), (1, 80), (0, 80)])
def test_what_is_no_clip_makes_no_sound(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="a clip is"):
        griffin_lim(np.zeros(shape), SETTINGS)
