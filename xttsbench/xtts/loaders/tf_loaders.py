"""The loaders that run in TensorFlow's ops, without Python at run time: from ``.npy`` files, and from WAV files.

``tf_cache`` parses the header of each file, and does not skip it. ``tf_wav`` computes features to within rounding those
of ``xtts.features``: window and transform are float64, since a float32 transform errs by up to 1e-2 in the quiet bands
of a loud tone, and the filter bank is the one that NumPy uses too, for TensorFlow's are on the HTK scale.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import tensorflow as tf

from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.planned import Planned
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.features import FeatureSettings, mel_filters, window
from xttsbench.xtts.loaders.rows import Load

Frames = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
"""Returns log-mels of a clip, ``[count, n_mels]``, from its number, the first frame and ``count`` (int32 scalars)."""


def in_ops(planned: Planned, frames_of: Frames) -> Load:
    """Return what makes a row in TensorFlow's ops."""
    lengths, texts = tf.constant(planned.lengths), planned.texts
    ids, starts, text_lengths = tf.constant(texts.ids), tf.constant(texts.starts), tf.constant(texts.lengths)

    def load(clip: tf.Tensor, reference: tf.Tensor, start: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        count = tf.minimum(lengths[reference] - start, planned.reference_frames)
        text = tf.slice(ids, starts[clip][None], tf.cast(text_lengths[clip], tf.int64)[None])
        return (
            frames_of(clip, tf.zeros_like(clip), lengths[clip]),
            frames_of(reference, start, count),
            tf.cast(text, tf.int32),
        )

    return load


def kept(content: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return ``content``, a clip's string, with a memory: it is made when it is first asked for, and kept."""
    # Anonymous, so that it lives as long as the dataset that refers to it.
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.string, "", experimental_is_anonymous=True)

    def from_memory(clip: tf.Tensor) -> tf.Tensor:
        key = tf.cast(clip, tf.int64)
        found = tf.ensure_shape(table.lookup(key), [])

        def made() -> tf.Tensor:  # two threads may find nothing at once, and make the same
            new = content(clip)
            with tf.control_dependencies([table.insert(key, new)]):
                return tf.identity(new)

        return tf.cond(tf.strings.length(found) > 0, lambda: found, made)

    return from_memory


def check(good: tf.Tensor, sentence: Callable[[], tf.Tensor]) -> tf.Operation:
    """Fail with a sentence, made only then, unless ``good`` is true.

    Raises:
        tf.errors.InvalidArgumentError: when it runs.
    """
    return tf.cond(good, tf.no_op, lambda: tf.debugging.Assert(False, [sentence()]))


_HEAD_BYTES: Final = 512  # first bytes of a file in which its header must lie; NumPy's are 128 long for such arrays
_MAGIC: Final = b"\x93NUMPY"
_HEADER: Final = (
    r"""\{ *['"]descr['"]: *['"]([^'"]*)['"], *['"]fortran_order['"]: *(True|False), *['"]shape['"]: *\(([^)]*)\)"""
    r""",? *\} *\n"""
)  # the dictionary that NumPy writes: keys in alphabetical order
_REMEDY: Final = "; run 'xttsbench data precompute'"


def tf_cache(
    planned: Planned, data: SpeechData, cache: FeatureCache, features: FeatureSettings, *, keep: bool = False
) -> Load:
    """Return what reads the features of a clip from a ``.npy`` file of its own, whose header it parses."""
    paths, lengths = _names(data, f"{cache.npy(0).parent}/", ".npy"), tf.constant(planned.lengths)

    def read(clip: tf.Tensor) -> tf.Tensor:
        return tf.io.read_file(paths[clip])

    content_of = kept(read) if keep else read

    def frames_of(clip: tf.Tensor, first: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        content = content_of(clip)
        begin, checked = _header(content, paths[clip], lengths[clip], planned.n_mels)
        row_bytes = 4 * planned.n_mels
        with tf.control_dependencies([checked]):
            wanted = tf.strings.substr(content, begin + row_bytes * first, row_bytes * count)
            return tf.reshape(tf.io.decode_raw(wanted, tf.float32), [count, planned.n_mels])

    return in_ops(planned, frames_of)


def _names(data: SpeechData, before: str, after: str) -> tf.Tensor:
    """Return the file of each clip, ``[n]``."""
    return tf.constant([f"{before}{data.id(clip)}{after}" for clip in range(len(data))])


def _header(content: tf.Tensor, path: tf.Tensor, frames: tf.Tensor, n_mels: int) -> tuple[tf.Tensor, tf.Operation]:
    """Parse the header of a ``.npy`` file, ``[frames, n_mels]``: magic, version, length, dtype, order and shape.

    Nothing here fails on any content but the operation that is returned.

    Returns:
        Where the numbers begin, in bytes, and the operation that fails if the file is not what it should be: its name,
        what is wrong and what to do.
    """
    head, size = tf.strings.substr(content, 0, _HEAD_BYTES), tf.strings.length(content)
    words = tf.cast(tf.io.decode_raw(head, tf.uint16, fixed_length=12), tf.int32)
    version = words[3]  # 1.0 is 0x0001, 2.0 is 0x0002: the major number comes first
    begin = tf.where(version == 1, 10 + words[4], 12 + words[4] + 65536 * words[5])
    begin = tf.clip_by_value(begin, 0, tf.minimum(size, _HEAD_BYTES))
    text_at = tf.minimum(tf.where(version == 1, 10, 12), begin)
    text = tf.strings.substr(head, text_at, begin - text_at)
    form = r"dtype {}, Fortran order {}, shape ({})"
    expected = tf.strings.join([form.format("<f4", "False", "")[:-1], tf.strings.as_string(frames), f", {n_mels})"])
    found = tf.strings.regex_replace(text, _HEADER, form.format(r"\1", r"\2", r"\3"))
    well_formed = (
        (tf.strings.substr(head, 0, 6) == _MAGIC)
        & ((version == 1) | (version == 2))
        & tf.strings.regex_full_match(text, _HEADER)
    )
    expected_size = begin + 4 * n_mels * frames

    def sentence() -> tf.Tensor:
        has, means = tf.strings.as_string(size), tf.strings.as_string(expected_size)
        bytes_of = tf.strings.join([" has ", has, " bytes, and its header means ", means])
        other = tf.strings.join([" holds ", found, ", and ", expected, " is expected"])
        what = tf.where(found == expected, bytes_of, other)
        return tf.strings.join([path, tf.where(well_formed, what, " has no readable .npy header"), _REMEDY])

    return begin, check(well_formed & (found == expected) & (size == expected_size), sentence)


_HEADER_BYTES: Final = 44


def tf_wav(
    planned: Planned, data: SpeechData, cache: FeatureCache | None, features: FeatureSettings, *, keep: bool = False
) -> Load:
    """Return what computes features from WAV files; the cache is not used."""
    paths, samples = _names(data, f"{data.directory}/wavs/", ".wav"), tf.constant(data.samples)

    def computed(clip: tf.Tensor, first: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        decoded = _decoded(paths[clip], samples[clip], features.sample_rate_hz)
        return log_mel_frames(decoded, first, count, features)

    if not keep:
        return in_ops(planned, computed)
    lengths = tf.constant(planned.lengths)
    whole = kept(lambda clip: tf.io.serialize_tensor(computed(clip, tf.zeros_like(clip), lengths[clip])))
    return in_ops(
        planned, lambda clip, first, count: tf.io.parse_tensor(whole(clip), tf.float32)[first : first + count]
    )


def log_mel_frames(samples: tf.Tensor, start: tf.Tensor, count: tf.Tensor, settings: FeatureSettings) -> tf.Tensor:
    """Return frames of the log-mel spectrogram of a clip, computed from those frames' own samples.

    The samples are ``[n]`` float32 in -1..1; the clip has all of the ``count`` frames, 1 or more.

    Returns:
        ``[count, n_mels]`` float32, as :func:`xttsbench.xtts.features.log_mel_frames` to within 1e-5.
    """
    pad = (settings.n_fft - settings.hop_samples) // 2
    reflected = tf.pad(samples, [[pad, pad]], "REFLECT")
    segment = tf.slice(reflected, [start * settings.hop_samples], [(count - 1) * settings.hop_samples + settings.n_fft])
    windows = tf.signal.frame(tf.cast(segment, tf.float64), settings.n_fft, settings.hop_samples) * window(settings)
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

    def unusable() -> tf.Tensor:
        other = f": is not 16-bit mono PCM at {sample_rate_hz} Hz; run 'xttsbench data import'"
        has = tf.strings.as_string(size)
        short = tf.strings.join([": has ", has, " bytes, too few for ", should, " samples; copy the file again"])
        return tf.strings.join([path, tf.where(canonical, short, other)])

    with tf.control_dependencies([check(canonical & whole, unusable)]):
        samples = tf.audio.decode_wav(content, desired_channels=1).audio[:, 0]
    found = tf.size(samples, tf.int64)

    def changed() -> tf.Tensor:
        has = tf.strings.as_string(found)
        return tf.strings.join([path, ": has ", has, " samples, and had ", should, "; start the run again"])

    with tf.control_dependencies([check(found == expected, changed)]):
        return tf.identity(samples)
