"""Features read from one ``.npy`` file per clip with ``np.load``.

``np.load`` spends most of its time in Python, on the header, so that threads wait for one another.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from xttsbench.xtts.audio.features import FeatureSettings
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.npy_cache import CacheFileError, unreadable
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.loaders.numpy_batches import Fill, by_clip, kept
from xttsbench.xtts.loaders.planned import Planned


def loader(
    planned: Planned, data: SpeechData, cache: FeatureCache, features: FeatureSettings, *, keep: bool = False
) -> Fill:
    """Return what fills a batch with features."""

    def read(clip: int, start: int, out: npt.NDArray[np.float32]) -> None:
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
        out[:] = mel[start : start + len(out)]

    return by_clip(kept(read, planned) if keep else read)
