"""The two loaders as most projects write them: a function for each clip in NumPy, ``numpy_function``, ``padded_batch``.

Nothing here is tuned, for what others are compared with is what people have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as remembered

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from xttsbench.xtts.data.batches import Ints
from xttsbench.xtts.data.cache_files import CacheFileError, unreadable
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.planned import Planned
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.features import FeatureSettings, log_mel_frames
from xttsbench.xtts.loaders.rows import Load
from xttsbench.xtts.wav import WavError, read_canonical_wav

Floats = npt.NDArray[np.float32]
Read = Callable[[int, int, int], Floats]
"""Returns log-mels of a clip, ``[count, n_mels]``, from its number, the first frame and ``count``."""


def numpy_wav(
    planned: Planned, data: SpeechData, cache: FeatureCache | None, features: FeatureSettings, *, keep: bool = False
) -> Load:
    """Return what computes features from WAV files; the cache is not used."""

    def read(clip: int, first: int, count: int) -> Floats:
        path = data.wav(clip)
        samples = read_canonical_wav(path, features.sample_rate_hz)
        if len(samples) != data.samples[clip]:
            raise WavError(path, f"has {len(samples)} samples, and had {data.samples[clip]}", "start the run again")
        return log_mel_frames(samples, features, first, count)

    return in_python(planned, data, kept(read, planned) if keep else read)


def numpy_cache(
    planned: Planned, data: SpeechData, cache: FeatureCache, features: FeatureSettings, *, keep: bool = False
) -> Load:
    """Return what reads the features of a clip from a ``.npy`` file of its own with ``np.load``."""

    def read(clip: int, first: int, count: int) -> Floats:
        path = cache.npy(clip)
        try:
            mel = np.load(path, allow_pickle=False)
        except OSError as error:
            raise unreadable(path, error) from error
        except (ValueError, EOFError) as error:
            raise CacheFileError(path, f"is no whole .npy file ({error})") from error
        expected = (int(planned.lengths[clip]), planned.n_mels)
        if mel.shape != expected or mel.dtype != np.float32 or not mel.flags.c_contiguous:
            raise CacheFileError(
                path,
                f"holds {mel.dtype.str} {mel.shape}{'' if mel.flags.c_contiguous else ' in Fortran order'}, "
                f"and <f4 {expected} in C order is expected",
            )
        return mel[first : first + count]

    return in_python(planned, data, kept(read, planned) if keep else read)


def kept(read: Read, planned: Planned) -> Read:
    """Return ``read`` with a memory: the features of a clip are read whole when they are first asked for, and kept."""

    @remembered
    def whole(clip: int) -> Floats:
        return read(clip, 0, int(planned.lengths[clip]))

    return lambda clip, first, count: whole(clip)[first : first + count]


def in_python(planned: Planned, data: SpeechData, read: Read) -> Load:
    """Return what makes a row in one call of a Python function."""

    def load(clip: np.int32, reference: np.int32, start: np.int32) -> tuple[Floats, Floats, Ints]:
        mel = read(int(clip), 0, int(planned.lengths[clip]))
        count = min(int(planned.lengths[reference] - start), planned.reference_frames)
        return mel, read(int(reference), int(start), count), data.text_ids(int(clip))

    return lambda *row: tuple(tf.numpy_function(load, row, [tf.float32, tf.float32, tf.int32]))
