"""Work on whole batches in place of single elements: ``batch-first`` and ``rebatch``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from xttsbench.fixes.spec import Candidate, Setting, Spec, each
from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction
from xttsbench.throughput.threads import consumers, elements_per_batch, inputs_of

_TINY_S: Final = 100e-6
"""An element that takes less is mostly the cost of calling a function for it."""
_TINY_PYTHON_S: Final = 300e-6
"""The same for a Python function, which costs more to call."""
_COPIED_BYTES_PER_S: Final = 2e9
"""Bytes of a batch that are cut to size, of any machine of today or less."""
_MANY: Final = 8
_TIMES: Final = ("call_time_s", "call_cpu_s")
_SHARE: Final = 0.1
"""Share of the pipeline's cost from which calls for single elements, or taking batches apart, are worth another way."""


def cut_anew(setting: Setting) -> Iterator[Candidate]:
    """Batches taken apart only to be put together again."""
    pipeline = setting.pipeline
    by_name = {op.name: op for op in pipeline.ops}
    whole = sum(op.cost_s or 0.0 for op in pipeline.ops)
    for op in pipeline.ops:
        before = [by_name[name] for name in inputs_of(op, pipeline) if name in by_name]
        if not op.op.startswith(("BatchDataset", "ParallelBatchDataset")) or len(before) != 1:
            continue
        apart = before[0]
        spent = (op.cost_s or 0.0) + (apart.cost_s or 0.0)
        if apart.op.startswith("Unbatch") and spent >= _SHARE * whole:
            why = "what cutting whole batches to another size costs was not measured"
            known = op.element_bytes is not None
            edit = partial(_cut, apart=apart.name, batch=op.name) if known else None
            yield Candidate("rebatch", edit, None if known else why, ops=(apart.name, op.name))
            return


def _cut(given: Pipeline, *, apart: str, batch: str) -> Pipeline:
    """The record with one op in the place of the two, which copies its bytes once and calls nothing for an element."""
    source = next(inputs_of(op, given) for op in given.ops if op.name == apart)

    def edited(op: PipelineOp) -> PipelineOp:
        if op.name != batch:
            return op.model_copy(update={"inputs": inputs_of(op, given)})
        copied_s = (op.element_bytes or 0.0) / _COPIED_BYTES_PER_S * (op.elements_per_batch or 1.0)
        told = {"op": "RebatchDatasetV2", "inputs": source, "cost_s": copied_s, "cpu_s": copied_s, "parallelism": None}
        return op.model_copy(update=told)

    return given.model_copy(update={"ops": tuple(edited(op) for op in given.ops if op.name != apart)})


def whole_batches(setting: Setting) -> Iterator[Candidate]:
    """Maps that are called for each of many small elements."""
    pipeline = setting.pipeline
    taken, readers = elements_per_batch(pipeline), consumers(pipeline)
    kinds = {one.token: one.kind for one in pipeline.python_functions}

    def is_tiny(op: PipelineOp) -> bool:
        python = [kinds.get(token) for token in op.python_functions]
        limit_s = _TINY_PYTHON_S if python else _TINY_S
        small = op.cost_s is not None and op.cost_s / max(taken[op.name], 1.0) < limit_s
        whole_batches = not op.random and all(kind == "numpy_function" for kind in python)
        return small and whole_batches and taken[op.name] >= _MANY and op.op.startswith(("Map", "ParallelMap"))

    tiny = [op for op in pipeline.ops if is_tiny(op)]
    spent = sum(op.cost_s or 0.0 for op in tiny)
    ends = [op for op in tiny if any("Batch" in reader.op for reader in readers[op.name])]
    if ends and spent >= _SHARE * sum(op.cost_s or 0.0 for op in pipeline.ops):
        names = tuple(op.name for op in tiny)
        if all(not op.python_functions or around_s(op, pipeline) is not None for op in tiny):
            yield Candidate("batch-first", partial(_called_once, names=names), ops=names)
            return
        why = "how much of the time for an element is the call itself was not measured"
        yield Candidate("batch-first", None, why, ops=names)


def around_s(op: PipelineOp, pipeline: Pipeline) -> float | None:
    """Seconds of an element that go to calling the op's Python functions; ``None`` where it has none, or not known."""
    own = [one.around_call_s for one in pipeline.python_functions if one.token in op.python_functions]
    return sum(one for one in own if one is not None) if own and None not in own else None


def _called_once(given: Pipeline, *, names: tuple[str, ...]) -> Pipeline:
    """The record with one call for a batch, within which Python goes from row to row.

    TensorFlow's own ops take a batch as they take an element, but for its bytes: of an element as small as this the
    time is that of calling them.
    """
    readers, taken = consumers(given), elements_per_batch(given)
    sizes = {
        op.name: max(
            next((one.batch_size for one in readers[op.name] if one.batch_size), None) or round(taken[op.name]), 1
        )
        for op in given.ops
    }
    rows: dict[str, int] = {}

    def changed(op: PipelineOp) -> dict[str, float]:
        if op.name not in names or not op.cost_s:
            return {}
        call_s, count = around_s(op, given), taken[op.name]
        if op.python_functions:
            rows.update(dict.fromkeys(op.python_functions, sizes[op.name]))
            spared_s = (call_s or 0.0) * count * (1 - 1 / sizes[op.name])
        else:
            copied_s = (op.element_bytes or 0.0) * count / _COPIED_BYTES_PER_S
            spared_s = op.cost_s * (1 - 1 / sizes[op.name]) - copied_s
        left = min(max(1 - spared_s / op.cost_s, 0.0), 1.0)
        # What TensorFlow's threads spend around the calls goes with them, so processor time shrinks by the same share.
        return {"cost_s": op.cost_s * left} | ({} if op.cpu_s is None else {"cpu_s": op.cpu_s * left})

    edited = each(given, changed)
    functions = tuple(_of_rows(one, rows.get(one.token, 1)) for one in given.python_functions)
    return edited.model_copy(update={"python_functions": functions})


def _of_rows(function: PythonFunction, rows: int) -> PythonFunction:
    """A function one of whose calls goes through so many rows."""
    longer = {name: value * rows for name in _TIMES if (value := getattr(function, name)) is not None}
    calls = function.calls_per_batch
    return function.model_copy(update=longer | {"calls_per_batch": calls / rows if calls is not None else None})


REBATCH: Final = Spec(
    name="rebatch",
    words="whole batches cut to size, in place of taking them apart",
    does="`unbatch().batch(n)` becomes one op that cuts whole batches to size, without taking them apart",
    mends=("per-element-overhead",),
    candidates=cut_anew,
    rank=8,
    tried_unpriced=True,
    rewrite="xttsbench.fixes.batch_first.rewrite:rebatch",
    patch="xttsbench.fixes.batch_first.patch:rebatch",
)
BATCH_FIRST: Final = Spec(
    name="batch-first",
    words="batches before the map, which is called once for each",
    does="the function of a map runs on whole batches; a Python function is called row by row within one call",
    mends=("per-element-overhead",),
    candidates=whole_batches,
    rank=7,
    tried_unpriced=True,
    rewrite="xttsbench.fixes.batch_first.rewrite:batch_first",
    hazards="xttsbench.fixes.batch_first.rewrite:hazards",
    patch="xttsbench.fixes.batch_first.patch:batch_first",
)
