"""Which samples a run consumed and of which data set, as hashes: small enough for a checkpoint, and exact."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from xttsbench.xtts.data.speech_data import SpeechData

NONE: Final = hashlib.sha256().hexdigest()
"""The running hash before the first sample."""


def consumed(before: str, ids: Sequence[str]) -> str:
    """Return the running hash after a batch: of the one before it, and the ids of the batch's clips in their order.

    An id is the name of a file, so that no two sequences of ids read the same with a zero byte between them.
    """
    return hashlib.sha256("\0".join((before, *ids)).encode()).hexdigest()


def data_sha256(data: SpeechData) -> str:
    """Return the hash of a data set's ids, texts, speakers and lengths, which decide its batches; not of its sound."""
    sha = hashlib.sha256()
    for clip in range(len(data)):
        sha.update(f"{data.id(clip)}\0{data.text(clip)}\0".encode())
    for column in (data.samples, data.speakers):
        sha.update(column.tobytes())
    return sha.hexdigest()
