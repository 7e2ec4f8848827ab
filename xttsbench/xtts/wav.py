"""Sound files: any that libsndfile reads, change of their rate, and the canonical form that loaders read fast.

The *canonical* form is a WAV file, mono, 16-bit PCM, at the recipe's rate, of chunks that every reader takes
(``tf.audio.decode_wav`` among them). Its header is parsed here, for libsndfile does not say where the samples begin nor
what else is in a file, and does not refuse one that ends early. Never imports TensorFlow.
"""

from __future__ import annotations

import os
import re
import struct
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from xttsbench.errors import InvalidInputError
from xttsbench.inputs import open_regular

if TYPE_CHECKING:
    from soundfile import SoundFile

Floats = npt.NDArray[np.float32]
StrPath = str | os.PathLike[str]

CONVERT: Final = "run 'xttsbench data import'"
"""Remedy for a sound file that is whole, but not in canonical form."""

_FIRST_READ_BYTES: Final = 512
_MOST_CHUNKS: Final = 1000
_HEADER_BYTES: Final = 44  # of a canonical file without further chunks: RIFF, `fmt ` of 16 bytes, `data`
# What libsndfile logs of a header and does not refuse: numbers, and what they should be to fit the file.
_LOGGED: Final = re.compile(r"^ *(Block Align|Bit Width|data|SSND) *: (\d+)(?: \(should be (\d+)\))?$", re.MULTILINE)
_READ: Final = ("WAV", "WAVEX", "AIFF", "FLAC", "OGG", "MP3")
"""Formats, in libsndfile's words, of which it shows where a file ends early."""
_LOSSY_SLACK: Final = 0.02  # share of its samples that an MP3 may lack: its header, if it has any, estimates them
_WHOLE: Final = ("PCM", "FLOAT", "DOUBLE")  # formats whose samples have a size each
_UNKNOWN_LENGTH: Final = 0xFFFFFFFF
MIN_RATE_HZ: Final = 1_000
MAX_RATE_HZ: Final = 768_000
"""Rates outside of these are not those of speech, but of a damaged header."""
_STOP_DB: Final = 80.0
_TRANSITION: Final = 0.1  # width of the filter's slope as a part of the lower Nyquist frequency, at which it ends
_LARGEST_FACTOR: Final = 50_000  # a filter grows with its factors; exact for all usual rates, and for any below this


class WavError(InvalidInputError):
    """A sound file cannot be used: which, why, and what to do.

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
class SoundHeader:
    """Header of a sound file, checked against the size of the file where that can be known."""

    sample_rate_hz: int
    channels: int
    sample_format: str
    """libsndfile's words: ``PCM_16``, ``FLOAT``, after the kind of file where it is no WAV (``FLAC PCM_16``)."""
    frames: int
    """Samples of each channel."""

    @property
    def form(self) -> str:
        """The form in words, e.g. ``44100 Hz, 2 channels, PCM_24``."""
        return f"{self.sample_rate_hz} Hz, {self.channels} channel{'s' * (self.channels != 1)}, {self.sample_format}"


def read_sound_header(path: StrPath) -> SoundHeader:
    """Return what a sound file's header says.

    Raises:
        WavError: the file cannot be read, is no sound file, is of a form that is not supported, holds no sample, or
            ends before its header says.
    """
    with _sound(path) as (_, header):
        return header


def read_sound(path: StrPath) -> tuple[Floats, int]:
    """Return the samples of any supported sound file, ``[n]``, and its rate in hertz.

    Integers are scaled to -1..1; floating-point samples are taken as they are, so that they may lie outside. Channels
    are averaged.

    Raises:
        WavError: as :func:`read_sound_header`; or a sample is not a number, or fewer come than the header says.
    """
    with _sound(path) as (file, header):
        samples = file.read(dtype="float32", always_2d=True)
    if len(samples) < header.frames * (1 - _LOSSY_SLACK * (file.format == "MP3")):
        raise WavError(path, f"ends after {len(samples)} of {header.frames} samples", "copy the file again")
    if not np.isfinite(samples).all():
        raise WavError(path, "holds samples that are infinite or not a number", "write the file again")
    if header.channels > 1:
        samples = samples.mean(axis=1, dtype=np.float64).astype(np.float32)
    return samples.reshape(-1), header.sample_rate_hz


def canonical_samples(path: StrPath, sample_rate_hz: int) -> int:
    """Return the number of samples of a file in canonical form: mono, 16-bit PCM, at the given rate.

    Raises:
        WavError: as :func:`read_sound_header`; or the file is of another form.
    """
    with _opened(path) as file:
        return _canonical_data(file, path, sample_rate_hz)[1] // 2


def read_canonical_wav(path: StrPath, sample_rate_hz: int) -> Floats:
    """Return the samples of a file in canonical form, ``[n]`` in -1..1; the fast path of the loaders.

    Raises:
        WavError: as :func:`canonical_samples`.
    """
    with _opened(path) as file:
        data = _read_at(file, path, *_canonical_data(file, path, sample_rate_hz))
    samples = np.frombuffer(data, "<i2").astype(np.float32)
    samples *= np.float32(1 / 32768)
    return samples


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
        file.setparams((1, 2, sample_rate_hz, len(pcm), "NONE", ""))
        file.writeframesraw(pcm.tobytes())


def wav_bytes(samples: int) -> int:
    """Return the size of a file in canonical form of so many samples."""
    return _HEADER_BYTES + 2 * samples


@contextmanager
def _opened(path: StrPath) -> Iterator[BinaryIO]:
    try:
        with open_regular(path) as file:
            yield file
    except FileNotFoundError as error:
        raise WavError(path, "there is no such file", "correct the name in the metadata") from error
    except (OSError, ValueError) as error:  # the second for a path that holds a NUL
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise WavError(path, f"cannot be read ({why})", "make it readable") from error


def _read_at(file: BinaryIO, path: StrPath, offset: int, size: int) -> bytes:
    file.seek(offset)
    data = file.read(size)
    if len(data) < size:
        raise WavError(path, f"ends after {offset + len(data)} bytes while it is read", "copy the file again")
    return data


@contextmanager
def _sound(path: StrPath) -> Iterator[tuple[SoundFile, SoundHeader]]:
    import soundfile  # here, for most commands read no sound, or canonical files alone

    try:
        with _opened(path) as opened, soundfile.SoundFile(opened.fileno(), closefd=False) as file:
            yield file, _checked(file, path)
    except (soundfile.LibsndfileError, MemoryError, OverflowError) as error:
        why = getattr(error, "error_string", "").rstrip(". ") or "its header asks for too much memory"
        remedy = "fetch it again, or convert it, e.g. with 'ffmpeg -i IN -c:a pcm_s16le OUT.wav'"
        raise WavError(path, f"is no sound file that can be read (libsndfile: {why})", remedy) from error


def _checked(file: SoundFile, path: StrPath) -> SoundHeader:
    if file.format not in _READ:
        what = f"is {file.format_info}, and WAV, AIFF, FLAC, Ogg and MP3 are read"
        raise WavError(path, what, "convert it, e.g. with 'ffmpeg -i IN -c:a pcm_s16le OUT.wav'")
    log = {name: (int(said), int(found or said)) for name, said, found in _LOGGED.findall(file.extra_info)}
    if file.subtype.startswith(_WHOLE) and {"Block Align", "Bit Width"} <= log.keys():
        block, bits = log["Block Align"][0], log["Bit Width"][0]
        if 8 * block != file.channels * bits:
            what = f"contradicts itself: {file.channels} channels of {bits} bits, {block} bytes a frame"
            raise WavError(path, what, "write the file again")
    for said, found in (log.get(chunk, (0, 0)) for chunk in ("data", "SSND")):
        if found < said != _UNKNOWN_LENGTH:  # that is written to a pipe: the samples are all that follows
            what = f"is truncated: its header says {said} bytes of samples, the file has {found}"
            raise WavError(path, what, "copy the file again")
    if file.frames <= 0:
        raise WavError(path, "holds no sample", "leave it out or write it again")
    sample_format = file.subtype if file.format in ("WAV", "WAVEX") else f"{file.format} {file.subtype}"
    return SoundHeader(file.samplerate, file.channels, sample_format, file.frames)


def _canonical_data(file: BinaryIO, path: StrPath, sample_rate_hz: int) -> tuple[int, int]:
    """Return where the samples of a file in canonical form begin, and their size, in bytes."""
    file_bytes = os.fstat(file.fileno()).st_size
    head = _read_at(file, path, 0, min(_FIRST_READ_BYTES, file_bytes))
    fmt_bytes = int.from_bytes(head[16:20], "little")
    # PCM, mono, the rate, bytes a second, bytes a frame, bits
    expected = struct.pack("<HHIIHH", 1, 1, sample_rate_hz, 2 * sample_rate_hz, 2, 16)
    if head[:4] == b"RIFF" and head[8:16] == b"WAVEfmt " and fmt_bytes in (16, 18) and head[20:36] == expected:
        data, offset = (0, 0), 20 + fmt_bytes
        for _ in range(_MOST_CHUNKS):  # and not for ever through a file of zeros
            if offset + 8 > file_bytes:
                break
            name, size = struct.unpack("<4sI", _read_at(file, path, offset, 8))
            if size % 2 or name == b"fmt " or (name == b"data" and data[0]):
                break
            if name == b"data":
                data = offset + 8, size
            offset += 8 + size
        if data[1] and offset == file_bytes:
            return data
    with _sound(path) as (_, header):
        form = SoundHeader(sample_rate_hz, 1, "PCM_16", 1).form
        reason = "has unusual chunks, which not every reader takes"
        raise WavError(path, reason if header.form == form else f"is {header.form}, and {form} is expected", CONVERT)


def resample(samples: Floats, from_hz: int, to_hz: int) -> Floats:
    """Return samples at another rate, ``[ceil(n * to_hz / from_hz)]``.

    A linear-phase filter passes what is below 0.9 of the lower Nyquist frequency and stops, by 80 dB, all above it;
    SciPy's own default is at -6 dB there, and lets a tone just above come back as one just below. A ratio of larger
    numbers than 50,000 is replaced by its nearest below, less than 0.01 % off.

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
    low, high = Fraction(min(from_hz, to_hz), max(from_hz, to_hz)).limit_denominator(_LARGEST_FACTOR).as_integer_ratio()
    return (high, low) if to_hz > from_hz else (low, high)


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
