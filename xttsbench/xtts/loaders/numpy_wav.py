"""Features computed from the WAV files in NumPy, in a ``tf.numpy_function``: what most projects start with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from xttsbench.xtts.audio.features import FeatureSettings, log_mel_frames
from xttsbench.xtts.audio.wav import WavError, read_canonical_wav
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.loaders.numpy_batches import by_clip, kept, numpy_batches
from xttsbench.xtts.loaders.planned import Planned


def loader(
    planned: Planned, data: SpeechData, cache: FeatureCache | None, features: FeatureSettings, *, keep: bool = False
) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Return the function that makes a batch from its number; the cache is not used."""

    def read(clip: int, start: int, out: npt.NDArray[np.float32]) -> None:
        path = data.wav(clip)
        samples = read_canonical_wav(path, features.sample_rate_hz)
        if len(samples) != data.samples[clip]:
            raise WavError(path, f"has {len(samples)} samples, and had {data.samples[clip]}", "start the run again")
        out[:] = log_mel_frames(samples, features, start, len(out))

    return numpy_batches(planned, by_clip(kept(read, planned) if keep else read))
