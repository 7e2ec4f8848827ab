"""A small data set whose every sample is costly to decode, and is decoded anew in every epoch: no accelerator, no wait.

The images are files of the case's own, each decoded and made small by TensorFlow's own ops, so that nothing but the
processors is busy. The data fit into memory many times over.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import tensorflow as tf

IMAGES, SIDE, SMALL, BATCH = 48, 512, 32, 16
"""How many images there are, pixels to a side of a file and of a sample, and samples of a batch."""


def decoded_every_epoch(tuned=False, folder=None):
    """Each epoch decodes all images again."""

    def decode(path):
        pixels = tf.io.decode_png(tf.io.read_file(path), channels=3)
        small = tf.image.resize(tf.cast(pixels, tf.float32), [SMALL, SMALL], method="area")
        return tf.ensure_shape(tf.image.per_image_standardization(small), [SMALL, SMALL, 3])

    samples = tf.data.Dataset.from_tensor_slices(image_files(folder)).map(decode)  # the fault
    if tuned:
        samples = samples.cache()
    return samples.repeat().batch(BATCH).prefetch(2)


def image_files(folder):
    """Paths of PNG files, written where they are missing: a smooth picture with some noise, other in each file."""
    place = Path(folder) if folder else Path(tempfile.gettempdir()) / f"xttsbench-fixes-{os.getuid()}"
    directory = place / f"png-{IMAGES}-{SIDE}"
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{number:03d}.png" for number in range(IMAGES)]
    for number, path in enumerate(paths):
        if not path.exists():
            draft = path.with_suffix(f".{os.getpid()}.draft")
            draft.write_bytes(_picture(number).numpy())
            os.replace(draft, path)
    return [str(path) for path in paths]


def _picture(number):
    waves = tf.sin(tf.range(SIDE, dtype=tf.float32) * (number + 1) / 40.0)
    smooth = 128.0 + 80.0 * waves[:, None, None] * waves[None, :, None] * tf.ones([1, 1, 3])
    noise = tf.random.stateless_uniform([SIDE, SIDE, 3], seed=[number, 0], maxval=16.0)
    return tf.io.encode_png(tf.cast(tf.clip_by_value(smooth + noise, 0.0, 255.0), tf.uint8))
