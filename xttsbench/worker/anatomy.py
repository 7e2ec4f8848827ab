"""What a step does, on cached batches, with an op counter and a stack sampler that no timing uses."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import tensorflow as tf
from tensorflow.python import pywrap_tfe

from xttsbench.records.trial import Anatomy, StackLine
from xttsbench.step.sampler import StackSampler
from xttsbench.worker.bench import Bench, Step
from xttsbench.worker.source import CachedBatches

_LINES: Final = 12
_OPS: Final = 12


class OpCounter:
    """Counts eager ops by type and their time, by standing before TensorFlow's fast path while it is entered."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.time_ns = 0

    def __enter__(self) -> OpCounter:
        self._fast_path: Callable[..., Any] = pywrap_tfe.TFE_Py_FastPathExecute
        pywrap_tfe.TFE_Py_FastPathExecute = self._execute
        return self

    def __exit__(self, *_: object) -> None:
        pywrap_tfe.TFE_Py_FastPathExecute = self._fast_path

    def _execute(self, context: Any, name: str, *args: Any) -> Any:
        began = time.perf_counter_ns()
        try:
            return self._fast_path(context, name, *args)
        finally:
            self.time_ns += time.perf_counter_ns() - began
            self.counts[name] += 1


def read_anatomy(bench: Bench, step: Step, batches: list[Any], window_s: float) -> Anatomy:
    """Run the step for ``window_s`` seconds (one step at least) and say where its time went."""
    bench.watch.watch_calls()
    source, steps, calls_before = CachedBatches(batches), 0, bench.watch.counters()[0]
    began = time.perf_counter()
    with OpCounter() as ops, StackSampler() as sampler:
        while steps < 1 or (time.perf_counter() - began < window_s and steps < 3000):
            batch = source.next()
            sampler.step = steps
            call_step(bench, step, batch)
            sampler.step = None
            steps += 1
    return summarise(ops, sampler, steps, bench.watch.counters()[0] - calls_before)


def summarise(ops: OpCounter, sampler: StackSampler, steps: int, calls: int) -> Anatomy:
    """What was counted and sampled in that many steps, in which tf.functions were called ``calls`` times."""
    lines = _lines(sampler, steps)
    kinds: dict[str, float] = {}
    for line in lines:
        kinds[line.kind] = kinds.get(line.kind, 0.0) + line.share
    return Anatomy(
        steps=steps,
        samples=sampler.samples,
        eager_ops_per_step=sum(ops.counts.values()) / steps,
        eager_op_time_s=ops.time_ns / 1e9 / steps,
        op_floor_s=_op_floor_s(),
        step_s=sampler.total_s / steps,
        function_calls_per_step=calls / steps,
        ops={name: count / steps for name, count in ops.counts.most_common(_OPS)},
        kinds=kinds,
        lines=tuple(lines[:_LINES]),
        python_functions_in_step=tuple(
            f"{line.function} ({line.file}:{line.line})" for line in lines if line.kind == "python_function"
        ),
    )


def call_step(bench: Bench, step: Step, batch: Any) -> None:
    """One step, to its end; the sampler knows this function by its name."""
    step(batch)
    if bench.synchronise is not None:
        bench.synchronise()


def _op_floor_s() -> float:
    """Median time to launch an eager op on scalars: all of it is dispatch."""
    value, times = tf.constant(1.0), []
    for _ in range(200):
        began = time.perf_counter_ns()
        value + value
        times.append(time.perf_counter_ns() - began)
    return sorted(times)[len(times) // 2] / 1e9


def _lines(sampler: StackSampler, steps: int) -> list[StackLine]:
    total = sampler.total_s or 1.0
    lines = [
        StackLine(
            file=file,
            line=number,
            function=function,
            kind=kind,
            share=min(weight / total, 1.0),
            steps_share=len(sampler.steps[file, number, function, kind]) / steps,
        )
        for (file, number, function, kind), weight in sampler.weights.items()
    ]
    return sorted(lines, key=lambda line: -line.share)
