"""Functions of SoundFile, SciPy and librosa that speech projects call, as ops of TensorFlow, by their public names.

None of the libraries is imported here: their functions are told by what the user's own imports hold. Windows and filter
banks are the libraries' own, made once; Fourier transforms are taken in the precision that the library takes.
"""
# ruff: noqa: N803 - the names of the libraries' parameters

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.fixes.native.arrays import Array, Symbolic, holds_traced, lifted, only, result_dtype
from xttsbench.fixes.native.arrays.functions import FUNCTIONS as OF_NUMPY
from xttsbench.fixes.native.files import Audio, soundfile_read, wavfile_read

_LONGEST_FILTER: Final = 64
Make = Callable[..., Any]
"""Calls a function of the library's for what is known, so that its text is noted."""


def library_function(function: Any, *, traced: bool) -> Callable[..., Any] | None:
    """Equivalent of a function of one of the libraries; ``None`` where it is not known here.

    Args:
        function: whatever is called.
        traced: whether it is given anything that is known only when it runs; what reads files is found without.
    """
    root = str(getattr(function, "__module__", None)).split(".", maxsplit=1)[0]
    if root not in _ROOTS:
        return None
    for name, own in {**READERS, **(FUNCTIONS if traced else {})}.items():
        module, _, attribute = name.rpartition(".")
        if name.startswith(root) and getattr(sys.modules.get(module), attribute, None) is function:
            return own
    return None


def _of(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(sys.modules[module], attribute)


def static(value: Any, what: str) -> Any:
    """A number that has to be known: that of all recorded calls, which is checked whenever it runs."""
    if not isinstance(value, Symbolic):
        return value
    seen = set(value.seen or ()) if isinstance(value, Array) else set()
    only(len(seen) == 1, f"takes {what} from what is known only when it runs")
    (known,) = seen
    tf.debugging.Assert(tf.equal(value.lifted().tensor, known), [f"{what} is not {known}"])
    return known


# Filters and frames


def _lfilter(make: Make, b: Any, a: Any, x: Any, axis: int = -1, zi: Any = None) -> Array:
    only(not holds_traced((b, a)) and zi is None, "filters with what is known only when it runs")
    taps, feedback, array = np.atleast_1d(b), np.atleast_1d(a), lifted(x)
    only(len(feedback) == 1, "filters with feedback (more than one number in a)")
    usual = len(taps) <= _LONGEST_FILTER and axis in (-1, array.ndim - 1)
    only(usual, "filters with too many numbers, or another axis")
    wanted = result_dtype(lifted(taps), lifted(feedback), array)
    wanted = wanted if wanted.kind in "fc" else np.dtype(np.float64)
    values, (first, *others) = tf.cast(array.tensor, wanted), (taps / feedback[0]).astype(wanted)
    length, total = tf.shape(values)[-1], values * tf.constant(first)
    for number, tap in enumerate(others, 1):  # what is before the first value is zero
        before = [[0, 0]] * (array.ndim - 1) + [[number, 0]]
        total += tf.pad(values, before)[..., :length] * tf.constant(tap)
    return Array(total)


def _preemphasis(make: Make, y: Any, *, coef: float = 0.97, zi: Any = None, return_zf: bool = False) -> Array:
    only(zi is None and not return_zf and not holds_traced(coef), "filters in pieces")
    array = lifted(y)
    values = array.tensor
    kind = array.dtype.type
    first = kind(2) * values[..., :1] - values[..., 1:2]
    before = tf.concat([first / -kind(coef), values[..., :-1]], -1)
    return Array(values - kind(coef) * before)


def _frames(values: Any, length: int, hop: int) -> Any:
    """Frames along the last axis: frames by samples, what does not fill one left out."""
    count = 1 + (tf.shape(values)[-1] - length) // hop
    return tf.gather(values, tf.range(count)[:, None] * hop + tf.range(length), axis=-1)


def _frame(make: Make, x: Any, *, frame_length: int, hop_length: int, axis: int = -1, **named: Any) -> Array:
    only(axis == -1 and not named and not holds_traced((frame_length, hop_length)), "frames along another axis")
    return Array(tf.linalg.matrix_transpose(_frames(lifted(x).tensor, frame_length, hop_length)))


def _centered(values: Any, by: int, mode: str) -> Any:
    only(mode in ("constant", "reflect"), f"pads in the mode {mode!r}, which is not known here")
    widths = [[0, 0]] * (values.shape.rank - 1) + [[by, by]]
    return tf.pad(values, widths, mode.upper())


# Spectra


def _stft(make: Make, y: Any, *, dtype: Any = None, out: Any = None, **sizes: Any) -> Array:
    only(out is None and dtype is None, "gives librosa.stft a dtype, or where to write")
    only(not holds_traced(sizes), "takes sizes that are known only when it runs")
    return Array(tf.linalg.matrix_transpose(_spectra(make, y, **sizes)))


def _spectra(
    make: Make, y: Any, *, n_fft: int = 2048, hop_length: Any = None, win_length: Any = None, window: Any = "hann",
    center: bool = True, pad_mode: str = "constant",
) -> Any:  # fmt: skip
    """Frames by frequencies, in double precision and then in that of the audio, as librosa has it."""
    array = lifted(y)
    only(array.dtype.kind == "f", "takes the spectrum of what is no audio")
    length = n_fft if win_length is None else win_length
    hop = length // 4 if hop_length is None else hop_length
    weights = make(_of("librosa.filters.get_window"), window, length, fftbins=True)
    if length != n_fft:
        weights = make(_of("librosa.util.pad_center"), weights, size=n_fft)
    values = _centered(array.tensor, n_fft // 2, pad_mode) if center else array.tensor
    frames = tf.cast(_frames(values, n_fft, hop), tf.float64) * tf.constant(weights, tf.float64)
    kind = tf.complex128 if array.dtype == np.float64 else tf.complex64
    return tf.cast(tf.signal.rfft(frames), kind)


_SIZES: Final = ("hop_length", "win_length", "window", "center", "pad_mode")


def _melspectrogram(
    make: Make, *, y: Any = None, sr: Any = 22050, S: Any = None, n_fft: int = 2048, power: float = 2.0, **named: Any
) -> Array:
    sr = static(sr, "the sample rate")
    sizes: dict[str, Any] = {name: named.pop(name) for name in _SIZES if name in named}
    only(not holds_traced((n_fft, power, sizes, named)), "takes sizes that are known only when it runs")
    if S is None:
        found = tf.abs(_spectra(make, y, **{"n_fft": n_fft, "hop_length": 512, **sizes}))
        found = found if power == 1 else tf.square(found) if power == 2 else tf.pow(found, power)
        values = tf.linalg.matrix_transpose(found)
    else:
        values = lifted(S).tensor
        if values.shape[-2] is not None:
            n_fft = 2 * (int(values.shape[-2]) - 1)
    bank = make(_of("librosa.filters.mel"), sr=sr, n_fft=n_fft, **named)
    wanted = np.result_type(bank.dtype, values.dtype.as_numpy_dtype)
    return Array(tf.matmul(tf.cast(tf.constant(bank), wanted), tf.cast(values, wanted)))


def _power_to_db(make: Make, S: Any, *, ref: Any = 1.0, amin: float = 1e-10, top_db: Any = 80.0) -> Array:
    array = lifted(S)
    values = array if array.dtype.kind != "c" else np.abs(array)
    only(array.dtype.kind in "fc", "takes decibels of whole numbers")
    level = make(ref, values) if callable(ref) else np.abs(ref)
    found = 10.0 * np.log10(np.maximum(amin, values))
    found = found - 10.0 * np.log10(np.maximum(amin, level))
    if top_db is not None:
        found = np.maximum(found, np.max(found) - top_db)
    return Array(tf.cast(lifted(found).tensor, values.dtype))


def _amplitude_to_db(make: Make, S: Any, *, ref: Any = 1.0, amin: float = 1e-5, top_db: Any = 80.0) -> Array:
    values = np.abs(lifted(S))
    level = make(ref, values) if callable(ref) else np.abs(ref)
    return _power_to_db(make, np.square(values), ref=level**2, amin=amin**2, top_db=top_db)


def _mfcc(
    make: Make, *, y: Any = None, sr: Any = 22050, S: Any = None, n_mfcc: int = 20, dct_type: int = 2,
    norm: Any = "ortho", lifter: float = 0, **named: Any,
) -> Array:  # fmt: skip
    only(not lifter, "lifts the coefficients of librosa.feature.mfcc")
    decibels = lifted(_power_to_db(make, _melspectrogram(make, y=y, sr=sr, **named)) if S is None else S)
    return _dct(make, decibels, type=dct_type, axis=-2, norm=norm)[..., :n_mfcc, :]


def _dct(make: Make, x: Any, type: int = 2, n: Any = None, axis: int = -1, norm: Any = None, **named: Any) -> Array:
    array = lifted(x)
    axis = axis - array.ndim if axis >= 0 else axis
    length = array.tensor.shape[axis]
    only(length is not None and n is None and not named, "takes the cosine transform of an open length")
    only(array.dtype.kind == "f" and axis in (-1, -2), "takes the cosine transform of other numbers, or another axis")
    import scipy.fft

    matrix = make(scipy.fft.dct, make(np.eye, int(length or 0)), type=type, axis=0, norm=norm)
    factors = tf.constant(matrix.astype(array.dtype))
    return Array(tf.matmul(factors, array.tensor) if axis == -2 else tf.matmul(array.tensor, factors, transpose_b=True))


def _rms(
    make: Make, *, y: Any = None, S: Any = None, frame_length: int = 2048, hop_length: int = 512, center: bool = True,
    pad_mode: str = "constant", dtype: Any = None,
) -> Array:  # fmt: skip
    only(S is None and dtype is None, "takes the level of a spectrogram")
    values = lifted(y).tensor
    values = _centered(values, frame_length // 2, pad_mode) if center else values
    power = tf.reduce_mean(tf.square(_frames(values, frame_length, hop_length)), -1)
    return Array(tf.sqrt(power)[..., None, :])


def _scipy_stft(
    make: Make, x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int = 256, noverlap: Any = None, nfft: Any = None,
    detrend: Any = False, return_onesided: bool = True, boundary: Any = "zeros", padded: bool = True, axis: int = -1,
    scaling: str = "spectrum",
) -> tuple[Any, Any, Array]:  # fmt: skip
    fs = static(fs, "the sample rate")
    plain = detrend is False and return_onesided and axis == -1 and scaling == "spectrum" and nfft in (None, nperseg)
    only(plain and boundary in ("zeros", None), "calls scipy.signal.stft in a way that is not known here")
    array, hop = lifted(x), nperseg - (nperseg // 2 if noverlap is None else noverlap)
    only(array.ndim == 1 and array.dtype.kind == "f", "calls scipy.signal.stft with what is no audio of one channel")
    weights = make(_of("scipy.signal.get_window"), window, nperseg)
    values = array.tensor
    tf.debugging.Assert(tf.shape(values)[0] >= nperseg, ["audio is shorter than a frame"])
    if boundary is not None:
        values = _centered(values, nperseg // 2, "constant")
    if padded:
        values = tf.pad(values, [[0, -(tf.shape(values)[0] - nperseg) % hop % nperseg]])
    kind = np.result_type(array.dtype, np.complex64)
    inside = tf.float32 if kind == np.complex64 else tf.float64
    frames = tf.cast(_frames(values, nperseg, hop), inside) * tf.constant(weights / weights.sum(), inside)
    found = tf.linalg.matrix_transpose(tf.signal.rfft(frames))
    start = nperseg / 2 - (0 if boundary is None else nperseg / 2)
    times = (tf.cast(tf.range(tf.shape(found)[-1]) * hop, tf.float64) + start) / float(fs)
    return make(np.fft.rfftfreq, nperseg, 1 / fs), Array(times), Array(found)


# Shapes and levels


def _fix_length(make: Make, data: Any, *, size: Any, axis: int = -1, **named: Any) -> Array:
    array = lifted(data)
    at, wanted = axis % array.ndim, tf.cast(lifted(size).tensor, tf.int32)
    missing = tf.maximum(wanted - tf.shape(array.tensor)[at], 0)
    widths = [(0, Array(tf.cast(missing, tf.int64), int)) if one == at else (0, 0) for one in range(array.ndim)]
    padded = OF_NUMPY[np.pad](array, widths, **named)
    return padded[(*(slice(None),) * at, slice(None, size))]


def _normalize(
    make: Make, S: Any, *, norm: Any = math.inf, axis: Any = 0, threshold: Any = None, fill: Any = None
) -> Array:
    only(norm == math.inf and threshold is None and fill is None, "normalises by another norm than the largest value")
    array = lifted(S)
    only(array.dtype.kind == "f", "normalises what is no audio")
    size = tf.cast(np.max(np.abs(array), axis=axis, keepdims=True).tensor, tf.float64)
    size = tf.where(size < np.finfo(array.dtype).tiny, tf.ones([], tf.float64), size)
    return Array(tf.cast(tf.cast(array.tensor, tf.float64) / size, array.dtype))


def _trim(
    make: Make, y: Any, *, top_db: float = 60, ref: Any = np.max, frame_length: int = 2048, hop_length: int = 512,
    aggregate: Any = np.max,
) -> tuple[Array, Array]:  # fmt: skip
    array = lifted(y)
    only(array.ndim == 1, "trims audio of several channels")
    level = _rms(make, y=array, frame_length=frame_length, hop_length=hop_length)
    decibels = _amplitude_to_db(make, level[0], ref=ref, top_db=None)
    loud = tf.where(decibels.tensor > -top_db)[:, 0]
    length, some = tf.shape(array.tensor, tf.int64)[0], tf.size(loud) > 0
    zero = tf.zeros([], tf.int64)
    start = tf.where(some, tf.reduce_min(loud) * hop_length, zero)
    end = tf.where(some, tf.minimum(length, (tf.reduce_max(loud) + 1) * hop_length), zero)
    return Array(array.tensor[start:end]), Array(tf.stack([start, end]))


def _load(
    make: Make, path: Any, *, sr: Any = 22050, mono: bool = True, offset: float = 0.0, duration: Any = None,
    dtype: Any = np.float32, res_type: Any = None,
) -> tuple[Array, Array]:  # fmt: skip
    only(not offset and duration is None and not holds_traced(sr), "loads a part of a file")
    audio = Audio(path)
    values = audio.in_dtype(dtype)
    if sr is not None:
        rates = sorted(set(audio.rate.seen or ()))
        only(rates == [sr], f"changes the rate from {', '.join(map(str, rates))} Hz to {sr}")
        static(audio.rate, "the sample rate")
    if audio.channels == 1:
        return Array(values.tensor[:, 0]), audio.rate
    return Array(tf.reduce_mean(values.tensor, -1) if mono else tf.transpose(values.tensor)), audio.rate


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps an equivalent that calls no function of the library's."""

    @functools.wraps(function)
    def made(make: Make, *arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    return made


READERS: Final[Mapping[str, Callable[..., Any]]] = {
    "soundfile.read": _plain(soundfile_read),
    "scipy.io.wavfile.read": _plain(wavfile_read),
    "librosa.load": _load,
}
"""Equivalents of the functions that read files."""
FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "scipy.signal.lfilter": _lfilter,
    "scipy.signal.stft": _scipy_stft,
    "scipy.fft.dct": _dct,
    "scipy.fft.rfft": _plain(OF_NUMPY[np.fft.rfft]),
    "scipy.fftpack.dct": _dct,
    "librosa.stft": _stft,
    "librosa.power_to_db": _power_to_db,
    "librosa.amplitude_to_db": _amplitude_to_db,
    "librosa.feature.melspectrogram": _melspectrogram,
    "librosa.feature.mfcc": _mfcc,
    "librosa.feature.rms": _rms,
    "librosa.effects.preemphasis": _preemphasis,
    "librosa.effects.trim": _trim,
    "librosa.util.frame": _frame,
    "librosa.util.fix_length": _fix_length,
    "librosa.util.normalize": _normalize,
}
"""Public name of a library's function -> what does the same, given what makes the library's own calls first."""
_ROOTS: Final = {name.split(".", maxsplit=1)[0] for name in (*FUNCTIONS, *READERS)}
