"""Log-mel features in NumPy, the one definition that every loader has to agree with, and the way back to sound.

The way back fits magnitudes to the mels, then phases to those by the fast Griffin-Lim algorithm (Perraudin, Balazs and
Sondergaard, "A fast Griffin-Lim algorithm", 2013). What it makes has the features it was made from, nearly: it is no
vocoder, and enough to hear and to measure what a model says.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from xttsbench.records.base import Record

if TYPE_CHECKING:
    from scipy.sparse import csr_array  # SciPy takes a third of a second to load, and who reads a recipe needs none

Floats = npt.NDArray[np.float32]

_BLOCK_FRAMES: Final = 32
"""Frames transformed at once: few enough to stay in a core's own cache, enough to make the calls cheap."""
_BREAK_HZ, _HZ_PER_MEL, _LOG_STEP = 1000.0, 200.0 / 3, np.log(6.4) / 27


class FeatureSettings(Record):
    """Settings of a log-mel spectrogram; a cache made with other settings is another data set."""

    sample_rate_hz: int = Field(gt=0)
    n_fft: int = Field(gt=0)
    hop_samples: int = Field(gt=0)
    window_samples: int = Field(gt=0)
    n_mels: int = Field(gt=0)
    f_min_hz: float = Field(ge=0)
    f_max_hz: float = Field(gt=0)
    log_floor: float = Field(gt=0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.hop_samples <= self.window_samples <= self.n_fft:
            raise ValueError(
                "hop_samples <= window_samples <= n_fft must hold, or samples are lost; "
                f"got {self.hop_samples}, {self.window_samples}, {self.n_fft}"
            )
        if (self.n_fft - self.hop_samples) % 2:
            raise ValueError(
                "n_fft - hop_samples must be even, for both ends are reflected by half of it; "
                f"got {self.n_fft} and {self.hop_samples}"
            )
        if not self.f_min_hz < self.f_max_hz <= self.sample_rate_hz / 2:
            raise ValueError(
                "f_min_hz < f_max_hz <= sample_rate_hz / 2 must hold; "
                f"got {self.f_min_hz:g}, {self.f_max_hz:g}, {self.sample_rate_hz / 2:g}"
            )
        return self

    def frames(self, samples: int) -> int:
        """Return the number of frames of a clip of so many samples: one per whole hop."""
        return samples // self.hop_samples

    @property
    def fewest_samples(self) -> int:
        """Length of the shortest clip that has features: a frame, and what is reflected at its ends."""
        return max((self.n_fft - self.hop_samples) // 2 + 1, self.hop_samples)


def log_mel(samples: npt.NDArray[np.floating[Any]], settings: FeatureSettings) -> Floats:
    """Return the natural logarithm of the mel magnitudes, ``[frames, n_mels]``, floored at ``log_floor``.

    Magnitudes (not powers) of a Hann-windowed Fourier transform, reflected at both ends by ``(n_fft - hop) / 2``
    samples so that frame ``i`` is centred on the ``i``-th hop, times a Slaney filter bank: the features of HiFi-GAN
    (Kong et al., 2020) and the vocoders after it.

    Window, product, transform and magnitude are float64, the filter bank and the logarithm float32. A float32 transform
    errs by some 1e-8 of the loudest bin in every bin, which the logarithm turns into 1e-2 where a filter is 90 dB below
    it (above a loud low tone); in float64 two ways of computing agree within 1e-5 everywhere. A loader that is to agree
    with this has to transform in float64 too, whatever it is written in. The samples are ``[n]`` in -1..1 at the
    settings' rate.

    Raises:
        ValueError: the clip has another rank, or is too short to be reflected.
    """
    return log_mel_frames(samples, settings, 0, settings.frames(len(samples)) if samples.ndim else 0)


def log_mel_frames(samples: npt.NDArray[np.floating[Any]], settings: FeatureSettings, start: int, count: int) -> Floats:
    """Return ``log_mel(samples, settings)[start : start + count]``, computed from those frames' own samples.

    Fewer come where the clip ends before, as a slice does.

    Raises:
        ValueError: as :func:`log_mel`; or ``start`` or ``count`` is negative.
    """
    import scipy.fft

    pad = (settings.n_fft - settings.hop_samples) // 2
    if samples.ndim != 1 or len(samples) <= pad:
        raise ValueError(f"a clip is one row of more than {pad} samples, got shape {samples.shape}")
    if start < 0 or count < 0:
        raise ValueError(f"start and count must be 0 or more, got {start} and {count}")
    count = max(0, min(count, settings.frames(len(samples)) - start))
    hann, filters = window(settings), _sparse_filters(settings)
    bins = filters.shape[1]
    out = np.empty((count, settings.n_mels), np.float32)
    if not count:
        return out
    segment = _reflected(
        samples, start * settings.hop_samples - pad, (count - 1) * settings.hop_samples + settings.n_fft
    )
    views = np.lib.stride_tricks.sliding_window_view(segment, settings.n_fft)[:: settings.hop_samples]
    block = min(_BLOCK_FRAMES, count)
    windowed = np.empty((block, settings.n_fft))
    magnitudes = np.empty((block, bins))
    by_bin = np.empty((bins, block), np.float32)  # what the sparse product reads without a copy of its own
    for first in range(0, count, block):
        rows = min(block, count - first)
        np.multiply(views[first : first + rows], hann, out=windowed[:rows])
        spectra = scipy.fft.rfft(windowed[:rows], axis=-1)
        np.abs(spectra[:, :bins], out=magnitudes[:rows])
        by_bin[:, :rows] = magnitudes[:rows].T
        out[first : first + rows] = (filters @ by_bin[:, :rows]).T
    np.maximum(out, np.float32(settings.log_floor), out=out)
    return np.log(out, out=out)


def _reflected(samples: npt.NDArray[np.floating[Any]], start: int, count: int) -> Floats:
    """Return ``count`` samples from ``start`` on of a clip that is continued by its mirror image at both ends."""
    before, after = max(0, -start), max(0, start + count - len(samples))
    inside = samples[max(0, start) : start + count - after]
    left, right = samples[1 : before + 1][::-1], samples[::-1][1 : after + 1]
    return np.concatenate((left, inside, right), dtype=np.float32, casting="same_kind")


@lru_cache(maxsize=8)
def mel_filters(settings: FeatureSettings) -> Floats:
    """Return the filter bank, ``[n_mels, n_fft // 2 + 1]``: triangles of equal area on Slaney's mel scale.

    Slaney, "Auditory Toolbox" (1998): linear below 1 kHz (200/3 Hz per mel), logarithmic above (a factor of 6.4 in 27
    mels); each triangle is scaled by 2 over its width in Hz. This is not the HTK scale, whose numbers differ.
    """
    edges_mel = np.linspace(_mel(settings.f_min_hz), _mel(settings.f_max_hz), settings.n_mels + 2)
    edges_hz = _hertz(edges_mel)
    bins_hz = np.fft.rfftfreq(settings.n_fft, 1 / settings.sample_rate_hz)
    low, centre, high = edges_hz[:-2, None], edges_hz[1:-1, None], edges_hz[2:, None]
    rising = (bins_hz - low) / (centre - low)
    falling = (high - bins_hz) / (high - centre)
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    filters: Floats = (triangles * 2 / (high - low)).astype(np.float32)
    filters.flags.writeable = False  # shared between calls and threads
    return filters


@lru_cache(maxsize=8)
def _sparse_filters(settings: FeatureSettings) -> csr_array:
    """Return :func:`mel_filters` without their zeros, 98 % of them, and without the bins above the last filter.

    A dense product would also start BLAS threads below each of tf.data's, and those fight for the cores.
    """
    from scipy.sparse import csr_array

    filters = mel_filters(settings)
    used = np.flatnonzero(filters.any(axis=0))
    return csr_array(filters[:, : used[-1] + 1 if used.size else 1])


@lru_cache(maxsize=8)
def window(settings: FeatureSettings) -> npt.NDArray[np.float64]:
    """Return the periodic Hann window, centred in ``n_fft`` samples; in float32 it would leak 1e-3 into quiet bins."""
    size = settings.window_samples
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    before = (settings.n_fft - size) // 2
    padded = np.pad(hann, (before, settings.n_fft - size - before))
    padded.flags.writeable = False
    return padded


def _mel(hertz: float) -> float:
    if hertz < _BREAK_HZ:
        return hertz / _HZ_PER_MEL
    return float(_BREAK_HZ / _HZ_PER_MEL + np.log(hertz / _BREAK_HZ) / _LOG_STEP)


def _hertz(mel: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    above = mel - _BREAK_HZ / _HZ_PER_MEL
    return np.where(above < 0, mel * _HZ_PER_MEL, _BREAK_HZ * np.exp(_LOG_STEP * np.maximum(above, 0)))


Complex = npt.NDArray[np.complex64]

ITERATIONS: Final = 60
MOMENTUM: Final = 0.99
"""The value that the paper recommends."""

_FITTING_STEPS: Final = 50
_TINY: Final = 1e-12


def griffin_lim(mel: npt.NDArray[np.floating[Any]], settings: FeatureSettings, *, seed: int = 0) -> Floats:
    """Return sound whose :func:`~xttsbench.xtts.features.log_mel` is near ``mel``: ``[frames * hop]`` in -1..1.

    The same seed, of the phases to begin with, gives the same sound.

    Raises:
        ValueError: the clip has another rank, another number of mels, or is too short.
    """
    pad = (settings.n_fft - settings.hop_samples) // 2
    if mel.ndim != 2 or mel.shape[1] != settings.n_mels or len(mel) * settings.hop_samples <= pad:
        raise ValueError(
            f"a clip is [frames, {settings.n_mels}] of more than {pad // settings.hop_samples} frames, "
            f"got shape {mel.shape}"
        )
    wanted = magnitudes(mel, settings)
    phases = np.random.default_rng(seed).uniform(0, 2 * np.pi, wanted.shape)
    direction = np.exp(1j * phases).astype(np.complex64)
    before = np.zeros_like(direction)
    for _ in range(ITERATIONS):
        consistent = spectra(sound(wanted * direction, settings), settings)
        ahead = consistent + np.float32(MOMENTUM) * (consistent - before)
        direction = ahead / np.maximum(np.abs(ahead), np.float32(_TINY))
        before = consistent
    samples = sound(wanted * direction, settings)
    return samples / max(np.float32(1), np.abs(samples).max())


def magnitudes(mel: npt.NDArray[np.floating[Any]], settings: FeatureSettings) -> Floats:
    """Return magnitudes ``[frames, bins]``, none negative, whose mels are nearest to log-mels ``[frames, n_mels]``.

    Least squares by the multiplicative steps of Lee and Seung ("Algorithms for non-negative matrix factorization",
    2001), all frames at once: a filter bank has far more bins than mels, so that the inverse is a choice, and these
    steps keep the bins of a filter alike.
    """
    from scipy.sparse import csr_array

    filters = csr_array(mel_filters(settings))
    reached = np.maximum(filters.sum(0), np.float32(_TINY))  # of the filters at each bin
    mels = np.exp(mel).astype(np.float32)
    found: Floats = (mels / np.maximum(filters.sum(1), np.float32(_TINY))) @ filters / reached
    aimed = mels @ filters
    for _ in range(_FITTING_STEPS):
        found *= aimed / np.maximum(found @ filters.T @ filters, np.float32(_TINY))
    return found


def spectra(samples: Floats, settings: FeatureSettings) -> Complex:
    """Return the Fourier transforms ``[frames, bins]`` of which the features are made, in float32."""
    import scipy.fft

    pad = (settings.n_fft - settings.hop_samples) // 2
    views = np.lib.stride_tricks.sliding_window_view(np.pad(samples, pad, mode="reflect"), settings.n_fft)
    windowed = views[:: settings.hop_samples] * window(settings).astype(np.float32)
    transformed: Complex = scipy.fft.rfft(windowed, axis=-1)
    return transformed


def sound(transforms: Complex, settings: FeatureSettings) -> Floats:
    """Return the samples ``[frames * hop]`` whose :func:`spectra` are nearest (Griffin and Lim, 1984, equation 6)."""
    import scipy.fft

    hop, size = settings.hop_samples, settings.n_fft
    hann = window(settings).astype(np.float32)
    frames, parts = len(transforms), -(-size // hop)
    pieces = np.zeros((frames, parts * hop), np.float32)
    pieces[:, :size] = scipy.fft.irfft(transforms, size, axis=-1) * hann
    weights = np.zeros(parts * hop, np.float32)
    weights[:size] = hann**2
    added: Floats = np.zeros((frames + parts - 1, hop), np.float32)
    weight = np.zeros_like(added)
    for part in range(parts):
        piece = slice(part * hop, (part + 1) * hop)
        added[part : part + frames] += pieces[:, piece]
        weight[part : part + frames] += weights[piece]
    start = (size - hop) // 2
    added /= np.maximum(weight, np.float32(_TINY))
    return added.reshape(-1)[start : start + frames * hop]
