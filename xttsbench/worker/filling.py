"""Caches are filled before anything is measured: training goes on for epochs, and the first one is not the rest."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

from xttsbench.pipeline.cut import Cut
from xttsbench.pipeline.read import read_graph
from xttsbench.pipeline.source import walk
from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import Loaded
from xttsbench.worker.bench import Bench

_WINDOWS: Final = 1.5
"""Windows of the trial that filling may take, where the trial does not say how long it may."""


@dataclass(frozen=True)
class _Cache:
    """One cache of a pipeline: the elements that it takes (-1 for ever, -2 unknown), and whether batches follow."""

    size: int
    batches_follow: bool


def fill_caches(spec: TrialSpec, loaded: Loaded, bench: Bench) -> None:
    """Draw one epoch of a dataset that has a cache, where that is possible in time; what was done is told."""
    caches = _caches(loaded.dataset, fixed=spec.fix is not None or spec.source_limit is not None)
    if not caches or any(cache.size == tf.data.INFINITE_CARDINALITY for cache in caches):
        return  # a cache that is never full is a finding
    bench.channel.phase("filling caches")
    began = time.perf_counter()
    full = _fill(loaded.dataset, caches, began + (spec.fill_s or _WINDOWS * spec.window_s))
    bench.channel.part("cache_filled", full)
    if full and spec.source_limit is not None:
        return  # the fix that it is measured for says so
    took = f"{time.perf_counter() - began:.1f} s"
    bench.channel.note(
        f"the cache was filled before anything was measured, which took {took}: the numbers are of later epochs"
        if full
        else f"the cache was not full after {took}: what was measured is the first epoch, and others are quicker"
    )


def _caches(dataset: Any, *, fixed: bool) -> list[_Cache]:
    """The caches of a dataset; those that a fix has put there are in its graph and in no Python object."""
    every = list(walk(dataset))
    if fixed:
        try:
            return _caches_of_graph(Cut(read_graph(dataset)))
        except (tf.errors.OpError, ValueError):  # not to be taken apart: what the Python objects say has to do
            pass
    return [
        _Cache(
            int(cache._input_dataset.cardinality().numpy()),
            _batches(type(one).__name__ for one in every if not any(one is other for other in walk(cache))),
        )
        for cache in every
        if type(cache).__name__ == "CacheDataset"
    ]


def _caches_of_graph(cut: Cut) -> list[_Cache]:
    found = []
    for name in cut.names:
        if cut.op(name).startswith("CacheDataset"):
            above = {name, *_above(cut, name)}
            sizes = [cut.cardinality(one) for one in cut.inputs(name)]
            found.append(_Cache(sizes[0], _batches(cut.op(one) for one in cut.names if one not in above)))
    return found


def _batches(ops: Iterable[str]) -> bool:
    """Whether some of these ops make batches, and none takes batches apart."""
    names = " ".join(ops)
    return "Batch" in names and "Unbatch" not in names


def _above(cut: Cut, name: str) -> set[str]:
    """Names of the ops that an op reads, directly or through others."""
    found: set[str] = set()
    waiting = list(cut.inputs(name))
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting.extend(cut.inputs(one))
    return found


def _fill(dataset: Any, caches: Sequence[_Cache], deadline: float) -> bool:
    """Whether one pass of every cache was drawn: the dataset ended, or gave as many elements as the caches take."""
    sizes = [cache.size for cache in caches]
    wanted = max(sizes) if tf.data.UNKNOWN_CARDINALITY not in sizes else None
    in_batches = all(cache.batches_follow for cache in caches)
    drawn = 0
    for batch in dataset:
        drawn += _samples(batch) if in_batches else 1
        # One more than it holds: the pass is over when the next element is asked for.
        if wanted is not None and drawn > wanted:
            return True
        if time.perf_counter() > deadline:
            return False
    return True


def _samples(batch: Any) -> int:
    shapes = [tensor.shape for tensor in tf.nest.flatten(batch, expand_composites=True)]
    return next((int(shape[0]) for shape in shapes if shape.rank), 1)
