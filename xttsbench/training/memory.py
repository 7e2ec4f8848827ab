"""How many tokens of a batch fit into memory, from the peaks of a few steps that were measured. Pure.

What a step needs of a bucket is a constant and so much for each mel frame (token): a line. Across buckets of as many
tokens, the need for each token is ``a + b F + c / F`` with ``F`` frames of a clip: attention grows with the length of
a clip, and what each clip has of its own, text and reference, with how many there are. That is convex in ``F``, so the
shortest and the longest bucket need most, and what fits both of them fits all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.data.batches import Batch

SMALLER: Final = "take a smaller recipe, training.gradient_checkpointing, or shorter edges"
"""What helps where a single clip is too much."""


class Bucket(NamedTuple):
    """What the batches of a bucket are padded to."""

    frames: int
    characters: int
    reference_frames: int

    def rows(self, tokens: int) -> int:
        """Return how many clips a batch of so many tokens holds, as ``BatchSettings.rows`` has it: one at least."""
        return max(1, tokens // self.frames)


class Peak(NamedTuple):
    """The most memory that a step of a batch took."""

    tokens: int
    """Mel frames of the batch, padding included."""
    bytes: int


class Line(NamedTuple):
    """An upper bound of the peaks of a bucket."""

    base_bytes: float
    bytes_per_token: float

    def at(self, tokens: int) -> float:
        """Return the peak that is expected of a batch, in bytes."""
        return self.base_bytes + self.bytes_per_token * tokens


def ends(batches: Iterable[Batch]) -> tuple[Bucket, ...]:
    """Return the shortest and the longest bucket of some planned batches; one where there is no other."""
    buckets = sorted({Bucket(batch.frames, batch.characters, batch.reference_frames) for batch in batches})
    return tuple(dict.fromkeys((buckets[0], buckets[-1])))


def upper_line(peaks: Sequence[Peak]) -> Line:
    """Return the least-squares line through peaks, raised until none lies above it.

    The peaks are of at least two numbers of tokens.
    """
    tokens, needed = (np.array(column, np.float64) for column in zip(*peaks, strict=True))
    centred = tokens - tokens.mean()
    # More tokens never need less: where the peaks say so, what they show is noise.
    slope = max(0.0, float(centred @ needed) / float(centred @ centred))
    return Line(float((needed - slope * tokens).max()), slope)


def most_tokens(lines: Mapping[Bucket, Line], limit_bytes: float, at_most: int) -> int:
    """Return the largest number of tokens whose batches stay within a limit in all buckets.

    Raises:
        InvalidInputError: a single clip of a bucket is expected to need more.
    """
    tokens = at_most
    for bucket, line in lines.items():
        if (alone := line.at(bucket.frames)) > limit_bytes:
            raise InvalidInputError(
                f"a batch of a single clip of {bucket.frames} mel frames needs some {alone / 2**20:.0f} MiB, and "
                f"{limit_bytes / 2**20:.0f} MiB are free for it; {SMALLER}"
            )
        if line.bytes_per_token:
            # One clip fits, so a budget below it is as good: the bucket holds one clip all the same.
            tokens = min(tokens, max(bucket.frames, int((limit_bytes - line.base_bytes) / line.bytes_per_token)))
    return tokens
