"""Traced functions as text: what is written is run, gives the same, and reads like the original."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.tf.fixes.native import test_rewrite as cases
from xttsbench.fixes.native.examine import examine
from xttsbench.pipeline.read import inspect

pytestmark = pytest.mark.tf

TABLE = np.random.default_rng(3).normal(size=(64, 5)).astype(np.float32)
CONFIG = {"window": np.hanning(64)}


class Scaled:
    def __init__(self):
        self.by = np.linspace(0, 1, 64).astype(np.float32)

    def of(self, audio):
        return audio[:64] * self.by


def window(length):
    return np.hanning(length).astype(np.float32) * 0.5


def with_helpers(audio):
    frames = audio[: 64 * (len(audio) // 64)].reshape(-1, 64) * window(64)
    frames = frames * CONFIG["window"][::-1].astype(np.float32)
    return frames @ TABLE, np.concatenate([frames[0], -frames[-1]])


def banded_in_a_loop(audio):
    frames = []
    for i in range((len(audio) - 64) // 16 + 1):
        spectrum = np.abs(np.fft.rfft(audio[i * 16 : i * 16 + 64] * window(64)))
        frames.append(spectrum @ TABLE[:33])
    return np.stack(frames)


def shapes(audio):
    first = np.pad(audio[:5], (1, 2), mode="reflect")[None, ..., 1:]
    second = np.stack([first.T, first.T + 1], axis=-1).transpose(2, 0, 1)
    low = audio.min() if audio.ndim == 1 else 0.0
    return (
        np.where(second > low, second, np.float32(0.25)) ** 2,
        np.cumsum(audio),
        np.argmax(audio),
        audio.astype(np.int16),
    )


def table_of_its_own(audio):
    bank = np.zeros((64, 20), np.float32)
    for column in range(20):
        bank[column * 3, column] = 1.0
    return audio[:64] @ bank


def found(function, *results):
    dataset = cases.of_clips(function, results)
    (python,) = examine(dataset, inspect(dataset)).python_functions
    return python.native


@pytest.mark.parametrize(
    ("function", "results", "names"),
    [
        (cases.features, (tf.float32, tf.int64), ("BANK", "np")),
        (with_helpers, (tf.float32, tf.float32), ("CONFIG", "TABLE", "np", "window")),
        (shapes, (tf.float32, tf.float32, tf.int64, tf.int16), ()),
        (Scaled().of, (tf.float32,), ("self",)),
        (banded_in_a_loop, (tf.float32,), ("TABLE", "np", "window")),
    ],
)
def test_the_text_is_run_and_takes_arrays_by_their_names(function, results, names):
    native = found(function, *results)
    assert native.why_no_text is None, native.why_no_text
    assert set(native.names) <= set(names)
    assert native.call_time_s > 0
    assert native.call_cpu_s > 0
    assert native.text.startswith(f"def {function.__name__}_native(audio):\n")
    assert "raw_ops" not in native.text


def test_the_text_keeps_variables_and_shows_the_lines_that_it_comes_from():
    text = found(cases.features, tf.float32, tf.int64).text
    assert "    # spectrum = np.abs(np.fft.rfft(frames * np.hanning(64), axis=1)) ** 2\n" in text
    assert "    spectrum = tf.abs(" in text
    assert "np.hanning(64)" in text
    assert "return [" in text


IDS = {letter: number for number, letter in enumerate("_abcdefgh.npy")}


def loaded(path):
    path = path.decode("utf-8")
    mel = np.load(path)
    mel = mel[:8] if len(mel) > 8 else np.pad(mel, ((0, 8 - len(mel)), (0, 0)))
    if not len(mel):
        raise ValueError("no frames")
    return mel, np.array([IDS[letter] for letter in os.path.basename(path) if letter in IDS], np.int32)


def test_files_branches_and_text_are_written_so_that_they_are_read(tmp_path):
    for name, count in (("ab", 5), ("bad", 9), ("face", 12)):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(count).normal(size=(count, 3)).astype(np.float32))
    dataset = tf.data.Dataset.from_tensor_slices([str(one) for one in sorted(tmp_path.glob("*.npy"))])
    dataset = dataset.map(lambda path: tf.numpy_function(loaded, [path], [tf.float32, tf.int32]))
    (python,) = examine(dataset, inspect(dataset)).python_functions
    assert python.native.why_no_text is None, python.native.why_no_text
    text = python.native.text
    for part in (
        *("def loaded_native(path):", "tf.io.read_file(path)", "tf.io.decode_raw(", "= tf.cond(", "def where_true("),
        *("tf.strings.unicode_decode(", "tf.debugging.Assert(", "'ValueError: no frames'", "IDS.get(chr(code), -1)"),
        *("tf.strings.regex_replace(path, '(?s)^.*/', '')", "    # mel = np.load(path)\n"),
    ):
        assert part in text, f"{part!r} is not in\n{text}"


def smoothed(audio):
    level, found = np.float32(0), [np.float32(1)]
    out = np.zeros(8, np.float32)
    for number, one in enumerate(audio):
        level = level * np.float32(0.9) + one
        if level > 2:
            continue
        out[number % 8] += level
    for one in audio[:6]:
        found.append(found[-1] * np.float32(0.5) + one)
    while level > 1e-3:
        level = level / 2
    return out, np.stack(found), level


def test_loops_are_written_as_loops_with_functions_inside():
    native = found(smoothed, tf.float32, tf.float32, tf.float32)
    assert native.why_no_text is None, native.why_no_text
    assert native.text.count("tf.while_loop(") == 3
    assert "def goes_on(" in native.text
    assert "def once(" in native.text


def test_an_array_that_a_loop_fills_has_no_text():
    native = found(table_of_its_own, tf.float32)
    assert native.text is None
    assert "an array of float32 [64, 20] that it computes with has no name" in native.why_no_text


def test_what_is_refused_has_neither_price_nor_text():
    native = found(cases.decides, tf.float32)
    assert (native.call_time_s, native.text) == (None, None)
    assert "test_rewrite.py:" in native.refused


def test_a_wrong_text_is_not_handed_over(monkeypatch):
    module = sys.modules["xttsbench.fixes.native.examine"]
    written = module.written
    monkeypatch.setattr(module, "written", lambda *given, **named: written(*given, **named).replace("tanh", "sin"))
    native = found(cases.otherwise, tf.float32)
    assert native.text is None
    assert "its text gives other values: result 0 at" in native.why_no_text
