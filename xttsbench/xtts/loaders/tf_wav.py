"""Features computed from the WAV files in TensorFlow's ops, to within rounding those of ``xtts.audio.features``.

Window and transform are float64 as there, since a float32 transform errs by up to 1e-2 in the quiet bands of a loud
tone. TensorFlow's filter banks are on the HTK scale, so the bank is the one that NumPy uses too.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Final

import tensorflow as tf

from xttsbench.xtts.audio.features import FeatureSettings, mel_filters
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.loaders.planned import Planned
from xttsbench.xtts.loaders.tf_batches import Rows, check, kept, tf_batches

_HEADER_BYTES: Final = 44
_PARALLEL_ROWS: Final = 8
"""Clips of a batch that are worked on at a time, cores permitting."""


def loader(
    planned: Planned, data: SpeechData, cache: FeatureCache | None, features: FeatureSettings, *, keep: bool = False
) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Return the function that makes a batch from its number; the cache is not used."""
    directory = f"{data.directory}/wavs/"
    samples = tf.constant(data.samples)

    def computed(
        clip: tf.Tensor, path: tf.Tensor, expected: tf.Tensor, start: tf.Tensor, count: tf.Tensor
    ) -> tf.Tensor:
        return log_mel_frames(_decoded(path, expected, features.sample_rate_hz), start, count, features)

    def whole(clip: tf.Tensor, path: tf.Tensor, expected: tf.Tensor) -> tf.Tensor:
        frames = tf.cast(expected // features.hop_samples, tf.int32)
        return tf.io.serialize_tensor(computed(clip, path, expected, tf.zeros_like(frames), frames))

    whole_kept = kept(whole) if keep else whole

    def from_memory(
        clip: tf.Tensor, path: tf.Tensor, expected: tf.Tensor, start: tf.Tensor, count: tf.Tensor
    ) -> tf.Tensor:
        return tf.io.parse_tensor(whole_kept(clip, path, expected), tf.float32)[start : start + count]

    frames_of = from_memory if keep else computed

    def features_of(
        ids: tf.Tensor, clips: tf.Tensor, starts: tf.Tensor, counts: tf.Tensor, padded: tf.Tensor
    ) -> tf.Tensor:
        """Return ``counts`` frames from ``starts`` on of each clip, padded: ``[b, padded, n_mels]``."""

        def one(row: tuple[tf.Tensor, ...]) -> tf.Tensor:
            clip, path, expected, start, count = row
            mel = frames_of(clip, path, expected, start, count)
            return tf.pad(mel, [[0, padded - count], [0, 0]], constant_values=planned.floor)

        paths = tf.strings.join([directory, ids, ".wav"])
        return tf.map_fn(
            one,
            (clips, paths, tf.gather(samples, clips), starts, counts),
            fn_output_signature=tf.TensorSpec([None, planned.n_mels], tf.float32),
            parallel_iterations=_PARALLEL_ROWS,
        )

    def load(rows: Rows) -> tuple[tf.Tensor, tf.Tensor]:
        mel = features_of(rows.ids, rows.clips, tf.zeros_like(rows.lengths), rows.lengths, rows.frames)
        reference = features_of(
            rows.reference_ids, rows.references, rows.reference_starts, rows.reference_counts, planned.reference_frames
        )
        return mel, reference

    return tf_batches(planned, data, load)


def log_mel_frames(samples: tf.Tensor, start: tf.Tensor, count: tf.Tensor, settings: FeatureSettings) -> tf.Tensor:
    """Return frames of the log-mel spectrogram of a clip, computed from those frames' own samples.

    Args:
        samples: ``[n]`` float32 in -1..1.
        start: first frame.
        count: number of frames, 1 or more; the clip has them all.
        settings: what determines the features.

    Returns:
        ``[count, n_mels]`` float32, as :func:`xttsbench.xtts.audio.features.log_mel_frames` to within 1e-5.
    """
    pad = (settings.n_fft - settings.hop_samples) // 2
    reflected = tf.pad(samples, [[pad, pad]], "REFLECT")
    segment = tf.slice(reflected, [start * settings.hop_samples], [(count - 1) * settings.hop_samples + settings.n_fft])
    # Not tf.signal.hann_window: of an odd size it is symmetric, periodic or not.
    phase = 2 * math.pi * tf.range(settings.window_samples, dtype=tf.float64) / settings.window_samples
    before = (settings.n_fft - settings.window_samples) // 2
    after = settings.n_fft - settings.window_samples - before
    window = tf.pad(0.5 - 0.5 * tf.cos(phase), [[before, after]])
    windows = tf.signal.frame(tf.cast(segment, tf.float64), settings.n_fft, settings.hop_samples) * window
    # Rounded to complex64 only now: relative to each bin, which does no harm, and halves what follows.
    magnitudes = tf.abs(tf.cast(tf.signal.rfft(windows), tf.complex64))
    mel = tf.matmul(magnitudes, mel_filters(settings), transpose_b=True)
    return tf.math.log(tf.maximum(mel, settings.log_floor))


def _decoded(path: tf.Tensor, expected: tf.Tensor, sample_rate_hz: int) -> tf.Tensor:
    """Return the samples of a WAV file in canonical form, ``[expected]``; fails with its name if it is another."""
    content = tf.io.read_file(path)
    size = tf.strings.length(content)
    # Zeros after it, so that a file of a few bytes has all the places that are looked at.
    head = tf.strings.join([tf.strings.substr(content, 0, _HEADER_BYTES), "\0" * _HEADER_BYTES])
    form = struct.pack("<HHIIHH", 1, 1, sample_rate_hz, 2 * sample_rate_hz, 2, 16)  # PCM, mono, and so on
    canonical = (
        (tf.strings.substr(head, 0, 4) == b"RIFF")
        & (tf.strings.substr(head, 8, 8) == b"WAVEfmt ")
        & (tf.strings.substr(head, 20, len(form)) == form)
    )
    whole = tf.cast(size, tf.int64) >= _HEADER_BYTES + 2 * expected
    should = tf.strings.as_string(expected)

    def unusable(_: tf.Tensor) -> tf.Tensor:
        other = f": is not 16-bit mono PCM at {sample_rate_hz} Hz; run 'xttsbench data import'"
        has = tf.strings.as_string(size)
        short = tf.strings.join([": has ", has, " bytes, too few for ", should, " samples; copy the file again"])
        return tf.strings.join([path, tf.where(canonical, short, other)])

    with tf.control_dependencies([check((canonical & whole)[None], unusable)]):
        samples = tf.audio.decode_wav(content, desired_channels=1).audio[:, 0]
    found = tf.shape(samples, tf.int64)

    def changed(_: tf.Tensor) -> tf.Tensor:
        has = tf.strings.as_string(found[0])
        return tf.strings.join([path, ": has ", has, " samples, and had ", should, "; start the run again"])

    with tf.control_dependencies([check(found == expected, changed)]):
        return tf.identity(samples)
