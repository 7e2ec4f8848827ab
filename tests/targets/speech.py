"""Features of utterances, computed in Python as speech projects do it: targets for ``xttsbench optimize``.

The tests copy this file before they use it; files of audio are made beside it. Each utterance is turned by another
number of samples, so that nothing is worth keeping.
"""

import itertools
import wave
from pathlib import Path

import numpy as np
import tensorflow as tf

FILES = Path(__file__).with_name("wavs")
SYMBOLS = "_ abcdefghijklmnopqrstuvwxyz"
IDS = {symbol: number for number, symbol in enumerate(SYMBOLS)}
LENGTH, FRAME, HOP, FRAMES, BANDS = 6000, 256, 64, 80, 20
WINDOW = np.hanning(FRAME).astype(np.float32)
EDGES = np.geomspace(2, FRAME // 2, BANDS + 2)
BANK = np.maximum(
    1 - np.abs(np.arange(FRAME // 2 + 1)[:, None] - EDGES[1:-1]) / np.maximum(EDGES[2:] - EDGES[1:-1], 2), 0
).astype(np.float32)
COUNT = 16


def _prepare():
    FILES.mkdir(exist_ok=True)
    rng = np.random.default_rng(7)
    for number in range(COUNT):
        audio = (rng.normal(size=LENGTH + 100 * number) * 3000).astype(np.int16)
        with wave.open(str(FILES / f"utt_{number:02d}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16000)
            file.writeframes(audio.tobytes())


def _read(name):
    with wave.open(str(FILES / f"{name}.wav"), "rb") as file:
        pcm = np.frombuffer(file.readframes(file.getnframes()), dtype=np.int16)
    return pcm.astype(np.float32) / 32768.0


def _levels(name, index):
    """Levels in bands of one utterance, cut or filled to one length."""
    audio = np.roll(_read(name), int(index) % 1000)
    audio = np.append(audio[:1], audio[1:] - np.float32(0.97) * audio[:-1])
    peak = np.abs(audio).max()
    if peak > 0:
        audio = audio / peak
    frames = []
    for i in range((len(audio) - FRAME) // HOP + 1):
        spectrum = np.abs(np.fft.rfft(audio[i * HOP : i * HOP + FRAME] * WINDOW))
        frames.append(np.log(np.maximum(spectrum @ BANK, 1e-5)))
    found = np.stack(frames)
    whole = np.zeros((FRAMES, BANDS), np.float32)
    count = min(len(found), FRAMES)
    whole[:count] = found[:count]
    return whole


def _features(name, index):
    """Levels of one utterance, and its text as numbers."""
    name = name.decode("utf-8")
    return _levels(name, index), np.array([IDS[letter] for letter in name if letter in IDS] + [0], np.int32)


def _names():
    if not FILES.is_dir():
        _prepare()
    return tf.constant([f"utt_{number:02d}" for number in range(COUNT)])


def _shaped(levels, ids):
    return tf.ensure_shape(levels, [FRAMES, BANDS]), tf.ensure_shape(ids, [None])


def features():
    """Python that can be written as ops: reading, filters, spectra, a branch, a loop, text."""
    names = _names()

    def load(index):
        return _shaped(*tf.numpy_function(_features, [names[index % COUNT], index], [tf.float32, tf.int32]))

    return tf.data.Dataset.range(100_000_000).map(load).padded_batch(8)


def lines():
    """The same in the loop of a generator, with the text of a list beside each name."""
    _names()
    rows = [(f"utt_{number:02d}", "a text that is read") for number in range(COUNT)]

    def samples():
        for index, (name, text) in enumerate(itertools.cycle(rows)):
            yield _levels(name, index), [IDS[letter] for letter in text]

    signature = (tf.TensorSpec([FRAMES, BANDS], tf.float32), tf.TensorSpec([None], tf.int32))
    return tf.data.Dataset.from_generator(samples, output_signature=signature).padded_batch(8)
