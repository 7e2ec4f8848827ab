"""Caches of a dataset: how much each takes, and whether what it keeps becomes batches after it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from xttsbench.pipeline.cut import Cut
from xttsbench.pipeline.read import read_graph
from xttsbench.pipeline.source import walk


@dataclass(frozen=True)
class Cache:
    """One cache of a pipeline: the elements that it takes (-1 for ever, -2 unknown), and whether batches follow."""

    size: int
    batches_follow: bool


def caches_of(dataset: Any, *, fixed: bool) -> list[Cache]:
    """The caches of a dataset; those that a fix has put there are in its graph and in no Python object."""
    every = list(walk(dataset))
    if fixed:
        try:
            return _in_graph(Cut(read_graph(dataset)))
        except (tf.errors.OpError, ValueError):  # not to be taken apart: what the Python objects say has to do
            pass
    return [
        Cache(
            int(cache._input_dataset.cardinality().numpy()),
            _batches(type(one).__name__ for one in every if not any(one is other for other in walk(cache))),
        )
        for cache in every
        if type(cache).__name__ == "CacheDataset"
    ]


def _in_graph(cut: Cut) -> list[Cache]:
    found = []
    for name in cut.names:
        if cut.op(name).startswith("CacheDataset"):
            above = {name, *_above(cut, name)}
            sizes = [cut.cardinality(one) for one in cut.inputs(name)]
            found.append(Cache(sizes[0], _batches(cut.op(one) for one in cut.names if one not in above)))
    return found


def _batches(ops: Iterable[str]) -> bool:
    """Whether ops among these make batches, and none takes batches apart."""
    names = " ".join(ops)
    return "Batch" in names and "Unbatch" not in names


def _above(cut: Cut, name: str) -> set[str]:
    found: set[str] = set()
    waiting = list(cut.inputs(name))
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting.extend(cut.inputs(one))
    return found
