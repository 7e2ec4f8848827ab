"""Data of the shape that the published code reads, made here with a seed where theirs is a download."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np


def flowers(folder: Path) -> None:
    """160 JPEG files of 320 x 240 in five folders, as the photos of flowers lie."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    draw = np.random.default_rng(0)
    for number in range(160):
        coarse = draw.integers(0, 256, (12, 16, 3), "uint8")
        image = np.clip(np.kron(coarse, np.ones((20, 20, 1))) + draw.normal(0, 8, (240, 320, 3)), 0, 255)
        file = folder / ("daisy", "dandelion", "roses", "sunflowers", "tulips")[number % 5] / f"{number:04}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(tf.io.encode_jpeg(image.astype("uint8"), quality=90).numpy())


def speech(folder: Path) -> None:
    """400 utterances of 1 to 6 s at 22,050 Hz: waves and 80 mel bands each 256 samples, in the names of the package."""
    draw = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for number in range(400):
        frames = int(draw.uniform(1, 6) * 22050 / 256)
        np.save(folder / f"{number:04}-wave.npy", draw.normal(0, 0.1, frames * 256).astype("float32"))
        np.save(folder / f"{number:04}-norm-feats.npy", draw.normal(0, 1, (frames, 80)).astype("float32"))


MADE: dict[str, Callable[[Path], None]] = {"flowers": flowers, "speech": speech}


def make(name: str, folder: Path) -> None:
    """Make a data set in ``folder/name`` if it is not there, whole."""
    if (folder / name).exists():
        return
    part = folder / f"{name}.part"
    MADE[name](part)
    part.rename(folder / name)
