"""The loaders that run in TensorFlow's ops, without Python at run time: from ``.npy`` files, and from WAV files.

``tf_cache`` parses the header of each file, and does not skip it. Some rows at a time are unrolled in the graph: one at
a time, as in ``tf.map_fn``, the loop costs more than the files do. Strings are copied wherever they are gathered into
one tensor, so that is done with heads of files alone. ``tf_wav`` computes features to within rounding those of
``xtts.features``: window and transform are float64, since a float32 transform errs by up to 1e-2 in the quiet
bands of a loud tone, and the filter bank is the one that NumPy uses too, for TensorFlow's are on the HTK scale.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

import tensorflow as tf

from xttsbench.xtts.data.batches import Planned
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.features import FeatureSettings, mel_filters, window

Content = Callable[..., tf.Tensor]
"""Returns a scalar string that belongs to a clip, from its number (int32) and whatever else is needed to make it."""


def signature(planned: Planned) -> dict[str, tf.TensorSpec]:
    """Return what a batch looks like; a size is open where batches differ in it."""
    rows = planned.sizes[0] if len(planned.sizes) == 1 else None
    frames, characters = (
        int(sizes[0]) if (sizes == sizes[0]).all() else None for sizes in (planned.frames, planned.characters)
    )
    return {
        "id": tf.TensorSpec([rows], tf.int32),
        "text": tf.TensorSpec([rows, characters], tf.int32),
        "text_length": tf.TensorSpec([rows], tf.int32),
        "mel": tf.TensorSpec([rows, frames, planned.n_mels], tf.float32),
        "mel_length": tf.TensorSpec([rows], tf.int32),
        "reference": tf.TensorSpec([rows, planned.reference_frames, planned.n_mels], tf.float32),
        "reference_start": tf.TensorSpec([rows], tf.int32),
    }


class Rows(NamedTuple):
    """Request to a loader in TensorFlow's ops: the features of a batch's clips and of their references."""

    ids: tf.Tensor
    """``[b]`` string: names of the clips' files, without ending."""
    lengths: tf.Tensor
    """``[b]`` int32: their frames."""
    frames: tf.Tensor
    """Scalar int32: what mels are padded to."""
    reference_ids: tf.Tensor
    reference_starts: tf.Tensor
    """``[b]`` int32: first frame of each reference."""
    reference_counts: tf.Tensor
    """``[b]`` int32: frames of the reference that the clip has; the rest is padding."""
    clips: tf.Tensor
    """``[b]`` int32: the clips' numbers; the same for the references."""
    references: tf.Tensor


Load = Callable[[Rows], tuple[tf.Tensor, tf.Tensor]]
"""Returns mel ``[b, frames, n_mels]`` and reference ``[b, reference_frames, n_mels]``, both float32 and padded."""


def tf_batches(planned: Planned, data: SpeechData, load: Load) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Return the function that makes a batch from its number, reading features through ``load``."""
    specs = signature(planned)
    bounds, sizes = tf.constant(planned.bounds), tf.constant([*zip(planned.frames, planned.characters, strict=True)])
    rows = tf.constant([planned.clips, planned.references, planned.reference_starts])
    lengths, text_lengths = tf.constant(planned.lengths), tf.constant(planned.texts.lengths)
    text_ids, text_starts = tf.constant(planned.texts.ids), tf.constant(planned.texts.starts)
    ids = tf.constant([data.id(clip) for clip in range(len(data))])

    def batch(number: tf.Tensor) -> dict[str, tf.Tensor]:
        clips, references, starts = tf.unstack(rows[:, bounds[number] : bounds[number + 1]])
        frames, characters = tf.unstack(sizes[number])
        own, available = tf.gather(lengths, clips), tf.gather(lengths, references) - starts
        mel, reference = load(
            Rows(
                tf.gather(ids, clips),
                own,
                frames,
                tf.gather(ids, references),
                starts,
                tf.minimum(available, planned.reference_frames),
                clips,
                references,
            )
        )
        text_length = tf.gather(text_lengths, clips)
        place = tf.range(characters)
        inside = place < text_length[:, None]
        where = tf.where(inside, tf.gather(text_starts, clips)[:, None] + tf.cast(place, tf.int64), 0)
        made = {
            "id": clips,
            "text": tf.where(inside, tf.cast(tf.gather(text_ids, where), tf.int32), 0),
            "text_length": text_length,
            "mel": mel,
            "mel_length": own,
            "reference": reference,
            "reference_start": tf.where(references == clips, starts, -1),
        }
        for key, spec in specs.items():
            made[key].set_shape(spec.shape)
        return made

    return batch


def kept(content: Content) -> Content:
    """Return ``content`` with a memory: what belongs to a clip is made when it is first asked for, and kept."""
    # Anonymous, so that it lives as long as the dataset that refers to it.
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.string, "", experimental_is_anonymous=True)

    def from_memory(clip: tf.Tensor, *rest: tf.Tensor) -> tf.Tensor:
        key = tf.cast(clip, tf.int64)
        found = tf.ensure_shape(table.lookup(key), [])

        def made() -> tf.Tensor:  # two threads may find nothing at once, and make the same
            new = content(clip, *rest)
            with tf.control_dependencies([table.insert(key, new)]):
                return tf.identity(new)

        return tf.cond(tf.strings.length(found) > 0, lambda: found, made)

    return from_memory


def check(good: tf.Tensor, sentence: Callable[[tf.Tensor], tf.Tensor]) -> tf.Operation:
    """Fail unless all of ``good``, ``[b]`` bool, is true.

    What is wrong with a row is a string, made from its number.

    Raises:
        tf.errors.InvalidArgumentError: when it runs: the sentence of the first row that is not good.
    """

    def fail() -> tf.Operation:
        return tf.debugging.Assert(False, [sentence(tf.argmin(tf.cast(good, tf.int32)))])

    return tf.cond(tf.reduce_all(good), tf.no_op, fail)


_ROWS_AT_ONCE: Final = 8
"""Rows of a batch whose files the graph reads side by side; batches of any size are made of such rounds."""
_HEAD_BYTES: Final = 512  # first bytes of a file in which its header must lie; NumPy's are 128 long for such arrays
_MAGIC: Final = b"\x93NUMPY"
_HEADER: Final = (
    r"""\{ *['"]descr['"]: *['"]([^'"]*)['"], *['"]fortran_order['"]: *(True|False), *['"]shape['"]: *\(([^)]*)\)"""
    r""",? *\} *\n"""
)  # the dictionary that NumPy writes: keys in alphabetical order
_REMEDY: Final = "; run 'xttsbench data precompute'"


def tf_cache(
    planned: Planned, data: SpeechData, cache: FeatureCache, features: FeatureSettings, *, keep: bool = False
) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Return the function that makes a batch from its number."""
    directory = f"{cache.npy(0).parent}/"
    content = kept(_read) if keep else _read
    lengths = tf.constant(planned.lengths)
    n_mels, reference_frames = planned.n_mels, planned.reference_frames
    padding = tf.fill([max(int(planned.frames.max()), reference_frames) * n_mels], planned.floor)

    def load(rows: Rows) -> tuple[tf.Tensor, tf.Tensor]:
        size = tf.shape(rows.clips)[0]
        numbers = _numbers(
            tf.strings.join([directory, tf.stack([rows.ids, rows.reference_ids], 1), ".npy"]),
            clips=tf.stack([rows.clips, rows.references], 1),
            frames=tf.stack([rows.lengths, tf.gather(lengths, rows.references)], 1),
            firsts=rows.reference_starts * n_mels,
            counts=tf.stack([rows.lengths, rows.reference_counts], 1) * n_mels,
            missing=tf.stack([rows.frames - rows.lengths, reference_frames - rows.reference_counts], 1) * n_mels,
            padding=padding,
            n_mels=n_mels,
            content_of=content,
        )
        # All numbers of the batch are in one piece of memory, of which both are slices.
        mel, reference = tf.split(numbers, tf.stack([size * rows.frames * n_mels, -1]), num=2)
        return tf.reshape(mel, [size, rows.frames, n_mels]), tf.reshape(reference, [size, reference_frames, n_mels])

    return tf_batches(planned, data, load)


def _read(clip: tf.Tensor, path: tf.Tensor) -> tf.Tensor:
    return tf.io.read_file(path)


def _numbers(
    paths: tf.Tensor,
    *,
    clips: tf.Tensor,
    frames: tf.Tensor,
    firsts: tf.Tensor,
    counts: tf.Tensor,
    missing: tf.Tensor,
    padding: tf.Tensor,
    n_mels: int,
    content_of: Content,
) -> tf.Tensor:
    """Read the clip and the reference of each row, and put their numbers one after the other, each with its padding.

    Of ``paths`` (the files of clip and reference), ``clips`` (their numbers), ``frames`` (that each must hold),
    ``counts`` (numbers wanted) and ``missing`` (of the padding, after them) there are ``[rows, 2]``; of ``firsts``, the
    first number wanted of the reference, ``[rows]``, for of the clip all are wanted.

    Returns:
        ``[sum(counts + missing)]`` float32: first all clips, then all references.
    """
    rows = tf.shape(paths)[0]
    rounds = (rows + _ROWS_AT_ONCE - 1) // _ROWS_AT_ONCE
    spare = [[0, rounds * _ROWS_AT_ONCE - rows], [0, 0]]
    real = tf.reshape(tf.pad(tf.ones_like(frames), spare) > 0, [-1, 2 * _ROWS_AT_ONCE])
    paths = tf.where(real, tf.reshape(tf.pad(paths, spare), [-1, 2 * _ROWS_AT_ONCE]), os.devnull)
    firsts = tf.stack([tf.zeros_like(firsts), firsts], 1)
    clips = tf.where(real, tf.reshape(tf.pad(clips, spare), [-1, 2 * _ROWS_AT_ONCE]), -1)
    frames, firsts, counts, missing = (
        tf.reshape(tf.pad(column, spare), [-1, 2 * _ROWS_AT_ONCE]) for column in (frames, firsts, counts, missing)
    )
    zero, to_the_end = tf.constant([0]), tf.constant([-1])  # one node each, not one a file

    def read(number: tf.Tensor, pieces: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        files = zip(tf.unstack(clips[number]), tf.unstack(paths[number]), strict=True)
        contents = [content_of(clip, path) for clip, path in files]
        begins, checked = _header(contents, paths[number], frames[number], n_mels, real[number])
        begin = tf.unstack((begins // 4)[:, None])
        cut_from, cut = tf.unstack(begins + 4 * firsts[number]), tf.unstack(4 * counts[number])
        fill = tf.unstack(missing[number][:, None])
        with tf.control_dependencies([checked]):
            for place, content in enumerate(contents):
                row, is_reference = divmod(place, 2)
                if is_reference:  # a small part of its file
                    wanted = tf.io.decode_raw(tf.strings.substr(content, cut_from[place], cut[place]), tf.float32)
                else:  # a slice is no copy: there is one in decoding, and one in concatenating
                    wanted = tf.slice(tf.io.decode_raw(content, tf.float32), begin[place], to_the_end)
                at = 2 * (number * _ROWS_AT_ONCE + row + is_reference * rounds * _ROWS_AT_ONCE)
                pieces = pieces.write(at, wanted)
                pieces = pieces.write(at + 1, tf.slice(padding, zero, fill[place]))
        return number + 1, pieces

    pieces = tf.TensorArray(tf.float32, 4 * rounds * _ROWS_AT_ONCE, infer_shape=False, element_shape=[None])
    _, pieces = tf.while_loop(lambda number, _: number < rounds, read, (0, pieces))
    return pieces.concat()


def _header(
    contents: list[tf.Tensor], paths: tf.Tensor, frames: tf.Tensor, n_mels: int, real: tf.Tensor
) -> tuple[tf.Tensor, tf.Operation]:
    """Parse the headers of ``.npy`` files: magic, version, length, dtype, order and shape.

    Nothing here fails on any content but the operation that is returned.

    Each must be ``[frames, n_mels]``; of those that are not ``real`` nothing is asked.

    Returns:
        Where the numbers of each file begin, in bytes, and the operation that fails if a file is not what it should
        be: its name, what is wrong and what to do.
    """
    heads = tf.stack([tf.strings.substr(content, 0, _HEAD_BYTES) for content in contents])
    sizes = tf.stack([tf.strings.length(content) for content in contents])
    words = tf.cast(tf.io.decode_raw(heads, tf.uint16, fixed_length=12), tf.int32)
    version = words[:, 3]  # 1.0 is 0x0001, 2.0 is 0x0002: the major number comes first
    begins = tf.where(version == 1, 10 + words[:, 4], 12 + words[:, 4] + 65536 * words[:, 5])
    begins = tf.clip_by_value(begins, 0, tf.minimum(sizes, _HEAD_BYTES))
    text_at = tf.minimum(tf.where(version == 1, 10, 12), begins)
    texts = tf.strings.substr(heads, text_at, begins - text_at)
    form = r"dtype {}, Fortran order {}, shape ({})"
    expected = tf.strings.join([form.format("<f4", "False", "")[:-1], tf.strings.as_string(frames), f", {n_mels})"])
    found = tf.strings.regex_replace(texts, _HEADER, form.format(r"\1", r"\2", r"\3"))
    well_formed = (
        (tf.strings.substr(heads, 0, 6) == _MAGIC)
        & ((version == 1) | (version == 2))
        & tf.strings.regex_full_match(texts, _HEADER)
        & (begins % 4 == 0)  # NumPy pads headers to 64 bytes, older versions to 16
    )
    expected_sizes = begins + 4 * n_mels * frames

    def sentence(row: tf.Tensor) -> tf.Tensor:
        has, means = tf.strings.as_string(sizes[row]), tf.strings.as_string(expected_sizes[row])
        size = tf.strings.join([" has ", has, " bytes, and its header means ", means])
        other = tf.strings.join([" holds ", found[row], ", and ", expected[row], " is expected"])
        what = tf.where(found[row] == expected[row], size, other)
        return tf.strings.join([paths[row], tf.where(well_formed[row], what, " has no readable .npy header"), _REMEDY])

    return begins, check(~real | (well_formed & (found == expected) & (sizes == expected_sizes)), sentence)


_HEADER_BYTES: Final = 44
_PARALLEL_ROWS: Final = 8  # clips of a batch that are worked on at a time, cores permitting


def tf_wav(
    planned: Planned, data: SpeechData, cache: FeatureCache | None, features: FeatureSettings, *, keep: bool = False
) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Return the function that makes a batch from its number; the cache is not used."""
    directory = f"{data.directory}/wavs/"
    samples = tf.constant(data.samples)

    def computed(path: tf.Tensor, expected: tf.Tensor, start: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        return log_mel_frames(_decoded(path, expected, features.sample_rate_hz), start, count, features)

    def whole(clip: tf.Tensor, path: tf.Tensor, expected: tf.Tensor) -> tf.Tensor:
        frames = tf.cast(expected // features.hop_samples, tf.int32)
        return tf.io.serialize_tensor(computed(path, expected, tf.zeros_like(frames), frames))

    content = kept(whole) if keep else None

    def frames_of(
        clip: tf.Tensor, path: tf.Tensor, expected: tf.Tensor, start: tf.Tensor, count: tf.Tensor
    ) -> tf.Tensor:
        if content is None:
            return computed(path, expected, start, count)
        return tf.io.parse_tensor(content(clip, path, expected), tf.float32)[start : start + count]

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
