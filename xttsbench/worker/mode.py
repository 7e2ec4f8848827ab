"""The rungs of the step's modes: op by op, as one graph, through XLA, each in turns with the step as given."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from xttsbench.errors import TargetError
from xttsbench.records.trial import TrialSpec
from xttsbench.step.modes import Mode, fetches_answered, functions_run, in_mode
from xttsbench.targets.load import Loaded
from xttsbench.worker.bench import Bench, Step
from xttsbench.worker.beside import run_beside
from xttsbench.worker.ladder import first_batches

_KEEP = 4
"""Batches to run the modes on, of one shape: each shape is compiled, and XLA takes many seconds for one."""


def run_mode(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Run the step alone as given and in the mode of the rung, in turns."""
    if step is None:
        raise TargetError(f"Target {spec.target!r} has no step, so it has no modes.")
    mode: Mode = spec.rung if spec.rung in ("eager", "graph", "xla") else "graph"
    batches = of_one_shape(first_batches(loaded))
    given, changed = functions_run(step, eagerly=False) if mode == "eager" else step, in_mode(step, mode)
    with _answered(bench) if mode != "eager" else contextlib.nullcontext():
        run_beside(spec, bench, (given, batches), (changed, batches), mode)


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
