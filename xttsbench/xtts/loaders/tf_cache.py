"""Features read from one ``.npy`` file per clip in TensorFlow's ops: the header is parsed, not skipped.

Some rows at a time are unrolled in the graph: one at a time, as in ``tf.map_fn``, the loop costs more than the files
do. Strings are copied wherever they are gathered into one tensor, so that is done with heads of files alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import tensorflow as tf

from xttsbench.xtts.audio.features import FeatureSettings
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.loaders.planned import Planned
from xttsbench.xtts.loaders.tf_batches import Content, Rows, check, kept, tf_batches

_ROWS_AT_ONCE: Final = 8
"""Rows of a batch whose files the graph reads side by side; batches of any size are made of such rounds."""
_HEAD_BYTES: Final = 512
"""First bytes of a file in which its header must lie; NumPy's are 128 long for such arrays."""
_MAGIC: Final = b"\x93NUMPY"
_HEADER: Final = (
    r"""\{ *['"]descr['"]: *['"]([^'"]*)['"], *['"]fortran_order['"]: *(True|False), *['"]shape['"]: *\(([^)]*)\)"""
    r""",? *\} *\n"""
)
"""The dictionary that NumPy writes: keys in alphabetical order."""
_REMEDY: Final = "; run 'xttsbench data precompute'"


def loader(
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

    Args:
        paths: ``[rows, 2]``, the files of clip and reference; what follows is int32.
        clips: ``[rows, 2]`` their clips' numbers.
        frames: ``[rows, 2]`` frames that each file must hold.
        firsts: ``[rows]`` first number wanted of the reference; of the clip all are.
        counts: ``[rows, 2]`` how many numbers are wanted.
        missing: ``[rows, 2]`` how many of the padding follow them.
        padding: enough of it.
        n_mels: columns that each file must hold.
        content_of: the content of a file, from its clip's number and its path.

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

    Args:
        contents: the files.
        paths: their names, for the error.
        frames: the rows that each must have.
        n_mels: the columns that each must have.
        real: which of them are files of the cache; nothing is asked of the others.

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
