"""Cost of a pipeline's Python functions as ops of TensorFlow, and their text, before any proposal."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.fixes.native.rewrite import Checked, checked
from xttsbench.fixes.native.trace import Traced
from xttsbench.pipeline.cut import without_rewrites
from xttsbench.pipeline.read import read_graph
from xttsbench.records.pipeline import NativeFunction, Pipeline

_TIMED_S: Final = 0.15  # for which the calls of a traced function are timed, alone and on all processors
_MOST_CALLS: Final = 4096


def examine(dataset: Any, pipeline: Pipeline) -> Pipeline:
    """The pipeline with what was found of each of its Python functions but generators.

    Each function that can be traced is compared with Python on a few recorded calls, and timed. Nothing of the user's
    pipeline is timed while this runs.
    """
    if all(one.kind == "generator" for one in pipeline.python_functions) or pipeline.unserialisable:
        return pipeline
    try:
        found = {one.token: _found(one) for one in checked(read_graph(dataset))}
    except (tf.errors.OpError, ValueError):  # a pipeline that cannot be cut is diagnosed all the same
        return pipeline
    functions = tuple(one.model_copy(update={"native": found.get(one.token)}) for one in pipeline.python_functions)
    return pipeline.model_copy(update={"python_functions": functions})


def _found(one: Checked) -> NativeFunction:
    if one.traced is None:
        return NativeFunction(refused=one.refused)
    alone, all_at_once = _timed(one.traced, one.calls)
    return NativeFunction(
        call_time_s=alone[0],
        call_cpu_s=all_at_once[1],
        exact=one.exact,
        name=one.traced.name,
        text=one.traced.text if one.traced.why_no_text is None else None,
        names=one.traced.names,
        why_no_text=one.traced.why_no_text,
    )


def _timed(traced: Traced, calls: Sequence[tuple[tuple[Any, ...], Any]]) -> tuple[tuple[float, float], ...]:
    """Wall and processor seconds of a call: one after the other, and with one on each processor.

    The call is the one whose arguments are of median size.
    """
    specs = traced.function.structured_input_signature[0]
    ordered = sorted(calls, key=lambda call: sum(np.asarray(one).nbytes for one in call[0]))
    given = ordered[len(ordered) // 2][0]
    tensors = [tf.convert_to_tensor(one, spec.dtype) for one, spec in zip(given, specs, strict=True)]
    processors = max(len(tf.config.list_logical_devices("CPU")), len(os.sched_getaffinity(0)))

    def pace(parallel: int | None) -> tuple[float, float]:
        # The arguments come from a closure: what the pipeline hands on is a number.
        mapped = tf.data.Dataset.range(10**9).map(lambda _: traced.function(*tensors), num_parallel_calls=parallel)
        count = 8
        while True:
            last = iter(without_rewrites(mapped).skip(count).take(1))
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            next(last)
            wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
            del last
            if wall_s >= _TIMED_S or count >= _MOST_CALLS:
                return wall_s / (count + 1), cpu_s / (count + 1)
            count = min(_MOST_CALLS, max(2 * count, int(1.3 * count * _TIMED_S / max(wall_s, 1e-4))))

    return pace(None), pace(processors)
