"""The loader ``packed`` over shards gives the batches of the files, and its errors reach whoever takes a batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xttsbench.errors import InvalidInputError
from xttsbench.shipped import shipped
from xttsbench.training.course import planned_epoch
from xttsbench.xtts.data.feature_cache import open_cache
from xttsbench.xtts.data.make import make_data
from xttsbench.xtts.data.precompute import make_cache
from xttsbench.xtts.data.shards import attach, make_shards
from xttsbench.xtts.data.speech_data import read_speech_data
from xttsbench.xtts.loaders import LOADERS
from xttsbench.xtts.loaders.loader import explained, make_dataset
from xttsbench.xtts.recipe import load_recipe

TINY = load_recipe(shipped("training", "tiny"))


def test_batches_of_shards_are_those_of_the_files(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    make_data(tmp_path / "speech", 16, seed=2, min_s=0.3, max_s=0.8)
    data = read_speech_data(tmp_path / "speech", sample_rate_hz=22050, split="all")
    cache = make_cache(data, TINY.features, tmp_path / "cache").cache
    make_shards(data, cache, tmp_path / "shards", shard_bytes=2**17)
    attach(f"file://{tmp_path / 'shards'}", tmp_path / "attached", in_flight=4)
    batches = planned_epoch(data, TINY, TINY.batches.model_copy(update={"batch_size": 3}), 0, 0)
    expected = list(make_dataset("packed", data, cache, batches, TINY.features, repeat=False))
    for directory in (tmp_path / "shards", tmp_path / "attached"):
        theirs = read_speech_data(directory, sample_rate_hz=22050, split="all")
        opened = open_cache(theirs, TINY.features)
        found = list(make_dataset("packed", theirs, opened, batches, TINY.features, repeat=False, workers=2))
        assert len(found) == len(expected) == len(batches)
        for one, other in zip(found, expected, strict=True):
            assert all(np.array_equal(one[key], other[key]) for key in other)
        for name in set(LOADERS) - {"packed"}:
            with pytest.raises(InvalidInputError, match=f"the loader {name} reads a file for each clip; take the"):
                make_dataset(name, theirs, opened, batches, TINY.features)
    (tmp_path / "shards" / "shard-00000.npy").unlink()
    with pytest.raises(InvalidInputError, match=r"shard-00000\.npy cannot be read"), explained():
        list(make_dataset("packed", theirs, opened, batches, TINY.features, repeat=False))
