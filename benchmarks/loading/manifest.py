"""What every contestant reads, its own process and its own environment notwithstanding: clips, texts and batches.

One ``.npz`` file, since each side has NumPy and nothing else in common. The feature files are named in it; the packed
file beside them holds the same rows. :func:`element` is the plainest way to a batch, and the truth of the check.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Read = Callable[[int], Floats]  # a clip's number to its mel, `[frames, n_mels]`


@dataclass(frozen=True)
class Manifest:
    """``n`` clips, and batches of them; a batch's clips are ``clips[batch_starts[k] : batch_starts[k + 1]]``."""

    files: npt.NDArray[np.str_]  # `[n]`: the `.npy` file of each clip
    mel_lengths: Ints
    text_ids: Ints  # all texts, one after the other
    text_starts: npt.NDArray[np.int64]
    packed: npt.NDArray[np.str_]  # `[1]`: the file with the mels of all clips
    packed_rows: npt.NDArray[np.int64]  # `[n]`: first row of each clip in it
    batch_starts: npt.NDArray[np.int64]
    clips: Ints
    references: Ints
    reference_starts: Ints  # first frame of the reference in its clip
    frames: Ints  # of each batch: padded mel frames
    characters: Ints  # of each batch: padded characters
    reference_frames: int
    n_mels: int
    pad: float  # the logarithm of the floor

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.frames)

    @property
    def samples(self) -> int:
        """Clips in one pass over the batches."""
        return len(self.clips)

    def members(self, batch: int) -> slice:
        """Return where a batch's clips are."""
        return slice(int(self.batch_starts[batch]), int(self.batch_starts[batch + 1]))

    def text(self, clip: int) -> Ints:
        """Return a clip's character ids."""
        return self.text_ids[self.text_starts[clip] : self.text_starts[clip + 1]]

    def small(self, batch: int) -> dict[str, Ints]:
        """Return all of a batch but its mels."""
        members = self.members(batch)
        clips, references = self.clips[members], self.references[members]
        text = np.zeros((len(clips), self.characters[batch]), np.int32)
        for row, clip in enumerate(clips):
            ids = self.text(clip)
            text[row, : len(ids)] = ids
        return {
            "id": clips,
            "text": text,
            "text_length": (self.text_starts[clips + 1] - self.text_starts[clips]).astype(np.int32),
            "mel_length": self.mel_lengths[clips],
            "reference_start": np.where(references == clips, self.reference_starts[members], np.int32(-1)),
        }

    def save(self, path: Path) -> None:
        """Write the file."""
        np.savez(path, **{field.name: getattr(self, field.name) for field in fields(self)})


def load(path: str | Path) -> Manifest:
    """Read the file back."""
    with np.load(path, allow_pickle=False) as arrays:
        values: dict[str, Any] = {name: arrays[name] for name in arrays.files}
    for name, kind in (("reference_frames", int), ("n_mels", int), ("pad", float)):
        values[name] = kind(values[name])
    return Manifest(**values)


def np_empty(shape: tuple[int, ...]) -> Floats:
    """Return an uninitialised float32 array."""
    return np.empty(shape, np.float32)


def element(manifest: Manifest, batch: int, read: Read, empty: Callable[..., Any] = np_empty) -> dict[str, Any]:
    """Return a batch: mels go from ``read`` straight into one padded array, and so do the references.

    ``empty`` makes an uninitialised float32 array of a shape that NumPy can write to.
    """
    members = manifest.members(batch)
    clips = manifest.clips[members]
    mel = empty((len(clips), int(manifest.frames[batch]), manifest.n_mels))
    reference = empty((len(clips), manifest.reference_frames, manifest.n_mels))
    fill(manifest, batch, read, mel, reference)
    return {"mel": mel, "reference": reference, **manifest.small(batch)}


def fill(manifest: Manifest, batch: int, read: Read, mel: Floats, reference: Floats) -> None:
    """Write a batch's mels and references into arrays that are there."""
    members = manifest.members(batch)
    for row, clip in enumerate(manifest.clips[members]):
        found = read(int(clip))
        mel[row, : len(found)] = found
        mel[row, len(found) :] = manifest.pad
    starts = manifest.reference_starts[members]
    for row, (clip, start) in enumerate(zip(manifest.references[members], starts, strict=True)):
        found = read(int(clip))[start : start + manifest.reference_frames]
        reference[row, : len(found)] = found
        reference[row, len(found) :] = manifest.pad
