"""Ways to a clip's mel in plain Python, for the peers and for readinto itself; each has NumPy alone below it."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import numpy.lib.format as npy
from manifest import Floats, Manifest, Read


def np_load(manifest: Manifest) -> Read:
    """``np.load``: the whole file into an array."""
    files = manifest.files.tolist()
    return lambda clip: np.load(files[clip])


def np_load_mmap(manifest: Manifest) -> Read:
    """``np.load`` with ``mmap_mode``: pages are read when they are copied into the batch."""
    files = manifest.files.tolist()
    return lambda clip: np.load(files[clip], mmap_mode="r")


READERS: dict[str, Callable[[Manifest], Read]] = {"load": np_load, "mmap": np_load_mmap}


def data_start(path: str) -> int:
    """Where the data of a ``.npy`` file begin, in bytes."""
    with open(path, "rb") as file:
        version = npy.read_magic(file)
        header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        _, fortran, dtype = header(file)
        if fortran or dtype != np.float32:
            raise ValueError(f"{path}: expected float32 in C order, got {dtype}, Fortran order {fortran}")
        return file.tell()


class FileRows:
    """``readinto`` over one file per clip: opened, read straight into the batch's array, closed."""

    def __init__(self, manifest: Manifest) -> None:
        self._files = manifest.files.tolist()
        # All headers have the same size: a fixed number of digits, padded to 64 bytes. Read once each all the same.
        self._starts = [data_start(file) for file in self._files]
        self._row_bytes = 4 * manifest.n_mels

    def read(self, clip: int, first: int, out: Floats) -> None:
        """Read ``len(out)`` rows from the clip's row ``first`` on."""
        with open(self._files[clip], "rb", buffering=0) as file:
            file.seek(self._starts[clip] + first * self._row_bytes)
            _whole(file.readinto(out.data.cast("B")), out)


class PackedRows:
    """Reads from the packed file, open all the time, straight into the batch's array."""

    def __init__(self, manifest: Manifest) -> None:
        path = str(manifest.packed[0])
        self._start = data_start(path)
        self._file = os.open(path, os.O_RDONLY)
        self._rows = manifest.packed_rows.tolist()
        self._row_bytes = 4 * manifest.n_mels

    def read(self, clip: int, first: int, out: Floats) -> None:
        """Read ``len(out)`` rows from the clip's row ``first`` on."""
        offset = self._start + (self._rows[clip] + first) * self._row_bytes
        _whole(os.preadv(self._file, [out.data.cast("B")], offset), out)


def _whole(count: int | None, out: Floats) -> None:
    if count != out.nbytes:
        raise ValueError(f"{out.nbytes} bytes were to be read, got {count}")


def fill(manifest: Manifest, batch: int, rows: FileRows | PackedRows, mel: Floats, reference: Floats) -> None:
    """Read a batch's mels and references into padded arrays; nothing is copied after the read."""
    members, lengths = manifest.members(batch), manifest.mel_lengths
    for row, clip in enumerate(manifest.clips[members].tolist()):
        length = int(lengths[clip])
        rows.read(clip, 0, mel[row, :length])
        mel[row, length:] = manifest.pad
    starts = manifest.reference_starts[members].tolist()
    for row, (clip, start) in enumerate(zip(manifest.references[members].tolist(), starts, strict=True)):
        length = min(int(lengths[clip]) - start, manifest.reference_frames)
        rows.read(clip, start, reference[row, :length])
        reference[row, length:] = manifest.pad
