"""Caches are filled before anything is measured: training goes on for epochs, and the first one is not the rest."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

import tensorflow as tf

from xttsbench.pipeline.source import walk
from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import Loaded
from xttsbench.worker.bench import Bench

_WINDOWS: Final = 1.5
"""Windows of the trial that filling may take."""


def fill_caches(spec: TrialSpec, loaded: Loaded, bench: Bench) -> None:
    """Draw one epoch of a dataset that has a cache, where that is possible in time; what was done is told."""
    caches = [one for one in walk(loaded.dataset) if type(one).__name__ == "CacheDataset"]
    sizes = [int(cache._input_dataset.cardinality().numpy()) for cache in caches]
    if not caches or tf.data.INFINITE_CARDINALITY in sizes:
        return  # a cache that is never full is a finding
    bench.channel.phase("filling caches")
    began = time.perf_counter()
    full = _fill(loaded.dataset, caches, sizes, began + _WINDOWS * spec.window_s)
    bench.channel.part("cache_filled", full)
    took = f"{time.perf_counter() - began:.1f} s"
    bench.channel.note(
        f"the cache was filled before the steps were measured, which took {took}: this is told of the epochs after that"
        if full
        else f"the cache was not full after {took}: what was measured is the first epoch, and others are quicker"
    )


def _fill(dataset: Any, caches: Iterable[Any], sizes: list[int], deadline: float) -> bool:
    """Whether one pass of every cache was drawn: the dataset ended, or gave as many elements as the caches take."""
    wanted = max(sizes) if tf.data.UNKNOWN_CARDINALITY not in sizes else None
    of_batches = any("Batch" in type(one).__name__ for cache in caches for one in walk(cache._input_dataset))
    drawn = 0
    for batch in dataset:
        drawn += 1 if of_batches else _samples(batch)
        # One more than it holds: the pass is over when the next element is asked for.
        if wanted is not None and drawn > wanted:
            return True
        if time.perf_counter() > deadline:
            return False
    return True


def _samples(batch: Any) -> int:
    shapes = [tensor.shape for tensor in tf.nest.flatten(batch, expand_composites=True)]
    return next((int(shape[0]) for shape in shapes if shape.rank), 1)
