"""A small data set of noise, new for each test that changes it, and the settings its features are made with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from xttsbench.shipped import shipped
from xttsbench.xtts.audio.features import FeatureSettings
from xttsbench.xtts.audio.wav import write_wav
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.recipe import load_recipe

CLIPS = 6


def write_noise(directory: Path, clips: int = CLIPS, seed: int = 0) -> Path:
    """Write clips ``c0``, ``c1``, ... of 0.2 to 0.45 s, each of another length."""
    rng = np.random.default_rng(seed)
    (directory / "wavs").mkdir(parents=True)
    for number in range(clips):
        samples = 0.1 * rng.normal(size=4500 + 977 * (number % 6))
        write_wav(directory / "wavs" / f"c{number}.wav", samples, 22050)
    (directory / "metadata.csv").write_text("".join(f"c{number}|some words\n" for number in range(clips)))
    return directory


@pytest.fixture(scope="session")
def noise() -> Callable[..., Path]:
    return write_noise


@pytest.fixture(scope="session")
def features() -> FeatureSettings:
    return load_recipe(shipped("training", "tiny")).features


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    """The directory of a data set."""
    return write_noise(tmp_path / "speech")


@pytest.fixture(scope="session")
def read() -> Callable[[Path], SpeechData]:
    return lambda directory: read_speech_data(directory, sample_rate_hz=22050, split="all")
