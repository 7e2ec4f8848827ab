"""The project's loaders with their default settings; the batches are those of the manifest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import contest
from manifest import Manifest
from workload import features, speech_data

from xttsbench.xtts.data.batches import Batch
from xttsbench.xtts.data.feature_cache import open_cache
from xttsbench.xtts.loaders.loader import make_dataset


def plan(manifest: Manifest) -> list[Batch]:
    """Return the manifest's batches as the loaders take them."""
    return [
        Batch(
            manifest.clips[members],
            manifest.references[members],
            manifest.reference_starts[members],
            int(manifest.frames[number]),
            int(manifest.characters[number]),
            manifest.reference_frames,
        )
        for number in range(len(manifest))
        for members in (manifest.members(number),)
    ]


def batches(manifest: Manifest, variant: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The dataset's iterator."""
    data = speech_data(Path(variant["data"]))
    cache = None if variant["loader"].endswith("_wav") else open_cache(data, features())
    return iter(make_dataset(variant["loader"], data, cache, plan(manifest), features(), repeat=True))


if __name__ == "__main__":
    contest.main(batches, lambda tensor: tensor.numpy())
