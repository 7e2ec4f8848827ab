"""Which clips form a batch, and to how many frames it is padded: pure functions of the lengths and a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xttsbench.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Batch:
    """Clips of similar length, by number, and the common number of frames that they are padded to."""

    clips: tuple[int, ...]
    frames: int


def plan(lengths: Sequence[int], edges: Sequence[int], batch_size: int, seed: int) -> list[Batch]:
    """Return full batches by bucket, in a seeded order.

    Buckets with fixed edges keep the number of shapes small, since each may be traced and compiled. What does not fill
    a batch moves to the next longer bucket, so that fewer than ``batch_size`` clips are left out, all of the longest.

    Args:
        lengths: frames of each clip.
        edges: the buckets' edges in frames, rising; a clip fits where its length is at most the edge.
        batch_size: clips of a batch.
        seed: decides which clips share a batch, and the order of the batches.

    Raises:
        InvalidInputError: a clip is longer than the last edge, or there are fewer clips than a batch holds.
    """
    longest = max(lengths, default=0)
    if longest > edges[-1]:
        raise InvalidInputError(f"a clip of {longest} frames is longer than the last bucket, {edges[-1]} frames")
    if len(lengths) < batch_size:
        raise InvalidInputError(f"{len(lengths)} clips are fewer than one batch of {batch_size}; take a smaller batch")
    rng = np.random.default_rng(seed)
    bucket_of = np.searchsorted(np.asarray(edges), np.asarray(lengths), side="left")
    batches: list[Batch] = []
    left: list[int] = []
    for bucket, frames in enumerate(edges):
        own = rng.permutation(np.flatnonzero(bucket_of == bucket))
        waiting = [*left, *(int(clip) for clip in own)]
        full = len(waiting) - len(waiting) % batch_size
        batches += [Batch(tuple(waiting[i : i + batch_size]), frames) for i in range(0, full, batch_size)]
        left = waiting[full:]
    return [batches[i] for i in rng.permutation(len(batches))]
