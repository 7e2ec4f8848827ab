"""Features read from one file for all clips, straight into the batch: no file to open and no header to parse.

Each clip's rows are read at their offset into the batch's memory, which TensorFlow then takes over as it is. Measured
beside it were a map of the file (``np.memmap``), which is as fast, and gathers in TensorFlow's ops from
``tf.raw_ops.ImmutableConst``, which are slower. A read that finds too little says so, whereas a process that touches a
map of a file that has become shorter is killed by the kernel.
"""

from __future__ import annotations

import os
import weakref

from xttsbench.xtts.audio.features import FeatureSettings
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.npy_cache import CacheFileError, unreadable
from xttsbench.xtts.data.packed import check_packed
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.loaders.numpy_batches import Fill, Floats
from xttsbench.xtts.loaders.planned import Ints, Planned


def loader(planned: Planned, data: SpeechData, cache: FeatureCache, features: FeatureSettings) -> Fill:
    """Return what fills a batch with features.

    Raises:
        CacheFileError: the packed file is gone or not what the cache's index says.
    """
    path, frame_bytes = cache.packed, 4 * planned.n_mels
    # Checked first: the file that is opened is this one, or what a renewed cache put in its place, which has all rows.
    first_byte = check_packed(path, cache.packed_rows, planned.n_mels)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(path, error) from error

    def fill(array: Floats, clips: Ints, firsts: Ints, counts: Ints) -> None:
        memory, row_bytes = array.data.cast("B"), array.strides[0]
        places = (first_byte + (cache.offsets[clips] + firsts) * frame_bytes).tolist()
        for row, (place, size) in enumerate(zip(places, (counts * frame_bytes).tolist(), strict=True)):
            wanted = memory[row * row_bytes : row * row_bytes + size]
            got = os.preadv(descriptor, [wanted], place)
            while got < size:  # the end of the file, unless its file system gives less than was asked for
                more = os.preadv(descriptor, [wanted[got:]], place + got)
                if not more:
                    what = f"ends in the clip {data.id(int(clips[row]))!r}: it was cut short while it was read"
                    raise CacheFileError(path, what)
                got += more

    weakref.finalize(fill, os.close, descriptor)
    return fill
