"""Sound from features: the transform and its inverse, the fit to the mels, and the features of what comes out."""

from __future__ import annotations

import numpy as np
import pytest

from xttsbench.shipped import shipped
from xttsbench.xtts.audio.features import FeatureSettings, griffin_lim, log_mel, magnitudes, mel_filters, sound, spectra
from xttsbench.xtts.audio.synthesis import utterance
from xttsbench.xtts.recipe import load_recipe

SETTINGS = load_recipe(shipped("training", "tiny")).features
SPEECH = [utterance(index, seed=7, min_s=1.0, max_s=1.5).samples for index in range(4)]


@pytest.mark.parametrize(
    "change", [{}, {"n_fft": 800, "hop_samples": 200, "window_samples": 800}, {"n_fft": 512, "hop_samples": 150}]
)
def test_sound_is_the_inverse_of_spectra(change: dict[str, int]) -> None:
    settings = FeatureSettings(**(SETTINGS.model_dump() | {"window_samples": 512} | change))
    samples = SPEECH[0][: 60 * settings.hop_samples]
    np.testing.assert_allclose(sound(spectra(samples, settings), settings), samples, atol=1e-5)


def test_spectra_are_those_that_the_features_are_made_of() -> None:
    samples = SPEECH[0][: 80 * SETTINGS.hop_samples]
    mel = np.abs(spectra(samples, SETTINGS)) @ mel_filters(SETTINGS).T
    np.testing.assert_allclose(np.exp(log_mel(samples, SETTINGS)), np.maximum(mel, SETTINGS.log_floor), atol=1e-4)


@pytest.mark.parametrize("samples", SPEECH)
def test_magnitudes_have_the_mels_that_were_asked_for(samples: np.ndarray) -> None:
    mel = log_mel(samples, SETTINGS)
    found = magnitudes(mel, SETTINGS)
    assert found.min() >= 0
    wanted = np.exp(mel)
    assert np.linalg.norm(found @ mel_filters(SETTINGS).T - wanted) < 0.01 * np.linalg.norm(wanted)
    assert (found[:, ~mel_filters(SETTINGS).any(0)] == 0).all()


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


def test_the_same_seed_gives_the_same_sound() -> None:
    mel = log_mel(SPEECH[1], SETTINGS)[:20]
    assert np.array_equal(griffin_lim(mel, SETTINGS, seed=1), griffin_lim(mel, SETTINGS, seed=1))
    assert not np.array_equal(griffin_lim(mel, SETTINGS, seed=1), griffin_lim(mel, SETTINGS, seed=2))


def test_loud_features_are_not_cut_off() -> None:
    mel = log_mel(SPEECH[1], SETTINGS) + 3
    made = griffin_lim(mel, SETTINGS)
    assert np.abs(made).max() == pytest.approx(1)


@pytest.mark.parametrize("shape", [(80,), (5, 79), (1, 80), (0, 80)])
def test_what_is_no_clip_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="a clip is"):
        griffin_lim(np.zeros(shape), SETTINGS)
