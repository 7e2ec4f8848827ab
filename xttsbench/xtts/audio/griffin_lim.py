"""From log-mels back to sound: magnitudes of the Fourier transform that the mels fit, then phases that fit those.

The fast Griffin-Lim algorithm (Perraudin, Balazs and Sondergaard, "A fast Griffin-Lim algorithm", 2013). What it makes
has the features it was made from, nearly; it is no vocoder, and enough to hear and to measure what a model says.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import scipy.fft
from scipy.sparse import csr_array

from xttsbench.xtts.audio.features import FeatureSettings, Floats, mel_filters, window

Complex = npt.NDArray[np.complex64]

ITERATIONS: Final = 60
MOMENTUM: Final = 0.99
"""The value that the paper recommends."""

_FITTING_STEPS: Final = 50
_TINY: Final = 1e-12


def griffin_lim(mel: npt.NDArray[np.floating[Any]], settings: FeatureSettings, *, seed: int = 0) -> Floats:
    """Return sound whose :func:`~xttsbench.xtts.audio.features.log_mel` is near ``mel``: ``[frames * hop]`` in -1..1.

    Args:
        mel: log-mels ``[frames, n_mels]``, enough frames to be reflected at the ends as the features have it.
        settings: what determines the features.
        seed: of the phases to begin with; the same one gives the same sound.

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
    pad = (settings.n_fft - settings.hop_samples) // 2
    views = np.lib.stride_tricks.sliding_window_view(np.pad(samples, pad, mode="reflect"), settings.n_fft)
    windowed = views[:: settings.hop_samples] * window(settings).astype(np.float32)
    transformed: Complex = scipy.fft.rfft(windowed, axis=-1)
    return transformed


def sound(transforms: Complex, settings: FeatureSettings) -> Floats:
    """Return the samples ``[frames * hop]`` whose :func:`spectra` are nearest (Griffin and Lim, 1984, equation 6)."""
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
