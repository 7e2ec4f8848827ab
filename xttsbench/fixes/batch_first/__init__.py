"""Work on whole batches in place of single elements: ``batch-first``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from xttsbench.fixes.spec import Candidate, Setting, Spec, each
from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction
from xttsbench.throughput.threads import consumers, elements_per_batch

_TINY_S: Final = 100e-6  # an element that takes less is mostly the cost of calling a function for it
_TINY_PYTHON_S: Final = 300e-6  # the same for a Python function, which costs more to call
COPIED_BYTES_PER_S: Final = 2e9  # bytes of a batch that are copied, of any machine of today or less
MANY: Final = 8
SHARE: Final = 0.1
"""Share of the pipeline's cost from which calls for single elements are worth another way."""


def whole_batches(setting: Setting) -> Iterator[Candidate]:
    """Maps that are called for each of many small elements."""
    pipeline = setting.pipeline
    taken, readers = elements_per_batch(pipeline), consumers(pipeline)
    kinds = {one.token: one.kind for one in pipeline.python_functions}

    def is_tiny(op: PipelineOp) -> bool:
        if op.random or op.cost_s is None or taken[op.name] < MANY or not op.op.startswith(("Map", "ParallelMap")):
            return False
        limit_s = _TINY_PYTHON_S if op.python_functions else _TINY_S
        arrays = all(kinds.get(token) == "numpy_function" for token in op.python_functions)
        return arrays and op.cost_s / taken[op.name] < limit_s

    tiny = [op for op in pipeline.ops if is_tiny(op)]
    batched = any("Batch" in reader.op for op in tiny for reader in readers[op.name])
    least_s = SHARE * sum(op.cost_s or 0.0 for op in pipeline.ops)
    if batched and sum(op.cost_s or 0.0 for op in tiny) >= least_s:
        names = tuple(op.name for op in tiny)
        known = all(not op.python_functions or _around_s(op, pipeline) is not None for op in tiny)
        why_not = None if known else "how much of the time for an element is the call itself was not measured"
        yield Candidate("batch-first", partial(_called_once, names=names) if known else None, why_not, ops=names)


def _around_s(op: PipelineOp, pipeline: Pipeline) -> float | None:
    """Seconds of an element that go to calling the op's Python functions; ``None`` where it has none, or not known."""
    own = [one.around_call_s for one in pipeline.python_functions if one.token in op.python_functions]
    return sum(one for one in own if one is not None) if own and None not in own else None


def _called_once(given: Pipeline, *, names: tuple[str, ...]) -> Pipeline:
    """The record with one call for a batch, within which Python goes from row to row.

    TensorFlow's own ops take a batch as they take an element, but for its bytes: of an element as small as this the
    time is that of calling them.
    """
    readers, taken = consumers(given), elements_per_batch(given)
    rows: dict[str, int] = {}

    def changes(op: PipelineOp) -> dict[str, float]:
        if op.name not in names or not op.cost_s:
            return {}
        count, read = taken[op.name], next((one.batch_size for one in readers[op.name] if one.batch_size), None)
        size = max(read or round(count), 1)
        rows.update(dict.fromkeys(op.python_functions, size))
        if op.python_functions:
            spared_s = (_around_s(op, given) or 0.0) * count * (1 - 1 / size)
        else:
            copied_s = (op.element_bytes or 0.0) * count / COPIED_BYTES_PER_S
            spared_s = op.cost_s * (1 - 1 / size) - copied_s
        left = min(max(1 - spared_s / op.cost_s, 0.0), 1.0)
        # What TensorFlow's threads spend around the calls goes with them, so processor time shrinks by the same share.
        return {"cost_s": op.cost_s * left} | ({} if op.cpu_s is None else {"cpu_s": op.cpu_s * left})

    def longer(one: PythonFunction) -> dict[str, float]:
        times, count = {"call_time_s": one.call_time_s, "call_cpu_s": one.call_cpu_s}, rows.get(one.token, 1)
        fewer = {} if one.calls_per_batch is None else {"calls_per_batch": one.calls_per_batch / count}
        return fewer | {name: value * count for name, value in times.items() if value is not None}

    return each(given, changes, longer)


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
