"""The torch DataLoader as one who tunes it would set it up; runs in an environment of its own.

Variant: ``unit`` is what a dataset's item is. ``clip``: the usual way, an item is a clip, and the collate function
copies into one padded tensor (made in shared memory in a worker, as torch's own collate function does it). ``batch``:
an item is a whole batch (``batch_size=None``), which reads into the padded tensor itself. ``reader``: ``load``,
``mmap`` (``np.load`` with ``mmap_mode``) or ``readinto`` (hand-made, with ``batch`` alone). ``workers`` and
``prefetch_factor`` are the DataLoader's; workers are persistent; memory is not pinned, as there is no device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import contest
import torch
from manifest import Manifest, element
from readers import READERS, FileRows, fill
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info

Index = tuple[int, int]  # batch and row


def empty(shape: tuple[int, ...]) -> torch.Tensor:
    """An uninitialised tensor, in shared memory where a worker makes it."""
    if get_worker_info() is None:
        return torch.empty(shape)
    size = 1
    for edge in shape:
        size *= edge
    return torch.empty(0).set_(torch.UntypedStorage._new_shared(4 * size), 0, shape)


class Forever(Sampler[Any]):
    """The same items again and again: an epoch's end, where workers run dry, never comes."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self._items


class Clips(Dataset[Any]):
    """An item is a clip with its reference."""

    def __init__(self, manifest: Manifest, reader: str) -> None:
        self._manifest, self._read = manifest, READERS[reader](manifest)

    def __getitem__(self, index: Index) -> Any:
        batch, row = index
        manifest = self._manifest
        place = int(manifest.batch_starts[batch]) + row
        start = int(manifest.reference_starts[place])
        reference = self._read(int(manifest.references[place]))[start : start + manifest.reference_frames]
        return batch, self._read(int(manifest.clips[place])), reference

    def collate(self, items: list[Any]) -> dict[str, torch.Tensor]:
        """Copy the clips of a batch into one padded tensor each."""
        manifest, batch = self._manifest, items[0][0]
        mel = empty((len(items), int(manifest.frames[batch]), manifest.n_mels))
        reference = empty((len(items), manifest.reference_frames, manifest.n_mels))
        mels, references = mel.numpy(), reference.numpy()
        for row, (_, found, voice) in enumerate(items):
            mels[row, : len(found)] = found
            mels[row, len(found) :] = manifest.pad
            references[row, : len(voice)] = voice
            references[row, len(voice) :] = manifest.pad
        small = {name: torch.from_numpy(array) for name, array in manifest.small(batch).items()}
        return {"mel": mel, "reference": reference, **small}


class Whole(Dataset[Any]):
    """An item is a batch."""

    def __init__(self, manifest: Manifest, reader: str) -> None:
        self._manifest = manifest
        self._rows = FileRows(manifest) if reader == "readinto" else None
        self._read = None if self._rows else READERS[reader](manifest)

    def __getitem__(self, batch: int) -> dict[str, torch.Tensor]:
        manifest = self._manifest
        tensors: list[torch.Tensor] = []

        def array(shape: tuple[int, ...]) -> Any:
            tensors.append(empty(shape))
            return tensors[-1].numpy()

        if self._read:
            element(manifest, batch, self._read, array)
        else:
            clips = manifest.members(batch)
            mel = array((clips.stop - clips.start, int(manifest.frames[batch]), manifest.n_mels))
            fill(manifest, batch, self._rows, mel, array((len(mel), manifest.reference_frames, manifest.n_mels)))
        small = {name: torch.from_numpy(values) for name, values in manifest.small(batch).items()}
        return {"mel": tensors[0], "reference": tensors[1], **small}


def batches(manifest: Manifest, variant: dict[str, Any]) -> Iterator[dict[str, torch.Tensor]]:
    """The DataLoader's iterator."""
    workers = variant["workers"]
    settings: dict[str, Any] = {"num_workers": workers, "pin_memory": False}
    if workers:
        settings |= {"persistent_workers": True, "prefetch_factor": variant["prefetch_factor"]}
    if variant["unit"] == "batch":
        whole = Whole(manifest, variant["reader"])
        return iter(DataLoader(whole, batch_size=None, sampler=Forever(list(range(len(manifest)))), **settings))
    clips = Clips(manifest, variant["reader"])
    sizes = (manifest.batch_starts[1:] - manifest.batch_starts[:-1]).tolist()
    rows = [[(batch, row) for row in range(size)] for batch, size in enumerate(sizes)]
    return iter(DataLoader(clips, batch_sampler=Forever(rows), collate_fn=clips.collate, **settings))


if __name__ == "__main__":
    contest.main(batches, lambda tensor: tensor.numpy())
