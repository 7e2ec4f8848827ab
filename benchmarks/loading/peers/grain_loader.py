"""Grain as one who tunes it would set it up; runs in an environment of its own.

Variant: ``api`` is ``dataset`` (``MapDataset``) or ``loader`` (``DataLoader``). ``unit``: with ``clip`` an element is a
clip, and ``batch`` copies into one padded array; with ``batch`` an element is a whole batch, which reads into the
padded array itself. Where workers make the arrays, they make them in grain's shared memory. ``reader``: ``load``,
``mmap`` (``np.load`` with ``mmap_mode``) or ``readinto`` (hand-made, with ``batch`` alone). ``threads`` and ``buffer``
are the ``ReadOptions``, ``workers`` the processes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import contest
import grain.python as grain
import numpy as np
from manifest import Floats, Manifest, element, np_empty
from readers import READERS, FileRows, fill


def shared_empty(shape: tuple[int, ...]) -> Floats:
    """An uninitialised array in grain's shared memory."""
    return grain.SharedMemoryArray(shape, dtype=np.dtype(np.float32))


class Whole(grain.MapTransform):
    """From a batch's number to the batch."""

    def __init__(self, manifest: Manifest, reader: str, empty: Callable[..., Floats]) -> None:
        self._manifest, self._reader, self._empty = manifest, reader, empty
        self._read: Any = None

    def map(self, batch: int) -> dict[str, Any]:
        manifest = self._manifest
        if self._read is None:  # made in the process that uses it
            self._read = FileRows(manifest) if self._reader == "readinto" else READERS[self._reader](manifest)
        if self._reader != "readinto":
            return element(manifest, batch, self._read, self._empty)
        members = manifest.members(batch)
        mel = self._empty((members.stop - members.start, int(manifest.frames[batch]), manifest.n_mels))
        reference = self._empty((len(mel), manifest.reference_frames, manifest.n_mels))
        fill(manifest, batch, self._read, mel, reference)
        return {"mel": mel, "reference": reference, **manifest.small(batch)}


class Clip(grain.MapTransform):
    """From a clip's place among the batches to its mel and its reference."""

    def __init__(self, manifest: Manifest, reader: str) -> None:
        self._manifest, self._reader = manifest, reader
        self._read: Any = None

    def map(self, place: int) -> Any:
        manifest = self._manifest
        if self._read is None:
            self._read = READERS[self._reader](manifest)
        start = int(manifest.reference_starts[place])
        reference = self._read(int(manifest.references[place]))[start : start + manifest.reference_frames]
        return place, self._read(int(manifest.clips[place])), reference


class Collate:
    """Copies the clips of a batch into one padded array each."""

    def __init__(self, manifest: Manifest, empty: Callable[..., Floats]) -> None:
        self._manifest, self._empty = manifest, empty

    def __call__(self, items: Sequence[Any]) -> dict[str, Any]:
        manifest = self._manifest
        batch = int(np.searchsorted(manifest.batch_starts, items[0][0], side="right")) - 1
        mel = self._empty((len(items), int(manifest.frames[batch]), manifest.n_mels))
        reference = self._empty((len(items), manifest.reference_frames, manifest.n_mels))
        for row, (_, found, voice) in enumerate(items):
            mel[row, : len(found)] = found
            mel[row, len(found) :] = manifest.pad
            reference[row, : len(voice)] = voice
            reference[row, len(voice) :] = manifest.pad
        return {"mel": mel, "reference": reference, **manifest.small(batch)}


class Forever(grain.Sampler):
    """The batches' numbers again and again."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __getitem__(self, index: int) -> Any:
        return grain.RecordMetadata(index=index, record_key=index % self._count)


def batches(manifest: Manifest, variant: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Grain's iterator."""
    workers, unit = variant["workers"], variant["unit"]
    empty = shared_empty if workers else np_empty
    read_options = grain.ReadOptions(num_threads=variant["threads"], prefetch_buffer_size=variant["buffer"])
    if variant["api"] == "loader":
        loader = grain.DataLoader(
            data_source=grain.RangeDataSource(0, len(manifest), 1),
            sampler=Forever(len(manifest)),
            operations=[Whole(manifest, variant["reader"], empty)],
            shard_options=grain.NoSharding(),
            worker_count=workers,
            worker_buffer_size=2,
            read_options=read_options,
        )
        return iter(loader)
    if unit == "batch":
        dataset = grain.MapDataset.range(len(manifest)).map(Whole(manifest, variant["reader"], empty))
    else:
        sizes = set((manifest.batch_starts[1:] - manifest.batch_starts[:-1]).tolist())
        if len(sizes) > 1:
            raise ValueError(f"grain's batch() makes batches of one size, got sizes {sorted(sizes)}")
        clips = grain.MapDataset.range(manifest.samples).map(Clip(manifest, variant["reader"]))
        dataset = clips.batch(sizes.pop(), batch_fn=Collate(manifest, empty))
    iterable = dataset.repeat().to_iter_dataset(read_options)
    if workers:
        iterable = iterable.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=2))
    return iter(iterable)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    contest.main(batches)
