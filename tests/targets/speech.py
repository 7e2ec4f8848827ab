"""Features of utterances, computed in Python as speech projects do it: targets for ``xttsbench optimize``.

The tests copy this file before they use it; files of audio are made beside it. Each utterance is turned by another
number of samples, so that nothing is worth keeping.
"""

import wave
from pathlib import Path

import numpy as np
import tensorflow as tf

FILES = Path(__file__).with_name("wavs")
LENGTH, FRAME, HOP, FRAMES, BANDS = 16000, 512, 64, 240, 40
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


def _levels(audio, index):
    """Levels in bands of one utterance, cut or filled to one length."""
    audio = np.roll(audio, int(index) % 1000)
    audio = np.append(audio[:1], audio[1:] - np.float32(0.97) * audio[:-1])
    peak = np.abs(audio).max()
    if peak > 0:
        audio = audio / peak
    count = min((len(audio) - FRAME) // HOP + 1, FRAMES)
    frames = audio[np.arange(count)[:, None] * HOP + np.arange(FRAME)]
    levels = np.log(np.maximum(np.abs(np.fft.rfft(frames * WINDOW)) @ BANK, 1e-5))
    return np.pad(levels, ((0, FRAMES - count), (0, 0)))


def _names():
    if not FILES.is_dir():
        _prepare()
    return tf.constant([str(FILES / f"utt_{number:02d}.wav") for number in range(COUNT)])


def features():
    """Python that can be written as ops: filters, spectra, a branch."""
    names = _names()

    def load(index):
        audio, _ = tf.audio.decode_wav(tf.io.read_file(names[index % COUNT]))
        levels = tf.numpy_function(_levels, [tf.squeeze(audio, -1), index], tf.float32)
        return tf.ensure_shape(levels, [FRAMES, BANDS]), index

    return tf.data.Dataset.range(100_000_000).map(load).padded_batch(8)
