"""The trial that measures what a batch costs on its way through one worker of the tf.data service.

A batch of the target, and parts and multiples of it, lies in the worker's memory; the client takes it as fast as it
can, and with pauses, since who sleeps wakes to cold caches. Processor time is that of whole processes, read by their
clocks.
"""

from __future__ import annotations

import math
import time
from typing import Any, Final

import tensorflow as tf

from xttsbench.probes.procfs import process_cpu_s
from xttsbench.records.scale import ServiceCost
from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import Loaded
from xttsbench.worker.batches import size_bytes
from xttsbench.worker.bench import Bench, Step
from xttsbench.worker.failure import ExhaustedError

_SIZES: Final = (0.0, 0.5, 1.0, 2.0)  # times the batch; 0 is one row of it
_MOST_BYTES: Final = 2**27
_PAUSE_S: Final = 0.02
_DISCARDED: Final = 8
_LEAST: Final = 4  # batches of a stretch
_ROUNDS: Final = 2


def run_service(spec: TrialSpec, loaded: Loaded, _: Step | None, bench: Bench) -> None:
    """Measure the costs of a batch, and of handing out splits, in rounds.

    Raises:
        ExhaustedError: the dataset has no batch.
    """
    batch = next(iter(loaded.dataset), None)
    if batch is None or spec.service is None:
        raise ExhaustedError("the dataset has no batch whose way through the service could be measured")
    flat = tuple(tf.nest.flatten(batch, expand_composites=True))
    sizes = [times for times in _SIZES if times <= 1 or times * size_bytes(flat) <= _MOST_BYTES]
    kinds = [(times, compressed, False) for compressed in (False, True) for times in sizes]
    kinds += [(1.0, compressed, True) for compressed in (False, True)]
    each_s = spec.window_s / (_ROUNDS * (len(kinds) + 1))
    found = []
    for number in range(_ROUNDS):
        for times, compressed, paced in kinds:
            bench.channel.phase(f"service {number}")
            rows = _resized(flat, times)
            served = tf.data.Dataset.from_tensors(rows).repeat()
            found.append(_stretch(spec, served, rows, each_s, compressed=compressed, paced=paced))
        found.append(_stretch(spec, tf.data.Dataset.range(2**40), (tf.constant(0, tf.int64),), each_s, splits=True))
        bench.channel.part("service", [*found])


def _resized(flat: tuple[Any, ...], times: float) -> tuple[Any, ...]:
    """The components with so many times as many rows, one at least; what has no rows stays."""

    def resized(one: Any) -> Any:
        if not one.shape.rank or not one.shape[0]:
            return one
        rows = max(round(times * int(one.shape[0])), 1)
        return tf.concat([one] * math.ceil(rows / int(one.shape[0])), axis=0)[:rows]

    return tuple(map(resized, flat))


def _stretch(
    spec: TrialSpec,
    served: Any,
    rows: tuple[Any, ...],
    window_s: float,
    *,
    compressed: bool = False,
    paced: bool = False,
    splits: bool = False,
) -> ServiceCost:
    """Costs of a batch over about so many seconds, some at first left out."""
    service = tf.data.experimental.service
    policy = service.ShardingPolicy.DYNAMIC if splits else service.ShardingPolicy.OFF
    assert spec.service is not None  # asked for above
    target, pids = spec.service.target, (spec.service.dispatcher, spec.service.worker)
    distributed = service.distribute(policy, target, compression="AUTO" if compressed else None)
    batches = iter(served.apply(distributed))
    for _ in range(_DISCARDED):
        next(batches)
    counted, ended_s = 0, time.perf_counter() + window_s
    before = (time.perf_counter(), time.process_time(), *map(process_cpu_s, pids))
    while counted < _LEAST or time.perf_counter() < ended_s:
        if paced:
            time.sleep(_PAUSE_S)
        next(batches)
        counted += 1
    after = (time.perf_counter(), time.process_time(), *map(process_cpu_s, pids))
    wall_s, client_s, dispatcher_s, worker_s = ((b - a) / counted for a, b in zip(before, after, strict=True))
    return ServiceCost(
        compressed=compressed,
        splits=splits,
        paced=paced,
        bytes=size_bytes(rows),
        wire_bytes=_wire_bytes(rows) if compressed else size_bytes(rows),
        batches=counted,
        wall_s=wall_s,
        client_cpu_s=client_s,
        worker_cpu_s=worker_s,
        dispatcher_cpu_s=dispatcher_s,
    )


def _wire_bytes(rows: tuple[Any, ...]) -> int:
    """Bytes of the components compressed as the service compresses them."""
    return len(tf.io.serialize_tensor(tf.raw_ops.CompressElement(components=rows)).numpy())


def imitated(size_bytes: int) -> Any:
    """A dataset of one batch of random numbers, which stands for those of a script; they cannot be compressed."""
    return tf.data.Dataset.from_tensors(tf.random.stateless_normal([max(size_bytes // 4, 1)], [0, 0]))
