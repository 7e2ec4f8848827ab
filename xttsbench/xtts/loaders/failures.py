"""What a loader found wrong, out of TensorFlow's report that an element could not be made."""

from __future__ import annotations

import re
from typing import Final

import tensorflow as tf

from xttsbench.errors import InvalidInputError, XttsbenchError

# The three ways in which a loader's sentence comes: from Python, from an assertion among the ops, and from `ReadFile`,
# which names the file and nothing more.
_RAISED: Final = re.compile(r"(CacheFileError|WavError|InvalidInputError|XttsbenchError): (.*?)\nTraceback", re.DOTALL)
_ASSERTED: Final = re.compile(r"assertion failed: \[(.*?)\]\n", re.DOTALL)
_UNREADABLE: Final = re.compile(r": ([^:\n]*\.(npy|wav)); (.*?)(?:\n|$)")
_REMEDIES: Final = {"npy": "run 'xttsbench data precompute'", "wav": "put the file back, or take its line out"}


def explained(error: tf.errors.OpError) -> XttsbenchError | None:
    """Return the loader's own sentence, which names the file and what to do; ``None`` where the error is another.

    It is an ``InvalidInputError``, unless a process that makes batches died, for which the data cannot be blamed. To be
    called where batches are taken from a dataset of :func:`xttsbench.xtts.loaders.loader.make_dataset`.
    """
    if found := _RAISED.search(error.message):
        return (XttsbenchError if found[1] == "XttsbenchError" else InvalidInputError)(found[2])
    if found := _ASSERTED.search(error.message):
        return InvalidInputError(found[1].replace("\\'", "'").replace('\\"', '"'))
    if found := _UNREADABLE.search(error.message):
        return InvalidInputError(f"{found[1]}: cannot be read ({found[3]}); {_REMEDIES[found[2]]}")
    return None
