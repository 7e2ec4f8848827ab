"""Plain ``readinto``: what the machine gives to one thread of Python that has nothing above it.

Variants: ``files`` reads the ``.npy`` files, ``packed`` the packed one; ``reused`` writes every batch over the one
before it, so that no page is new (no loader can do that: a batch belongs to who asked for it).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import contest
from manifest import Manifest, np_empty
from readers import FileRows, PackedRows, fill


def batches(manifest: Manifest, variant: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every batch, again and again."""
    rows = FileRows(manifest) if variant["from"] == "files" else PackedRows(manifest)
    largest = int(max(manifest.batch_starts[1:] - manifest.batch_starts[:-1]))
    buffer = np_empty((largest * int(manifest.frames.max()) * manifest.n_mels,))
    references = np_empty((largest, manifest.reference_frames, manifest.n_mels))
    while True:
        for batch in range(len(manifest)):
            small = manifest.small(batch)
            shape = (len(small["id"]), int(manifest.frames[batch]), manifest.n_mels)
            if variant["reused"]:
                mel = buffer[: shape[0] * shape[1] * shape[2]].reshape(shape)
                reference = references[: shape[0]]
            else:
                mel, reference = np_empty(shape), np_empty((shape[0], *references.shape[1:]))
            fill(manifest, batch, rows, mel, reference)
            yield {"mel": mel, "reference": reference, **small}


if __name__ == "__main__":
    contest.main(batches)
