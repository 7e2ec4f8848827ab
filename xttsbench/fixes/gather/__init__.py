"""``gather``: rows of arrays in memory go through the pipeline as indices, and one op gathers each batch of them.

Every row of ``from_tensor_slices`` is cut out, handed through each op and copied into its batch, at some microseconds
a row. The same ops on indices give the same order at a part of that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from xttsbench.fixes.batch_first import COPIED_BYTES_PER_S, MANY, SHARE
from xttsbench.fixes.spec import Candidate, Setting, Spec, each
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.throughput.threads import consumers, elements_per_batch, inputs_of

SLICES: Final = "TensorSliceDataset"
HANDS_ON: Final = re.compile(
    r"(Shuffle(AndRepeat)?|Repeat|ForeverRepeat|Take|Skip|Shard|Prefetch|Cache|Options|AssertCardinality)Dataset(V\d+)?"
)
"""Ops that do not look at elements, so that they do the same to indices."""
BATCHES: Final = re.compile(r"(Parallel)?BatchDataset(V\d+)?")
"""Ops that put elements together as they are, without padding."""
_INDEX_S: Final = 0.15e-6  # what an op takes to hand an index on, which is a scalar


def rows_to_batches(pipeline: Pipeline) -> Iterator[tuple[PipelineOp, ...]]:
    """Ops from slices of arrays to the batch that puts them together, where each is read by the next one alone."""
    by_name, readers = {op.name: op for op in pipeline.ops}, consumers(pipeline)
    for op in pipeline.ops:
        way = [op]
        while (BATCHES if way[0] is op else HANDS_ON).fullmatch(way[0].op):
            names = inputs_of(way[0], pipeline)
            if len(names) != 1 or names[0] not in by_name or len(readers[names[0]]) != 1:
                break
            way.insert(0, by_name[names[0]])
        if way[0].op == SLICES and len(way) > 1:
            yield tuple(way)


def candidates(setting: Setting) -> Iterator[Candidate]:
    """All batches of rows that are many and cost a good part of what the pipeline does."""
    pipeline = setting.pipeline
    taken, least_s = elements_per_batch(pipeline), SHARE * sum(op.cost_s or 0.0 for op in pipeline.ops)
    ways = [way for way in rows_to_batches(pipeline) if taken[way[0].name] >= MANY]
    ops = [op for way in ways for op in way]
    if ops and sum(op.cost_s or 0.0 for op in ops) >= least_s:
        names = tuple(op.name for op in ops)
        known = any(op.cost_s for op in ops)
        edit = partial(_of_indices, names=names) if known else None
        yield Candidate("gather", edit, None if known else "what a row costs by itself was not measured", ops=names)


def _of_indices(given: Pipeline, *, names: tuple[str, ...]) -> Pipeline:
    """The record with indices in place of rows, and batches that cost the copying of their bytes."""
    taken = elements_per_batch(given)
    rows = {way[-1].name: taken[way[0].name] for way in rows_to_batches(given)}

    def changes(op: PipelineOp) -> dict[str, Any]:
        if op.name not in names:
            return {}
        left_s = rows.get(op.name, taken[op.name]) * _INDEX_S
        if op.name in rows:
            left_s += (op.element_bytes or 0.0) * taken[op.name] / COPIED_BYTES_PER_S
        left = {name: min(was, left_s) for name in ("cost_s", "cpu_s") if (was := getattr(op, name)) is not None}
        return left if op.name in rows else left | {"element_bytes": 8.0}

    return each(given, changes)


GATHER: Final = Spec(
    name="gather",
    words="indices in place of rows, and each batch gathered at once",
    does=(
        "`from_tensor_slices(arrays).shuffle(n).batch(b)` becomes `range(len(arrays)).shuffle(n).batch(b)` and a map "
        "that gathers the rows of a batch; what stands between stays (`repeat`, `take`, a smaller buffer, a seed), so "
        "that the order is the same"
    ),
    mends=("per-element-overhead",),
    candidates=candidates,
    rank=13,
    tried_unpriced=True,
    rewrite="xttsbench.fixes.gather.rewrite:gather",
    patch="xttsbench.fixes.gather.patch:gather",
)
