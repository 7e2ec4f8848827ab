"""Planned batches as columns, end to end, with what loaders need to know of the clips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from xttsbench.xtts.data.batches import COLUMNS, Batch, Ints
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.features import FeatureSettings

_ENCODED: Final[WeakKeyDictionary[SpeechData, Texts]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False, slots=True)
class Texts:
    """The encoded texts of a data set in one buffer."""

    ids: npt.NDArray[np.uint8]
    """The ids of all texts, one after the other; with a 0 at the end, so that no place is out of range."""
    starts: npt.NDArray[np.int64]
    """``[n]`` where each begins."""
    lengths: Ints
    """``[n]``"""

    def padded(self, clips: Ints, characters: int) -> Ints:
        """Return the texts of some clips, ``[len(clips), characters]``, with 0 after each."""
        place = np.arange(characters)
        inside = place < self.lengths[clips, None]
        return np.where(inside, self.ids[np.where(inside, self.starts[clips, None] + place, 0)], 0).astype(np.int32)


@dataclass(frozen=True, eq=False, slots=True)
class Planned:
    """Planned batches, end to end, and what is known of the clips of their data set."""

    clips: Ints
    """``[rows]`` of all batches."""
    references: Ints
    reference_starts: Ints
    bounds: npt.NDArray[np.int64]
    """``[batches + 1]`` first row of each batch."""
    frames: Ints
    """``[batches]`` that mels are padded to."""
    characters: Ints
    """``[batches]`` that texts are padded to."""
    reference_frames: int
    lengths: Ints
    """``[n]`` mel frames of each clip of the data set."""
    texts: Texts
    n_mels: int
    floor: np.float32
    """Padding of mels: the logarithm of the features' floor."""

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def sizes(self) -> list[int]:
        """The distinct numbers of rows that batches have, rising."""
        return [int(size) for size in np.unique(np.diff(self.bounds))]

    def shapes(self, number: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Return the shapes of a batch's mels and of its references, both ``[rows, frames, n_mels]``."""
        rows = int(self.bounds[number + 1] - self.bounds[number])
        return (rows, int(self.frames[number]), self.n_mels), (rows, self.reference_frames, self.n_mels)

    def most_elements(self) -> tuple[int, int]:
        """Return how many numbers the largest mels and the largest references of a batch have."""
        rows = np.diff(self.bounds)
        return int((rows * self.frames).max()) * self.n_mels, int(rows.max()) * self.reference_frames * self.n_mels


def planned(data: SpeechData, batches: Sequence[Batch], features: FeatureSettings) -> Planned:
    """Gather batches that were planned for the data into columns."""
    clips, references, reference_starts = (
        np.concatenate([getattr(batch, column) for batch in batches]).astype(np.int32, copy=False) for column in COLUMNS
    )
    sizes = np.fromiter((len(batch.clips) for batch in batches), np.int64, len(batches))
    frames, characters = (
        np.fromiter((getattr(batch, column) for batch in batches), np.int32, len(batches))
        for column in ("frames", "characters")
    )
    return Planned(
        clips,
        references,
        reference_starts,
        np.concatenate(([0], np.cumsum(sizes))),
        frames,
        characters,
        batches[0].reference_frames,
        (data.samples // features.hop_samples).astype(np.int32),
        _texts(data),
        features.n_mels,
        np.log(np.float32(features.log_floor)),
    )


def _texts(data: SpeechData) -> Texts:
    """Return the encoded texts of a data set, encoded once for all of its datasets in this process."""
    if data.sharded is not None:
        ends = np.cumsum(data.metadata.text_lengths, dtype=np.int64)
        return Texts(data.sharded.column("text_ids"), ends[data.rows] - data.text_lengths, data.text_lengths)
    if data not in _ENCODED:
        ids = bytearray()
        starts = np.empty(len(data), np.int64)
        for clip in range(len(data)):
            starts[clip] = len(ids)
            ids += data.text_ids(clip).astype(np.uint8).tobytes()
        lengths = np.diff(starts, append=len(ids)).astype(np.int32)
        ids.append(0)
        _ENCODED[data] = Texts(np.frombuffer(ids, np.uint8), starts, lengths)
    return _ENCODED[data]
