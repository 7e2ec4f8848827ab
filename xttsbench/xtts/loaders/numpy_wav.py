"""Features computed from the WAV files in NumPy: what most projects start with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from xttsbench.xtts.audio.features import FeatureSettings, log_mel_frames
from xttsbench.xtts.audio.wav import WavError, read_canonical_wav
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.loaders.numpy_batches import Fill, by_clip, kept
from xttsbench.xtts.loaders.planned import Planned


def loader(
    planned: Planned, data: SpeechData, cache: FeatureCache | None, features: FeatureSettings, *, keep: bool = False
) -> Fill:
    """Return what fills a batch with features; the cache is not used."""

    def read(clip: int, start: int, out: npt.NDArray[np.float32]) -> None:
        path = data.wav(clip)
        samples = read_canonical_wav(path, features.sample_rate_hz)
        if len(samples) != data.samples[clip]:
            raise WavError(path, f"has {len(samples)} samples, and had {data.samples[clip]}", "start the run again")
        out[:] = log_mel_frames(samples, features, start, len(out))

    return by_clip(kept(read, planned) if keep else read)
