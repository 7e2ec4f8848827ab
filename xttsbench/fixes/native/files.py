"""Paths in a function that is traced, and the files that they name: bytes, arrays of NumPy's and audio.

Paths are text that is joined and taken apart as ``os.path`` and ``pathlib`` do it; files are what TensorFlow's own ops
read. Which dtype, rank and number of channels these have is what those of the recorded calls had; a file that has
others makes the ops fail when it is read, so nothing is taken for what it is not.
"""

from __future__ import annotations

import io
import os
import pathlib
import re
import struct
import wave
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import tensorflow as tf

from xttsbench.fixes.native.arrays import Array, CannotTraceError, Symbolic, holds_traced, only
from xttsbench.fixes.native.text import Text, joined, text

_DECODED: Final = "u1 i1 u2 i2 i4 i8 f2 f4 f8 c8 c16 b1"  # kinds of numbers that ``tf.io.decode_raw`` reads
_FULL_SCALE: Final = 32768
_OPEN_SIZE: Final = "reads a part of a file whose size is known only when it runs"


class PathText(Text):
    """A ``Path``, whose values are ``str``."""

    __slots__ = ()

    def __init__(self, path: Text) -> None:
        """Take text."""
        super().__init__(path.tensor, path.seen, Path)

    @property
    def bare(self) -> Text:
        """The path as text."""
        return Text(self.tensor, self.seen, str)

    @property
    def name(self) -> Text:
        """The last part."""
        return _basename(self.bare)

    @property
    def stem(self) -> Text:
        """The last part without what is behind its last point."""
        return _splitext(self.name)[0]

    @property
    def suffix(self) -> Text:
        """Ending of the file's name, from the last point on."""
        return _splitext(self.name)[1]

    @property
    def parent(self) -> PathText:
        """All but the last part."""
        return PathText(_dirname(self.bare))

    def with_suffix(self, suffix: str) -> PathText:
        """Another end."""
        return PathText(joined([_splitext(self.bare)[0], suffix], str))

    def __truediv__(self, other: Any) -> PathText:
        return made_path(self, other)

    def __rtruediv__(self, other: Any) -> PathText:
        return made_path(other, self)


def _path_text(value: Any) -> Text:
    """A path, or text that is one."""
    return PathText(text(str(value))) if isinstance(value, pathlib.PurePath) else text(value)


def _path_joined(first: Any, *more: Any) -> Text:
    given = [_path_text(one) for one in (first, *more)]
    kind = next((one.kind for one in given if one.kind is not Path), str)
    slash: Any = "/" if kind is str else b"/"
    parts: list[Any] = []
    ended = True
    for number, one in enumerate(given):
        seen = one.seen or ()
        only(bool(seen), "joins paths of which none was seen")
        if number and any(value.startswith(slash) for value in seen):
            only(len(seen) == 1, "joins paths that begin anew")
            parts = []
        elif not ended:
            parts.append(slash)
        parts.append(Text(one.tensor, seen, kind))
        ended = all(value.endswith(slash) for value in seen)
    return joined(parts, kind)


def _basename(path: Any) -> Text:
    return _path_text(path).sub("^.*/", "", os.path.basename)


def _dirname(path: Any) -> Text:
    """``os.path.dirname``, of a path below the root."""
    return _path_text(path).sub("/*[^/]*$", "", os.path.dirname)


def _splitext(path: Any) -> tuple[Text, Text]:
    given, pattern = _path_text(path), r"^((?:.*/)?\.*[^/.][^/]*)(\.[^./]*)$"
    root = given.sub(pattern, r"\1", lambda one: os.path.splitext(one)[0])
    end = given.sub(pattern, r"\2", lambda one: os.path.splitext(one)[1])
    has = tf.strings.regex_full_match(given.tensor, f"(?s){pattern}")
    return root, Text(tf.where(has, end.tensor, ""), end.seen, end.kind)


def made_path(*parts: Any) -> PathText:
    """``Path(...)``."""
    return PathText(_path_joined(*parts))


OF_PATHS: Final[Mapping[Any, Callable[..., Any]]] = {
    os.path.join: _path_joined,
    os.path.basename: _basename,
    os.path.dirname: _dirname,
    os.path.splitext: _splitext,
    os.fspath: lambda value: value.bare if isinstance(value, PathText) else value,
    Path: made_path,
    pathlib.PosixPath: made_path,
}
"""Function of Python's -> what does the same with traced paths."""


class _Opened(Symbolic):
    """File that a ``with`` statement closes."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def close(self) -> None:
        pass  # what is read by ops is not held open


class _File(_Opened):
    """A file that is open, or bytes that are read like one."""

    __slots__ = ("_at", "content", "kind")
    what = "a file"

    def __init__(self, content: Text, kind: type = bytes) -> None:
        self.content, self.kind, self._at = content, kind, 0

    def read(self, size: Any = -1) -> Text:
        """All that is left, or so many bytes."""
        only(isinstance(size, int | None), _OPEN_SIZE)
        start, whole = self._at, size is None or size < 0
        only(self.kind is bytes or (whole and not start), "reads a file of text in parts")
        if whole and not start:
            return self.content
        length = tf.strings.length(self.content.tensor) if whole else start + size
        self._at = 0 if whole else start + size
        cut = tf.strings.substr(self.content.tensor, start, length - start if whole else size)
        return self.content.made(cut, lambda one: one[start:] if whole else one[start : start + size])

    def seek(self, offset: Any, whence: int = 0) -> int:
        """Go to a place that is known."""
        only(isinstance(offset, int) and not whence and offset >= 0, "goes to a place that is known only when it runs")
        self._at = offset
        return offset


def _opened(file: Any, mode: str = "r", *_: Any, encoding: Any = None, **named: Any) -> _File:
    only(mode in ("rb", "r", "rt", "br") and not named, f"opens a file in the mode {mode!r}")
    raw = _content(file)
    if "b" in mode:
        return _File(raw)
    only(encoding in (None, "utf-8", "utf8", "UTF-8"), f"reads text in {encoding}")
    lines = tf.strings.regex_replace(raw.tensor, "\r\n?", "\n")
    return _File(raw.made(lines, lambda one: re.sub("\r\n?", "\n", one.decode()), str), str)


def _content(file: Any) -> Text:
    """The bytes of a file, by its path or of one that is open."""
    if isinstance(file, _File):
        only(file.kind is bytes, "reads what is no text from a file of text")
        return file.content
    path = _path_text(file)
    if path.seen is None:
        raise CannotTraceError("reads a file of which no recorded call says the path")
    return Text(tf.io.read_file(path.tensor), [_bytes(one) for one in path.seen], bytes)


def _bytes(path: Any) -> bytes:
    return Path(path.decode() if isinstance(path, bytes) else path).read_bytes()


def _one(values: list[Any], what: str) -> Any:
    """The one value that all have."""
    only(len(set(values)) == 1, f"reads files of {what}")
    return values[0]


def _decodable(dtype: Any) -> Any:
    wanted = np.dtype(dtype)
    only(wanted.str[1:] in _DECODED.split() and wanted.str[0] in "<|", f"reads numbers of {wanted.str}")
    return tf.as_dtype(wanted)


def _load(file: Any, mmap_mode: Any = None, **named: Any) -> Any:
    """``numpy.load``, of one array or of an archive, as NumPy writes them."""
    known = mmap_mode in (None, "r", "c") and not named.get("allow_pickle")
    only(known, "loads arrays that are written to, or objects")
    raw = _content(file)
    if raw.seen is None:
        raise CannotTraceError("loads an array of which no recorded call says the dtype")
    return _Archive(raw) if any(one[:2] == b"PK" for one in raw.seen) else _array(raw)


def _array(raw: Text) -> Array:
    """An array in NumPy's format."""
    dtype, rank, by_columns = _one([_head(one) for one in raw.seen or ()], "several dtypes or ranks")
    kind = _decodable(dtype)
    length = tf.cast(tf.io.decode_raw(tf.strings.substr(raw.tensor, 8, 2), tf.uint16)[0], tf.int32)
    header = tf.strings.substr(raw.tensor, 10, length)
    pattern = rf"^\{{'descr': '{re.escape(dtype)}', 'fortran_order': {by_columns}, 'shape': \((.*?),?\), \}}\s*$"
    numbers = tf.strings.regex_replace(header, pattern, r"\1")
    # What is no such header is no list of numbers
    sizes = tf.strings.to_number(tf.raw_ops.StringSplitV2(input=numbers[None], sep=", ").values, tf.int64)
    shape = tf.ensure_shape(sizes, [rank])
    start = 10 + length
    values = tf.io.decode_raw(tf.strings.substr(raw.tensor, start, tf.strings.length(raw.tensor) - start), kind)
    if by_columns and rank > 1:
        return Array(tf.transpose(tf.reshape(values, tf.reverse(shape, [0]))))
    return Array(tf.reshape(values, shape))


def _head(raw: bytes) -> tuple[str, int, bool]:
    """Dtype, rank and order of an array in NumPy's format."""
    only(raw[:8] == b"\x93NUMPY\x01\x00", "loads a file that is no array in version 1 of NumPy's format")
    stream = io.BytesIO(raw[8 : 10 + int.from_bytes(raw[8:10], "little")])
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    text_of = f"{{'descr': '{dtype.str}', 'fortran_order': {by_columns}, 'shape': {shape!r}, }}"
    only(stream.getvalue()[2:].decode("latin1").rstrip() == text_of, "loads an array whose header NumPy did not write")
    only(len(shape) > 0, "loads a single number")
    return dtype.str, len(shape), bool(by_columns)


class _Archive(_Opened):
    """A ``.npz`` file whose arrays have the names, and the order, of those of the recorded calls."""

    __slots__ = ("_entries", "_raw", "files")
    what = "an archive of arrays"
    _EXTRA: Final = 20  # bytes behind a name, in which NumPy has the sizes written

    def __init__(self, raw: Text) -> None:
        self._raw = raw
        found = []
        for one in raw.seen or ():
            only(one[:2] == b"PK", "reads arrays and archives of them")
            infos = zipfile.ZipFile(io.BytesIO(one)).infolist()
            heads = [one[info.header_offset : info.header_offset + 30] for info in infos]
            plain = all(int.from_bytes(head[28:], "little") == self._EXTRA and not head[6] & 8 for head in heads)
            only(plain and infos[0].header_offset == 0, "loads an archive that NumPy did not write")
            found.append(tuple((info.filename.encode(), info.compress_type) for info in infos))
        self._entries = _one(found, "several sets of arrays")
        self.files = [name.decode().removesuffix(".npy") for name, _ in self._entries]

    def __contains__(self, name: Any) -> bool:
        return name in self.files

    def __getitem__(self, key: Any) -> Array:
        if key not in self.files:
            raise KeyError(f"{key} is not a file in the archive")
        raw, number = self._raw.tensor, self.files.index(key)
        start: Any = tf.constant(0, tf.int64)
        for name, method in self._entries[: number + 1]:
            begin = start + 30 + len(name) + self._EXTRA
            size = tf.io.decode_raw(tf.strings.substr(raw, begin - 8, 8), tf.int64)[0]
            known = [(start, 4), (start + 8, 2), (start + 26, 4 + len(name))]
            head = tf.strings.join([tf.strings.substr(raw, at, tf.constant(length, tf.int64)) for at, length in known])
            wanted = b"PK\x03\x04" + struct.pack("<HHH", method, len(name), self._EXTRA) + name
            tf.debugging.Assert(tf.equal(head, wanted), [f"the archive has no {name.decode()} where others have it"])
            entry, start = start, begin + size
        values = tf.strings.substr(raw, begin, size)
        if method == zipfile.ZIP_DEFLATED:
            check, whole = (tf.strings.substr(raw, at, tf.constant(4, tf.int64)) for at in (entry + 14, begin - 16))
            stream = [b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff", values, check, whole]
            values = tf.io.decode_compressed(tf.strings.join(stream), "GZIP")
        return _array(self._raw.made(values, lambda one: zipfile.ZipFile(io.BytesIO(one)).read(f"{key}.npy")))


def _from_buffer(buffer: Any, dtype: Any = float, count: Any = -1, offset: Any = 0) -> Array:
    if isinstance(buffer, _Samples):
        only(np.dtype(dtype) == np.int16 and count == -1 and not offset, "reads audio as other numbers")
        return Array(buffer.values.tensor, view=buffer.values)
    kind, size = _decodable(dtype), np.dtype(dtype).itemsize
    only(isinstance(count, int) and isinstance(offset, int), _OPEN_SIZE)
    raw = text(buffer).tensor
    if offset or count >= 0:
        length = size * count if count >= 0 else tf.strings.length(raw) - offset
        raw = tf.strings.substr(raw, offset, length)
    found = Array(tf.io.decode_raw(raw, kind))
    found._viewed[0] = True  # nothing may be written to it
    return found


def _from_file(file: Any, dtype: Any = float, count: int = -1, sep: str = "", offset: int = 0) -> Array:
    only(not sep, "reads numbers that are written as text")
    return Array(_from_buffer(_content(file), dtype, count, offset).tensor)


# Audio


class _Samples(Symbolic):
    """The bytes of whole numbers of 16 bits."""

    __slots__ = ("values",)
    what = "the bytes of samples"

    def __init__(self, values: Array) -> None:
        self.values = values


class Audio:
    """A WAV file of 16 bits, as those of the recorded calls are.

    Attributes:
        samples: floats of 32 bits below 1, frames by channels.
        rate: per second.
        channels: how many.
    """

    def __init__(self, file: Any) -> None:
        """Take a path, or a file that is open."""
        raw = _content(file)
        if raw.seen is None:
            raise CannotTraceError("reads audio of which no recorded call says the format")
        heads = [_format(one) for one in raw.seen]
        self.channels = _one([one for one, _ in heads], "several numbers of channels")
        samples, rate = tf.audio.decode_wav(raw.tensor)
        self.samples = tf.ensure_shape(samples, [None, self.channels])
        self.rate = Array(tf.cast(rate, tf.int64), int)
        self.rate.seen = tuple(one for _, one in heads)

    def in_dtype(self, dtype: Any) -> Array:
        """The samples as floats below 1, or as the whole numbers that are in the file."""
        wanted = np.dtype(dtype)
        if wanted.kind == "f":
            return Array(tf.cast(self.samples, wanted))
        only(wanted == np.int16, f"reads audio as {wanted}")
        return Array(tf.cast(self.samples * tf.constant(float(_FULL_SCALE)), wanted))


def _format(raw: bytes) -> tuple[int, int]:
    """Number of channels and rate."""
    try:
        with wave.open(io.BytesIO(raw)) as file:
            only(file.getsampwidth() == 2, f"reads audio of {8 * file.getsampwidth()} bits a sample")
            return file.getnchannels(), file.getframerate()
    except (wave.Error, EOFError) as error:
        raise CannotTraceError(f"reads audio that is not WAV of 16 bits ({error})") from error


def _mono(audio: Audio, values: Array) -> Array:
    return Array(values.tensor[:, 0]) if audio.channels == 1 else values


def soundfile_read(
    file: Any, frames: int = -1, start: int = 0, stop: Any = None, dtype: str = "float64", always_2d: bool = False
) -> tuple[Array, Array]:
    """``soundfile.read``."""
    audio = Audio(file)
    values = audio.in_dtype(dtype)
    only(not holds_traced([frames, start, stop]) and start >= 0, _OPEN_SIZE)
    if frames >= 0 or start or stop is not None:
        values = values[start : stop if frames < 0 else start + frames]
    return values if always_2d else _mono(audio, values), audio.rate


def wavfile_read(filename: Any, mmap: bool = False) -> tuple[Array, Array]:
    """``scipy.io.wavfile.read``."""
    audio = Audio(filename)
    return audio.rate, _mono(audio, audio.in_dtype(np.int16))


class _WaveFile(_Opened):
    """WAV file as ``wave.open`` returns it."""

    __slots__ = ("_audio", "_frames")
    what = "a WAV file"

    def __init__(self, file: Any, mode: Any = None) -> None:
        """Take a path, or a file that is open."""
        only(mode in (None, "r", "rb"), "writes audio")
        self._audio = Audio(file)
        self._frames = Array(tf.shape(self._audio.samples, tf.int64)[0], int)

    def getnchannels(self) -> int:
        return int(self._audio.channels)

    def getsampwidth(self) -> int:
        return 2

    def getframerate(self) -> Array:
        return self._audio.rate

    def getnframes(self) -> Array:
        return self._frames

    def readframes(self, count: Any) -> _Samples:
        """So many frames from the beginning."""
        values = self._audio.in_dtype(np.int16)
        only(count is self._frames or (isinstance(count, int) and count >= -1), "reads so many frames as values say")
        if count is not self._frames and count != -1:
            values = values[:count]
        return _Samples(Array(tf.reshape(values.tensor, [-1])))


FUNCTIONS: Final[Mapping[Any, Callable[..., Any]]] = {
    open: _opened,
    io.BytesIO: lambda value: _File(text(value)),
    wave.open: _WaveFile,
    np.load: _load,
    np.frombuffer: _from_buffer,
    np.fromfile: _from_file,
}
"""Function that reads a file, or bytes -> what does the same here."""
