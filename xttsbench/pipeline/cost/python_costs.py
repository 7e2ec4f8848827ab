"""What the calls of Python functions say of the ops that run them: pure.

The calls are timed on their own thread, in a run of the whole. Where an op has no cost of its own (its graph cannot be
read, or it was not reached), the calls are all that is known of it, and the least that it can have.
"""

from __future__ import annotations

from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction


def with_python_costs(pipeline: Pipeline) -> Pipeline:
    """Fill the processor time and the cost of ops from their Python functions' calls, where they lack them."""
    functions = {function.token: function for function in pipeline.python_functions}
    ops = tuple(_with_calls(op, [functions[t] for t in op.python_functions if t in functions]) for op in pipeline.ops)
    return pipeline.model_copy(update={"ops": ops})


def _with_calls(op: PipelineOp, functions: list[PythonFunction]) -> PipelineOp:
    cpu_s = _per_batch(op, [function.call_cpu_s for function in functions], functions)
    if cpu_s is None:
        return op
    wall_s = _per_batch(op, [function.call_time_s for function in functions], functions)
    return op.model_copy(
        update={
            "cpu_s": cpu_s if op.cpu_s is None else max(op.cpu_s, cpu_s),
            "cost_s": wall_s if op.cost_s is None else op.cost_s,
        }
    )


def _per_batch(op: PipelineOp, calls_s: list[float | None], functions: list[PythonFunction]) -> float | None:
    """Seconds per batch; one call per element where the op's elements are known, since calls run ahead in buffers."""
    total_s = 0.0
    for call_s, function in zip(calls_s, functions, strict=True):
        one_each = op.elements_per_batch is not None and op.op.startswith(("MapDataset", "ParallelMapDataset"))
        calls = op.elements_per_batch if one_each else function.calls_per_batch
        if call_s is None or calls is None:
            return None
        total_s += call_s * calls
    return total_s if functions else None
