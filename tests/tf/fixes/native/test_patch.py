"""The function with other names in the user's file: the patched file is run, yields the same, and runs no Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tf.fixes.native.test_rewrite import assert_close, tokens
from tests.tf.fixes.test_patch import loaded
from xttsbench.fixes.native.examine import examine
from xttsbench.fixes.patch import propose
from xttsbench.pipeline.python_functions import classify
from xttsbench.pipeline.read import inspect
from xttsbench.records.fix import FixSet
from xttsbench.targets.spec import substituted

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("written_targets")]

HEAD = """
import functools

import numpy as np
import tensorflow as tf

WINDOW = np.hanning(16)


def framed(audio, hop=8):
    count = 1 + (len(audio) - 16) // hop
    return audio[np.arange(count)[:, None] * hop + np.arange(16)]


def clips():
    return tf.data.Dataset.range(9).map(lambda n: tf.sin(tf.range(32 + 8 * n, dtype=tf.float32) * 0.3))

"""
FILES = {
    "helper": """
def features(audio):
    # one row a frame
    spectrum = np.abs(np.fft.rfft(framed(audio) * WINDOW))
    return np.log(spectrum + 1e-3).astype(np.float32)  # in single precision


def make():
    return clips().map(lambda audio: tf.numpy_function(features, [audio], tf.float32)).prefetch(1)
""",
    "inside": """
def make():
    scale = np.float32(3)

    def scaled(audio, number):
        if number % 2 == 0:
            audio = audio[::-1]
        return audio * scale, audio.mean(), len(audio)

    def mapped(number, audio):
        return tf.numpy_function(scaled, [audio, number], [tf.float32, tf.float32, tf.int64])

    return clips().enumerate().map(lambda number, audio: tuple(mapped(number, audio)))
""",
    "lambda": """
def make():
    return clips().map(lambda x: tf.numpy_function(lambda y: np.clip(y, -0.5, 0.5) / len(WINDOW), [x], tf.float32))
""",
    "method": """
class Data:
    def __init__(self, gain):
        self.gain = np.float32(gain)

    def louder(self, audio):
        return self.bounded(audio * self.gain)

    def bounded(self, audio, peak=1.0):
        return np.minimum(audio, peak)

    def made(self):
        def mapped(audio):
            return tf.numpy_function(self.louder, [audio], tf.float32)

        return clips().map(mapped)


def make():
    return Data(2.0).made()
""",
    "tensors": """
def grown(x):
    for _ in range(3):
        x = x + 1.0
    return x


def make():
    return clips().map(lambda x: tf.py_function(grown, [x], tf.float32))
""",
}


def patched(tmp_path, source):
    file = tmp_path / "written_target.py"
    file.write_text(HEAD + source)
    original = loaded(file)
    pipeline = classify(original.dataset, inspect(original.dataset), batches=2, max_s=1.0)
    pipeline = examine(original.dataset, pipeline)
    patch = propose(
        FixSet.parse("native"), pipeline, lambda name: Path(name).read_text(), own=lambda name: name == str(file)
    )
    return file, original, patch


def run(name, tmp_path):
    """The patched file, which yields the same as the original."""
    file, original, patch = patched(tmp_path, FILES[name])
    assert not patch.unpatched
    text = patch.files[str(file)]
    assert "numpy_function" not in text
    assert "py_function" not in text
    copy = tmp_path / "patched.py"
    copy.write_text(text)
    with substituted({str(file): str(copy)}):
        fixed = loaded(file)
        assert_close(original.dataset, fixed.dataset)
        assert not tokens(fixed.dataset)
    return text


@pytest.mark.parametrize("name", ["inside", "lambda", "method"])
def test_the_patched_file_yields_the_same_without_python(name, tmp_path):
    assert "_native(" in run(name, tmp_path)


def test_the_patch_is_the_users_function_with_other_names(tmp_path):
    text = run("helper", tmp_path)
    assert (
        """
def features_native(audio):
    # one row a frame
    spectrum = tnp.absolute(tf.signal.rfft(tf.cast(framed_native(audio), tf.float64) * WINDOW))
    return tf.cast(tnp.log(spectrum + 1e-3), tf.float32)  # in single precision
"""
        in text
    )
    assert "def features(audio):" in text


def test_functions_of_tensors_are_called_as_they_are(tmp_path):
    assert "lambda x: grown(x)" in run("tensors", tmp_path)


PARTIAL = """
def scaled(by, audio):
    return audio * np.float32(by)


def make():
    return clips().map(lambda x: tf.numpy_function(functools.partial(scaled, 3), [x], tf.float32))
"""


def test_without_a_text_the_saved_plan_is_named(tmp_path):
    _, _, patch = patched(tmp_path, PARTIAL)
    assert "names scaled" in patch.unpatched["native"]
    assert "apply the saved plan" in patch.unpatched["native"]
