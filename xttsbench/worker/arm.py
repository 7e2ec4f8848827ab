"""The rung of an arm: one configuration as it is, and nothing else, so that a trial costs what it measures.

The step is run once on a batch of each shape before anything is timed, so that tracing and compilation of the buckets
are in the segment ``warm_up``; then the target runs on a fresh iterator, in turns with others or in one stretch as in
the main trial of the ladder.
"""

from __future__ import annotations

import time
from typing import Any, Final

import tensorflow as tf

from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import Loaded
from xttsbench.worker.bench import Bench, Limit, Step
from xttsbench.worker.filling import fill_caches
from xttsbench.worker.ladder import handoff_after_pause_s, handoff_s, measure_as_is
from xttsbench.worker.source import CachedBatches, ExhaustedError, LiveBatches
from xttsbench.worker.turns import take_turns

_QUIET: Final = 8
"""Batches in a row without a new shape, after which no more is looked for; twice the shapes seen, if that is more."""
_MOST: Final = 128
_SECONDS: Final = 6.0
_HANDED_OVER: Final = 15
"""Batches that are ready, by which what handing one over costs is told: the part of a wait that no input can spare."""
_BYTES: Final = 512 * 1024**2


def run_arm(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Warm the step up on each shape, then measure the segment ``as_is``."""
    if spec.fill_caches:
        fill_caches(spec, loaded, bench)
    if step is not None:
        bench.channel.phase("shapes")
        _warm_up(bench, step, one_of_each_shape(loaded.dataset))
    elif spec.emulated_ms:
        bench.channel.phase("hand-off")
        for batch in loaded.dataset.take(1):
            bench.channel.part("handoff_s", handoff_s(batch, count=_HANDED_OVER))
            bench.channel.part("handoff_after_pause_s", handoff_after_pause_s(spec, batch, _HANDED_OVER))
    if spec.turns:
        take_turns(loaded, step, bench)
    else:
        measure_as_is(spec, loaded, step, bench)


def _warm_up(bench: Bench, step: Step, batches: list[Any]) -> None:
    """Step once on every batch, however long that takes, without the emulated accelerator.

    XLA needs seconds for each shape; the parent ends a trial that takes too long.
    """
    bench.channel.phase("warm_up")
    accelerator, bench.accelerator = bench.accelerator, None
    bench.run("warm_up", CachedBatches(batches), step, Limit(len(batches), 0.1, len(batches), fair_s=0.0))
    bench.accelerator = accelerator


def one_of_each_shape(dataset: tf.data.Dataset) -> list[Any]:
    """A batch of every shape that the beginning of the dataset shows, in order of appearance.

    It is read until its end, or until shapes stop being new, within 128 batches, half a gibibyte and six seconds. A
    shape that comes later compiles in the measured segment, where the columns of traces and compilations show it.

    Raises:
        ExhaustedError: the dataset yields nothing at all.
    """
    source, began = LiveBatches(dataset), time.perf_counter()
    found: dict[tuple[Any, ...], Any] = {}
    taken = quiet = held = 0
    try:
        while taken < _MOST and held < _BYTES and (not taken or time.perf_counter() - began < _SECONDS):
            try:
                batch = source.next()
            except ExhaustedError:
                if not taken:
                    raise ExhaustedError("the dataset yields no element: next() ended at once") from None
                break
            if source.epoch and taken:
                break
            taken += 1
            tensors = tf.nest.flatten(batch, expand_composites=True)
            shape = tuple(tuple(tensor.shape) for tensor in tensors if hasattr(tensor, "shape"))
            if shape in found:
                quiet += 1
            else:
                found[shape], quiet = batch, 0
                held += sum(tensor.dtype.size * tf.size(tensor).numpy() for tensor in tensors if _has_size(tensor))
            if quiet >= max(_QUIET, 2 * len(found)):
                break
    finally:
        source.close()
    return list(found.values())


def _has_size(tensor: Any) -> bool:
    return isinstance(tensor, tf.Tensor) and tensor.dtype.size is not None
