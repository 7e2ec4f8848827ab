"""Features in TensorFlow's ops: those of NumPy, on clips that a less exact transform gets wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from xttsbench.shipped import shipped
from xttsbench.xtts.data import synthesis
from xttsbench.xtts.features import FeatureSettings, log_mel
from xttsbench.xtts.loaders.tf_loaders import log_mel_frames
from xttsbench.xtts.recipe import load_recipe

SETTINGS = load_recipe(shipped("training", "tiny")).features
SECONDS = np.arange(22_050) / 22_050
RNG = np.random.default_rng(0)


def pcm(samples: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """What a 16-bit file holds of it."""
    return (np.clip(np.round(samples * 32768), -32768, 32767) / 32768).astype(np.float32)


CLIPS = {
    "speech": pcm(synthesis.utterance(0, 0, 1.5, 1.5).samples),
    "loud low tone": pcm(0.9 * np.sin(2 * np.pi * 200 * SECONDS)),
    "tone of whole periods a window": pcm(0.9 * np.sin(2 * np.pi * 20 * 22_050 / 1024 * SECONDS)),
    "silence, then a tone": pcm(np.where(SECONDS < 0.5, 0, 0.9 * np.sin(2 * np.pi * 300 * SECONDS))),
    "square": pcm(np.sign(np.sin(2 * np.pi * 8 * 22_050 / 1024 * SECONDS))),
    "silence": np.zeros(5000, np.float32),
    "constant": np.full(5000, 0.5, np.float32),
    "one bit of noise": pcm(RNG.integers(-1, 2, 5000) / 32768),
    "as short as can be": pcm(RNG.normal(0, 0.1, 385)),
}


def in_tf(samples: npt.NDArray[np.float32], start: int, count: int, settings: FeatureSettings) -> npt.NDArray[Any]:
    return log_mel_frames(tf.constant(samples), tf.constant(start), tf.constant(count), settings).numpy()


@pytest.mark.parametrize("name", CLIPS)
def test_whole_clips_agree(name: str) -> None:
    expected = log_mel(CLIPS[name], SETTINGS)
    found = in_tf(CLIPS[name], 0, len(expected), SETTINGS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("start", "count"), [(0, 1), (0, 5), (60, 20), (127, 1), (120, 8)])
def test_some_frames_are_those_of_the_whole_clip(start: int, count: int) -> None:
    clip = CLIPS["speech"]
    assert SETTINGS.frames(len(clip)) >= 128
    expected = log_mel(clip, SETTINGS)[start : start + count]
    np.testing.assert_allclose(in_tf(clip, start, count, SETTINGS), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"window_samples": 800},
        {"hop_samples": 300, "window_samples": 1000},  # no whole number of hops in a window
        {"n_fft": 2048, "window_samples": 1200, "n_mels": 40, "f_min_hz": 55.0, "f_max_hz": 11025.0},
        {"n_fft": 1023, "window_samples": 777, "hop_samples": 201},
        {"log_floor": 1e-2},
    ],
)
def test_other_settings_agree_too(changes: dict[str, Any]) -> None:
    settings = FeatureSettings.model_validate({**SETTINGS.model_dump(), **changes})
    expected = log_mel(CLIPS["speech"], settings)
    np.testing.assert_allclose(in_tf(CLIPS["speech"], 0, len(expected), settings), expected, rtol=0, atol=1e-5)
