"""The trial that runs the input of a target on one, two, ... workers of the tf.data service, on this machine.

Each number of workers has a service of its own, so that they take turns; each worker is held to its quota of cores.
The input is repeated on the workers, since the end of an epoch would be measured with them. One of which a part has to
stay in this process is refused: it would be that part that is measured.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from typing import Any, Final

from xttsbench.fixes.graph.edit import does_not_apply, from_graph
from xttsbench.fixes.service.leaving import at, leaving
from xttsbench.fixes.service.rewrite import moved
from xttsbench.pipeline.read import described, read_graph
from xttsbench.records.scale import WorkersRate
from xttsbench.records.trial import TrialSpec
from xttsbench.service import loopback
from xttsbench.targets.load import Loaded
from xttsbench.worker.bench import Bench, Step
from xttsbench.worker.failure import ExhaustedError

_ROUNDS: Final = 4
_LEAST: Final = 4  # batches of a stretch
_SETTLES: Final = 0.3  # share of a stretch before it, in which what lies ready is drawn


def run_on_workers(spec: TrialSpec, loaded: Loaded, _: Step | None, bench: Bench) -> None:
    """Measure batches a second by the number of workers, in rounds.

    Raises:
        ExhaustedError: the dataset has no batch.
        InvalidInputError: a part of the pipeline cannot leave this process.
        ServiceError: a server did not start.
    """
    asked = spec.workers
    assert asked is not None  # a trial of this kind has it
    graph, order = read_graph(loaded.dataset), random.Random(spec.seed)
    found = leaving(described(graph))
    if found.after is not None and found.pins:
        pin = found.pins[0]
        raise does_not_apply("service", f"a part of the input has to stay in this process: at {at(pin)}, {pin.why}")
    with contextlib.ExitStack() as running:
        inputs = {}
        for count in range(1, asked.most + 1):
            bench.channel.phase(f"start of {count}")
            cluster = running.enter_context(loopback(count, cores=asked.cores))
            edited = moved(graph, cluster, "service", found.after, endless=True)
            inputs[count] = iter(from_graph(edited, loaded.dataset.element_spec, source=loaded.dataset))
        each_s, rates = spec.window_s / (_ROUNDS * asked.most), list[WorkersRate]()
        for number in range(_ROUNDS):
            for count in order.sample(sorted(inputs), len(inputs)):
                bench.channel.phase(f"workers {number}")
                rates.append(_stretch(inputs[count], count, each_s))
                bench.channel.part("workers", [*rates])
        inputs.clear()  # before the services end


def _stretch(batches: Iterator[Any], workers: int, window_s: float) -> WorkersRate:
    _drawn(batches, _SETTLES * window_s)
    began_s = time.perf_counter()
    return WorkersRate(workers=workers, batches=_drawn(batches, window_s), wall_s=time.perf_counter() - began_s)


def _drawn(batches: Iterator[Any], window_s: float) -> int:
    """Batches that were drawn in about so many seconds."""
    counted, ends_s = 0, time.perf_counter() + window_s
    while counted < _LEAST or time.perf_counter() < ends_s:
        if next(batches, None) is None:
            raise ExhaustedError("the dataset has no batch")
        counted += 1
    return counted
