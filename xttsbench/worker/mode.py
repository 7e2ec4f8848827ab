"""The rungs of the step's modes: op by op, as one graph, through XLA, each beside the step as given."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from xttsbench.errors import TargetError
from xttsbench.records.trial import TrialSpec
from xttsbench.step.modes import Mode, fetches_answered, in_mode
from xttsbench.targets.load import Loaded
from xttsbench.worker.bench import Bench, Limit, Step
from xttsbench.worker.ladder import first_batches
from xttsbench.worker.source import CachedBatches

_KEEP = 4
"""Batches to run the modes on, of one shape: each shape is compiled, and XLA takes many seconds for one."""


def run_mode(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Run the step alone as given and in the mode of the rung, in the order given, mode, mode, given."""
    if step is None:
        raise TargetError(f"Target {spec.target!r} has no step, so it has no modes.")
    mode: Mode = spec.rung if spec.rung in ("eager", "graph", "xla") else "graph"
    batches = of_one_shape(first_batches(loaded))
    half = Limit(max(spec.steps // 2, 1), spec.window_s / 2, 1, fair_s=0.5)

    def measure(which: Step, name: str) -> float:
        bench.channel.phase(name)
        began = time.perf_counter()
        bench.run(name, CachedBatches(batches), which, half)
        return time.perf_counter() - began

    took_s = 0.0
    if mode != "eager":  # switching to eager changes the whole process, the step as given with it
        began = time.perf_counter()
        for batch in batches:
            step(batch)
            bench.channel.phase("warm_up")
            if time.perf_counter() - began > spec.window_s:  # shapes that are not warm yet count as compilation
                break
        took_s = measure(step, "step_only")
    bench.channel.phase(f"compiling {mode}")
    with _answered(bench) if mode != "eager" else contextlib.nullcontext():
        changed = in_mode(step, mode)
        bench.run("warm_up", CachedBatches(batches), changed, Limit(len(batches), 60.0, 1, fair_s=0.0))
        measure(changed, mode)
        measure(changed, mode)
    if mode != "eager" and took_s < 2 * spec.window_s:  # one look at a step of many seconds has to do
        measure(step, "step_only")


def of_one_shape(batches: list[Any]) -> list[Any]:
    """Return batches of the shape that most of them have."""
    by_shape: dict[str, list[Any]] = {}
    for batch in batches:
        shape = str([tuple(tensor.shape) for tensor in tf.nest.flatten(batch, expand_composites=True)])
        by_shape.setdefault(shape, []).append(batch)
    return max(by_shape.values(), key=len)[:_KEEP]


@contextlib.contextmanager
def _answered(bench: Bench) -> Iterator[None]:
    with fetches_answered() as fetches:
        yield
    if fetches.count:
        bench.channel.note(f"host reads removed: {fetches.count} while tracing")
