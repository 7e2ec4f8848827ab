"""Log-mel features in NumPy: the one definition that every loader has to agree with."""

from __future__ import annotations

from functools import lru_cache
from typing import Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator
from scipy.sparse import csr_array

from xttsbench.records.base import Record

Floats = npt.NDArray[np.float32]


class FeatureSettings(Record):
    """What determines a log-mel spectrogram; a cache made with other settings is another data set."""

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
        if not self.f_min_hz < self.f_max_hz <= self.sample_rate_hz / 2:
            raise ValueError(
                "f_min_hz < f_max_hz <= sample_rate_hz / 2 must hold; "
                f"got {self.f_min_hz:g}, {self.f_max_hz:g}, {self.sample_rate_hz / 2:g}"
            )
        return self

    def frames(self, samples: int) -> int:
        """Return the number of frames of a clip of so many samples: one per whole hop."""
        return samples // self.hop_samples


def log_mel(samples: npt.NDArray[np.floating], settings: FeatureSettings) -> Floats:
    """Return the natural logarithm of the mel magnitudes, ``[frames, n_mels]``, floored at ``log_floor``.

    Magnitudes (not powers) of a Hann-windowed Fourier transform, reflected at both ends by ``(n_fft - hop) / 2``
    samples so that frame ``i`` is centred on the ``i``-th hop, times a Slaney filter bank: the features of HiFi-GAN
    (Kong et al., 2020) and the vocoders after it.

    Args:
        samples: ``[n]`` in -1..1 at the settings' rate; longer than the reflection.
        settings: what determines the features.

    Raises:
        ValueError: the clip has another rank, or is too short to be reflected.
    """
    pad = (settings.n_fft - settings.hop_samples) // 2
    if samples.ndim != 1 or len(samples) <= pad:
        raise ValueError(f"a clip is one row of more than {pad} samples, got shape {samples.shape}")
    padded = np.pad(samples.astype(np.float32), pad, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, settings.n_fft)[:: settings.hop_samples]
    magnitudes = np.abs(np.fft.rfft(windows * _window(settings), axis=-1)).astype(np.float32)
    mel = (_sparse_filters(settings) @ magnitudes.T).T
    return np.ascontiguousarray(np.log(np.maximum(mel, np.float32(settings.log_floor))), np.float32)


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
    """Return :func:`mel_filters` without their zeros, 98 % of them.

    A dense product would also start BLAS threads below each of tf.data's, and those fight for the cores.
    """
    return csr_array(mel_filters(settings))


@lru_cache(maxsize=8)
def _window(settings: FeatureSettings) -> Floats:
    """Return the periodic Hann window, centred in ``n_fft`` samples."""
    size = settings.window_samples
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    before = (settings.n_fft - size) // 2
    window: Floats = np.pad(hann, (before, settings.n_fft - size - before)).astype(np.float32)
    window.flags.writeable = False
    return window


_BREAK_HZ, _HZ_PER_MEL, _LOG_STEP = 1000.0, 200.0 / 3, np.log(6.4) / 27


def _mel(hertz: float) -> float:
    if hertz < _BREAK_HZ:
        return hertz / _HZ_PER_MEL
    return float(_BREAK_HZ / _HZ_PER_MEL + np.log(hertz / _BREAK_HZ) / _LOG_STEP)


def _hertz(mel: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    above = mel - _BREAK_HZ / _HZ_PER_MEL
    return np.where(above < 0, mel * _HZ_PER_MEL, _BREAK_HZ * np.exp(_LOG_STEP * np.maximum(above, 0)))
