"""WAV files: headers from one small read, samples of every common form, change of the rate, the form loaders read.

The *canonical* form is mono, 16-bit PCM, at the recipe's rate. Never imports TensorFlow.
"""

from __future__ import annotations

import os
import stat
import struct
import wave
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, BinaryIO, Final, Literal

import numpy as np
import numpy.typing as npt

from xttsbench.errors import InvalidInputError

Floats = npt.NDArray[np.float32]
SampleFormat = Literal["uint8", "int16", "int24", "int32", "float32", "float64"]
StrPath = str | os.PathLike[str]

CONVERT: Final = "run 'xttsbench data import'"
"""What to do about a WAV file that is whole, but not in canonical form."""

_FIRST_READ_BYTES: Final = 512
_MOST_CHUNKS: Final = 1000
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_FORMATS: Final[dict[tuple[int, int], SampleFormat]] = {
    (_PCM, 8): "uint8",
    (_PCM, 16): "int16",
    (_PCM, 24): "int24",
    (_PCM, 32): "int32",
    (_FLOAT, 32): "float32",
    (_FLOAT, 64): "float64",
}
# The tail that every subformat of WAVE_FORMAT_EXTENSIBLE shares; the code of the format stands before it.
_GUID_TAIL: Final = bytes.fromhex("000000001000800000aa00389b71")
_UNKNOWN_LENGTH: Final = 0xFFFFFFFF
_PLAIN: Final = struct.Struct("<4sI4s4sIHHIIHH4sI")  # RIFF, fmt of 16 bytes, data: nearly every file


class WavError(InvalidInputError):
    """A file is not a WAV file that can be used: which, why, and what to do.

    Attributes:
        path: the file.
        reason: what is wrong with it.
        remedy: what to do next.
    """

    def __init__(self, path: StrPath, reason: str, remedy: str) -> None:
        super().__init__(os.fspath(path), reason, remedy)  # all three, so that it survives pickling between processes
        self.path, self.reason, self.remedy = os.fspath(path), reason, remedy

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class WavHeader:
    """What a WAV file's header says, checked against the size of the file."""

    sample_rate_hz: int
    channels: int
    sample_format: SampleFormat
    frames: int
    """Samples of each channel."""
    data_offset_bytes: int
    """Where the samples begin."""
    data_bytes: int
    plain: bool
    """Whether simple readers read it, ``tf.audio.decode_wav`` among them: the ``fmt `` chunk first and not extensible,
    every chunk of an even length, and nothing behind the last."""

    @property
    def form(self) -> str:
        """The form in words, e.g. ``44100 Hz, 2 channels, int24``."""
        return f"{self.sample_rate_hz} Hz, {self.channels} channel{'s' * (self.channels != 1)}, {self.sample_format}"


def read_wav_header(path: StrPath) -> WavHeader:
    """Return what a WAV file's header says, from one small read where it is an ordinary one.

    Raises:
        WavError: the file cannot be read, is no WAV file, is of a form that is not supported, holds no sample, or ends
            before its header says.
    """
    descriptor = _open(path)
    try:
        return _header(descriptor, path)
    finally:
        os.close(descriptor)


def read_wav(path: StrPath) -> tuple[Floats, int]:
    """Return the samples of any supported WAV file, ``[n]``, and its rate in hertz.

    8-bit (unsigned), 16-, 24- and 32-bit PCM are scaled to -1..1; floating-point samples are taken as they are, so that
    they may lie outside. Channels are averaged.

    Raises:
        WavError: as :func:`read_wav_header`; or a sample is not a number.
    """
    descriptor = _open(path)
    try:
        header = _header(descriptor, path)
        data = _read_at(descriptor, path, header.data_offset_bytes, header.data_bytes)
    finally:
        os.close(descriptor)
    samples = _decode(data, header.sample_format)
    if header.channels > 1:
        samples = samples.reshape(-1, header.channels).mean(axis=1, dtype=np.float64).astype(np.float32)
    if header.sample_format in ("float32", "float64") and not np.isfinite(samples).all():
        raise WavError(path, "holds samples that are infinite or not a number", "write the file again")
    return samples, header.sample_rate_hz


def canonical_samples(path: StrPath, sample_rate_hz: int) -> int:
    """Return the number of samples of a WAV file in canonical form: mono, 16-bit PCM, at the given rate.

    Raises:
        WavError: as :func:`read_wav_header`; or the file is of another form.
    """
    header = read_wav_header(path)
    _check_canonical(path, header, sample_rate_hz)
    return header.frames


def read_canonical_wav(path: StrPath, sample_rate_hz: int) -> Floats:
    """Return the samples of a WAV file in canonical form, ``[n]`` in -1..1; the fast path of the loaders.

    Raises:
        WavError: as :func:`canonical_samples`.
    """
    descriptor = _open(path)
    try:
        header = _header(descriptor, path)
        _check_canonical(path, header, sample_rate_hz)
        data = _read_at(descriptor, path, header.data_offset_bytes, 2 * header.frames)
    finally:
        os.close(descriptor)
    return _decode(data, "int16")


def write_wav(target: StrPath | BinaryIO, samples: npt.NDArray[np.floating[Any]], sample_rate_hz: int) -> None:
    """Write samples, ``[n]`` in -1..1, in canonical form to a path or an open file; what lies outside is clipped.

    Raises:
        ValueError: the samples have another rank, there is none, or one is not a number.
        OSError: the file cannot be written.
    """
    if samples.ndim != 1 or not samples.size or np.isnan(samples).any():
        raise ValueError(f"a clip is one row of numbers, got shape {samples.shape} or NaN in it")
    pcm = np.clip(np.round(samples * 32768), -32768, 32767).astype("<i2")
    with wave.open(os.fspath(target) if isinstance(target, str | os.PathLike) else target, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate_hz)
        file.setnframes(len(pcm))
        file.writeframesraw(pcm.tobytes())


def _open(path: StrPath) -> int:
    try:
        # Non-blocking, or a FIFO of that name would hold us for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return descriptor


def _unreadable(path: StrPath, error: OSError | ValueError) -> WavError:
    if isinstance(error, FileNotFoundError):
        return WavError(path, "there is no such file", "correct the name in the metadata")
    what = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return WavError(path, f"cannot be read ({what})", "make it readable")


def _read_at(descriptor: int, path: StrPath, offset: int, size: int) -> bytes:
    try:
        data = os.pread(descriptor, size, offset)
        while len(data) < size and (more := os.pread(descriptor, size - len(data), offset + len(data))):
            data += more
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(data) < size:
        raise WavError(path, f"ends after {offset + len(data)} bytes while it is read", "copy the file again")
    return data


def _header(descriptor: int, path: StrPath) -> WavHeader:
    try:
        status = os.fstat(descriptor)
        head = os.pread(descriptor, _FIRST_READ_BYTES, 0) if stat.S_ISREG(status.st_mode) else b""
    except OSError as error:
        raise _unreadable(path, error) from error
    if not stat.S_ISREG(status.st_mode):
        raise WavError(path, "is not a regular file", "put a WAV file there")
    if len(head) >= _PLAIN.size:
        riff, _, wave_, fmt, fmt_bytes, code, channels, rate, byte_rate, block, bits, data, data_bytes = (
            _PLAIN.unpack_from(head)
        )
        layout = (riff, wave_, fmt, fmt_bytes, data, data_bytes)
        if layout == (b"RIFF", b"WAVE", b"fmt ", 16, b"data", status.st_size - _PLAIN.size):
            fields = (code, channels, rate, byte_rate, block, bits)
            return _checked(path, fields, _PLAIN.size, data_bytes, status.st_size, plain=True)
    return _header_of_chunks(descriptor, path, head, status.st_size)


def _header_of_chunks(descriptor: int, path: StrPath, head: bytes, file_bytes: int) -> WavHeader:
    """Return the header of a file whose chunks have to be walked through."""
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        raise WavError(path, f"is not a WAV file: {kind_of(head, file_bytes)}", _remedy(head))
    fields: tuple[int, ...] | None = None
    data: tuple[int, int] | None = None
    plain, offset = True, 12
    for _ in range(_MOST_CHUNKS):  # and not for ever through a file of zeros
        if offset + 8 > file_bytes:
            break
        chunk = head[offset : offset + 48]  # 8 bytes, and the 40 of the longest `fmt `
        if len(chunk) < 48:
            chunk = _read_at(descriptor, path, offset, min(48, file_bytes - offset))
        name, size = struct.unpack_from("<4sI", chunk)
        if name == b"fmt " and data is None:
            if size < 16 or len(chunk) < 24:
                raise WavError(path, f"has a 'fmt ' chunk of {size} bytes in place of 16 or more", "write it again")
            plain = plain and offset == 12 and size in (16, 18)
            fields = struct.unpack_from("<HHIIHH", chunk, 8)
            if fields[0] == _EXTENSIBLE:
                fields, plain = (_subformat(path, chunk, size), *fields[1:]), False
        elif name == b"data" and data is None:
            if fields is None:
                raise WavError(path, "has its samples before the 'fmt ' chunk that describes them", "write it again")
            data = offset + 8, size
        elif name in (b"fmt ", b"data"):
            plain = False
        plain = plain and size % 2 == 0
        offset += 8 + size + size % 2  # chunks begin at even offsets
    if fields is None or data is None:
        missing = "data" if fields else "fmt "
        raise WavError(path, f"has no '{missing}' chunk in its {file_bytes} bytes", "copy the file again")
    return _checked(path, fields, *data, file_bytes, plain=plain and offset == file_bytes)


def _subformat(path: StrPath, chunk: bytes, size: int) -> int:
    """Return the format's code of WAVE_FORMAT_EXTENSIBLE: the head of its subformat's GUID."""
    if size < 40 or len(chunk) < 48 or chunk[34:48] != _GUID_TAIL:
        raise WavError(path, "is WAVE_FORMAT_EXTENSIBLE of an unknown subformat", "convert it to PCM")
    return int.from_bytes(chunk[32:34], "little")


def _checked(
    path: StrPath, fields: tuple[int, ...], data_offset: int, data_bytes: int, file_bytes: int, *, plain: bool
) -> WavHeader:
    code, channels, rate, byte_rate, block, bits = fields
    sample_format = _FORMATS.get((code, bits))
    if sample_format is None:
        name = COMPRESSED.get(code, f"format {code:#06x}") if code not in (_PCM, _FLOAT) else f"{bits}-bit samples"
        raise WavError(
            path,
            f"holds {name}, and 8/16/24/32-bit PCM and 32/64-bit floating point are read",
            "convert it, e.g. with 'ffmpeg -i IN -c:a pcm_s16le OUT.wav'",
        )
    if not channels or not rate or block != channels * bits // 8:
        raise WavError(
            path,
            f"contradicts itself: {channels} channels of {bits} bits, {block} bytes a frame, {rate} Hz",
            "write the file again",
        )
    left = file_bytes - data_offset
    unknown = data_bytes == _UNKNOWN_LENGTH  # written to a pipe: the samples are all that follows
    if unknown:
        data_bytes = left
    if data_bytes > left:
        raise WavError(
            path,
            f"is truncated: its header says {data_bytes} bytes of samples, the file has {left}",
            "copy the file again",
        )
    frames = data_bytes // block
    if not frames:
        raise WavError(path, "holds no sample", "leave it out or write it again")
    plain = plain and not unknown and byte_rate == rate * block and data_bytes % block == 0
    return WavHeader(rate, channels, sample_format, frames, data_offset, frames * block, plain)


def _check_canonical(path: StrPath, header: WavHeader, sample_rate_hz: int) -> None:
    if header.sample_rate_hz != sample_rate_hz or header.channels != 1 or header.sample_format != "int16":
        reason = f"is {header.form}, and {sample_rate_hz} Hz, 1 channel, int16 is expected"
        raise WavError(path, reason, CONVERT)
    if not header.plain:
        raise WavError(path, "has unusual chunks, which not every reader takes", CONVERT)


def _decode(data: bytes, sample_format: SampleFormat) -> Floats:
    """Return interleaved samples as numbers; PCM is scaled to -1..1, exactly, for the factors are powers of two."""
    if sample_format == "uint8":
        return (np.frombuffer(data, np.uint8).astype(np.float32) - np.float32(128)) / np.float32(128)
    if sample_format == "int16":
        samples = np.frombuffer(data, "<i2").astype(np.float32)
        samples *= np.float32(1 / 32768)
        return samples
    if sample_format == "int24":
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)  # the upper three bytes keep the sign
        return (wide.view("<i4")[:, 0] / 2147483648).astype(np.float32)
    if sample_format == "int32":
        return (np.frombuffer(data, "<i4") / 2147483648).astype(np.float32)
    with np.errstate(over="ignore"):  # a double beyond all floats becomes infinite, which is refused
        return np.frombuffer(data, "<f4" if sample_format == "float32" else "<f8").astype(np.float32)


def _remedy(head: bytes) -> str:
    if not head or head[:4] == b"vers":
        return "fetch the file again"
    return "convert it, e.g. with 'ffmpeg -i IN -c:a pcm_s16le OUT.wav', then run 'xttsbench data import'"


def wav_bytes(samples: int) -> int:
    """Return the size of a file in canonical form of so many samples."""
    return _PLAIN.size + 2 * samples


COMPRESSED: Final = {
    0x0002: "Microsoft ADPCM",
    0x0006: "A-law",
    0x0007: "mu-law",
    0x0011: "IMA ADPCM",
    0x0031: "GSM 6.10",
    0x0050: "MPEG audio",
    0x0055: "MP3",
    0x00FF: "AAC",
}
"""Formats that a WAV file may hold besides PCM and floating point, by the code in its ``fmt `` chunk."""

_MAGIC: Final = (
    (0, b"fLaC", "FLAC"),
    (0, b"OggS", "Ogg"),
    (0, b"ID3", "MP3"),
    (0, b"RIFX", "a big-endian WAV file (RIFX)"),
    (0, b"RF64", "a 64-bit WAV file (RF64)"),
    (0, b"BW64", "a 64-bit WAV file (BW64)"),
    (0, b"riff", "a Wave64 file"),
    (0, b"FORM", "AIFF"),
    (0, b".snd", "AU"),
    (0, b"NIST_1A", "NIST SPHERE"),
    (0, b"#!AMR", "AMR"),
    (0, b"\x1aE\xdf\xa3", "Matroska or WebM"),
    (0, b"PK\x03\x04", "a ZIP archive"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"version https://git-lfs", "a Git LFS pointer, whose file was not fetched"),
    (0, b"<", "an HTML or XML page"),
    (4, b"ftyp", "MP4 or M4A"),
    (8, b"AVI ", "an AVI file"),
)


def kind_of(head: bytes, file_bytes: int) -> str:
    """Return in words what the first bytes of a file look like."""
    if not file_bytes:
        return "it is empty"
    for offset, magic, name in _MAGIC:
        if head[offset : offset + len(magic)] == magic:
            return f"it looks like {name}"
    # Eleven bits of synchronisation, then the version, the layer (not 00) and the rate (not 11) of MPEG audio; AAC in
    # ADTS has the layer 00.
    if len(head) >= 3 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0 and head[1] & 0x18 != 0x08:
        return "it looks like MP3" if head[1] & 0x06 else "it looks like AAC"
    if not any(head[:64]):
        return "it begins with zeros"
    if all(32 <= byte < 127 or byte in b"\t\r\n" for byte in head[:64]):
        return f"it looks like text, {head[:24].decode('ascii')!r}"
    return f"it begins with {head[:4]!r}"


MIN_RATE_HZ: Final = 1_000
MAX_RATE_HZ: Final = 768_000
"""Rates outside of these are not those of speech, but of a damaged header."""

_STOP_DB: Final = 80.0
_TRANSITION: Final = 0.1
"""Width of the filter's slope as a part of the lower Nyquist frequency, at which it ends."""
_LARGEST_FACTOR: Final = 50_000
"""A filter grows with its factors; exact for all usual rates, and for any below this."""


def resample(samples: Floats, from_hz: int, to_hz: int) -> Floats:
    """Return samples at another rate, ``[ceil(n * to_hz / from_hz)]``.

    A linear-phase filter passes what is below 0.9 of the lower Nyquist frequency and stops, by 80 dB, all above it;
    SciPy's own default is at -6 dB there, and lets a tone just above come back as one just below.

    Args:
        samples: ``[n]`` at ``from_hz``.
        from_hz: the rate that they have.
        to_hz: the rate wanted. A ratio of larger numbers than 50,000 is replaced by its nearest below, less than
            0.01 % off.

    Raises:
        ValueError: a rate is outside of :data:`MIN_RATE_HZ` .. :data:`MAX_RATE_HZ`.
    """
    for rate_hz in (from_hz, to_hz):
        if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
            raise ValueError(f"rates from {MIN_RATE_HZ} to {MAX_RATE_HZ} Hz can be converted, got {rate_hz}")
    if from_hz == to_hz:
        return samples
    from scipy.signal import resample_poly

    up, down = factors(from_hz, to_hz)
    resampled: Floats = resample_poly(samples, up, down, window=_filter(max(up, down)))
    return resampled


def factors(from_hz: int, to_hz: int) -> tuple[int, int]:
    """Return by how much to interpolate and to decimate."""
    if to_hz > from_hz:
        inverse = Fraction(from_hz, to_hz).limit_denominator(_LARGEST_FACTOR)
        return inverse.denominator, inverse.numerator
    ratio = Fraction(to_hz, from_hz).limit_denominator(_LARGEST_FACTOR)
    return ratio.numerator, ratio.denominator


@lru_cache(maxsize=16)
def _filter(factor: int) -> Floats:
    """Return a low-pass for the rate multiplied by ``factor``, whose stop band begins at the lower Nyquist frequency.

    Kaiser's formulas (Oppenheim and Schafer, "Discrete-Time Signal Processing") give its length and shape.
    """
    from scipy.signal import firwin, kaiserord

    taps, beta = kaiserord(_STOP_DB, _TRANSITION / factor)
    low_pass: Floats = firwin(taps | 1, (1 - _TRANSITION / 2) / factor, window=("kaiser", beta)).astype(np.float32)
    low_pass.flags.writeable = False
    return low_pass
