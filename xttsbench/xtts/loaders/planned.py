"""What all loaders know about the planned batches and their clips: columns of numbers, and no object per clip.

A loader is asked for a batch by number and looks everything else up here, so that a pipeline carries nothing but
numbers of batches, and the graph of a dataset stays small: some bytes a clip, and no features. Never imports
TensorFlow, so that processes that make batches start fast and stay small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.audio.features import FeatureSettings
from xttsbench.xtts.data.batches import Batch
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.text import VOCABULARY

Ints = npt.NDArray[np.int32]
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
    """What mels are padded with: the logarithm of the features' floor."""

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
    """Gather planned batches into columns, after checking that they fit the data.

    Raises:
        InvalidInputError: there is no batch, or the batches were planned for other data or other settings.
    """
    if not batches:
        raise InvalidInputError("no batch was planned; plan some, of more clips or smaller batches")
    clips, references, reference_starts = (
        np.concatenate([getattr(batch, column) for batch in batches]).astype(np.int32, copy=False)
        for column in ("clips", "references", "reference_starts")
    )
    sizes = np.fromiter((len(batch.clips) for batch in batches), np.int64, len(batches))
    frames, characters, reference_frames = (
        np.fromiter((getattr(batch, column) for batch in batches), np.int32, len(batches))
        for column in ("frames", "characters", "reference_frames")
    )
    named = np.concatenate((clips, references))
    if named.min() < 0 or named.max() >= len(data):
        raise InvalidInputError(
            f"the batches name the clips {named.min()} to {named.max()}, and {data.directory} has {len(data)}; "
            "plan them for this data set"
        )
    lengths = (data.samples // features.hop_samples).astype(np.int32)
    misfits = np.flatnonzero(
        (lengths[clips] > np.repeat(frames, sizes)) | (data.text_lengths[clips] > np.repeat(characters, sizes))
    )
    outside = np.flatnonzero((reference_starts < 0) | (reference_starts >= lengths[references]))
    if len(misfits) or len(outside):
        clip = int(clips[misfits[0]] if len(misfits) else references[outside[0]])
        raise InvalidInputError(
            f"the clip {data.id(clip)!r} has {lengths[clip]} mel frames and {data.text_lengths[clip]} characters, "
            "which do not fit the batch planned for it; plan the batches for this data set and these features"
        )
    if (reference_frames != reference_frames[0]).any():
        raise InvalidInputError(
            f"batches have references of {np.unique(reference_frames).tolist()} frames; plan them with one length"
        )
    return Planned(
        clips,
        references,
        reference_starts,
        np.concatenate(([0], np.cumsum(sizes))),
        frames,
        characters,
        int(reference_frames[0]),
        lengths,
        _texts(data),
        features.n_mels,
        np.log(np.float32(features.log_floor)),
    )


def _texts(data: SpeechData) -> Texts:
    """Return the encoded texts of a data set, encoded once for all of its datasets in this process."""
    if data not in _ENCODED:
        if VOCABULARY > 256:
            raise ValueError(f"ids of {VOCABULARY} symbols do not fit a byte")
        ids = bytearray()
        starts = np.empty(len(data), np.int64)
        for clip in range(len(data)):
            starts[clip] = len(ids)
            ids += data.text_ids(clip).astype(np.uint8).tobytes()
        lengths = np.diff(starts, append=len(ids)).astype(np.int32)
        ids.append(0)
        _ENCODED[data] = Texts(np.frombuffer(ids, np.uint8), starts, lengths)
    return _ENCODED[data]
