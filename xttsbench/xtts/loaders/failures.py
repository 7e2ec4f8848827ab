"""What a loader found wrong, out of TensorFlow's report that an element could not be made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import tensorflow as tf

from xttsbench.errors import InvalidInputError, XttsbenchError

# The three ways in which a loader's sentence comes: from Python, from an assertion among the ops, and from `ReadFile`,
# which names the file and nothing more.
_RAISED: Final = re.compile(r"(CacheFileError|WavError|InvalidInputError|XttsbenchError): (.*?)\nTraceback", re.DOTALL)
_ASSERTED: Final = re.compile(r"assertion failed: \[(.*?)\]\n", re.DOTALL)
_UNREADABLE: Final = re.compile(r": ([^:\n]*\.(npy|wav)); (.*?)(?:\n|$)")
_REMEDIES: Final = {"npy": "run 'xttsbench data precompute'", "wav": "put the file back, or take its line out"}


@contextmanager
def explained() -> Iterator[None]:
    """Say what a loader found wrong in its own sentence; to be held where batches are taken from a loader's dataset.

    Raises:
        InvalidInputError: a clip or a feature cache cannot be read any more; its text names the file and what to do.
        XttsbenchError: a process that makes batches died, for which the data cannot be blamed.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if (sentence := _sentence(error.message)) is None:
            raise
        raise sentence from error


def _sentence(message: str) -> XttsbenchError | None:
    if found := _RAISED.search(message):
        return (XttsbenchError if found[1] == "XttsbenchError" else InvalidInputError)(found[2])
    if found := _ASSERTED.search(message):
        return InvalidInputError(found[1].replace("\\'", "'").replace('\\"', '"'))
    if found := _UNREADABLE.search(message):
        return InvalidInputError(f"{found[1]}: cannot be read ({found[3]}); {_REMEDIES[found[2]]}")
    return None
