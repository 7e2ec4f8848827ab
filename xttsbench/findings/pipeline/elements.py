"""Rules about the work for each element: what a filter throws away, calls dearer than what they do, misread files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.ops import function_of
from xttsbench.findings.gain import MAIN_SHARE, cost_share, finding, gain, most_costly, pace_share
from xttsbench.records.pipeline import PipelineOp, every_op
from xttsbench.records.report import Finding

_MAPS: Final = ("MapDataset", "ParallelMapDataset")
_LETS_PASS: Final = ("PrefetchDataset", "CacheDataset", "OptionsDataset", "ShuffleDataset", "AssertCardinalityDataset")
"""Ops that neither change elements nor how many there are, so that a filter may go before them."""
_NOTICEABLE: Final = 0.05
"""Share of the cost that a filter must throw away to be worth a word."""
_KEEPS_ALL: Final = 0.99

_MANY_ELEMENTS: Final = 32
"""Elements per batch from which what each costs on its own adds up."""
_TINY_COST_S: Final = 100e-6
"""An op that takes less for an element spends it on the call, as far as elements are small."""
_TINY_WHERE_BUSY_S: Final = 300e-6
"""The same for an op of which the processor time alone is that small: the rest is waiting for a core, or a little."""
_TINY_BYTES: Final = 16 * 1024
_ADDS_UP: Final = 0.50
_BATCHES: Final = ("BatchDataset", "ParallelBatchDataset", "PaddedBatchDataset")

_NPY_OFFSET: Final = 128
"""The header of most ``.npy`` files of format 1.0, which is padded to a multiple of 64 and grows with shape and type
(NEP 1)."""


def late_filter(evidence: Evidence) -> Iterator[Finding]:
    """A filter after work whose result it does not look at, so that the work is done for what is thrown away."""
    pipeline = evidence.pipeline
    if pipeline is None:
        return
    for ops in _sequences(pipeline.ops):
        for op in ops:
            if not op.op.startswith("FilterDataset") or op.reads is None:
                continue
            wasted = _not_read(ops, op)
            if not wasted:
                continue
            source = next((own for own in ops if own.name in op.inputs), None)
            kept = _kept(op, source)
            outer = ops is pipeline.ops
            share = pace_share(evidence, *wasted) if outer else None
            if kept is not None and kept > _KEEPS_ALL:
                continue
            thrown = share * (1 - kept) if share is not None and kept is not None else share
            if thrown is not None and thrown < _NOTICEABLE:
                continue
            helps = gain(evidence, "filter-first") if outer and (share or 0.0) >= MAIN_SHARE else None
            costly = most_costly(evidence, wasted) or wasted[0]
            waits = evidence.limits("input")
            names = f".map({function_of(costly)})"
            yield finding(
                "late-filter",
                f"{op.name} throws away what {costly.name} has worked for, and does not look at it",
                op,
                {
                    "share_kept": kept,
                    "pace_share_of_the_work": share,
                    "pace_share_thrown_away": thrown,
                    "work": ", ".join(own.name for own in wasted),
                    "work_line": costly.location.line,
                },
                f"Filter first: .filter(...) before {names}, on what that map is given."
                + ("" if waits else " Nothing waits for it now, so this saves processor time only."),
                limits=helps,
                severity="warning" if waits else "info",
            )


def per_element_overhead(evidence: Evidence) -> Iterator[Finding]:
    """Many tiny elements, where the calls cost more than what they do."""
    pipeline = evidence.pipeline
    if pipeline is None or not (evidence.limits("input") or evidence.limits("contention")):
        return
    tiny = [op for op in pipeline.ops if _is_tiny(op)]
    share = pace_share(evidence, *tiny)
    maps = [op for op in tiny if op.op.startswith((*_MAPS, "FilterDataset", "FlatMapDataset", "InterleaveDataset"))]
    costly = most_costly(evidence, maps)
    if costly is None or share is None or share < _ADDS_UP:
        return
    elements = costly.elements_per_batch or 0.0
    batch = next((op for op in pipeline.ops if op.op.startswith(_BATCHES)), None)
    number = str(batch.batch_size) if batch is not None and batch.batch_size else "n"
    total_s = sum(op.cost_s or 0.0 for op in tiny)
    function = function_of(costly)
    python = [one for one in pipeline.python_functions if one.token in costly.python_functions]
    remedy = (
        f"Batch first: .batch({number}) before .map(...), and let {python[0].name}() take a whole batch: one call in "
        f"place of {elements:.0f}."
        if python
        else f"Batch first: .batch({number}).map({function}), with {function} written for a whole batch (most "
        "TensorFlow ops take a leading dimension as they are)."
    )
    yield finding(
        "per-element-overhead",
        f"{elements:.0f} elements a batch at {1e6 * total_s / elements:.0f} us each: most of that is calls, not work",
        costly,
        {
            "elements_per_batch": elements,
            "ops_per_element": len(tiny),
            "cost_s_per_element": total_s / elements,
            "pace_share": share,
            "element_bytes": costly.element_bytes,
            "cost_share": cost_share(evidence, costly),
        },
        remedy,
        limits=gain(evidence, "batch-first"),
        severity="warning" if evidence.limits("input") else "info",
    )


def fixed_npy_header(evidence: Evidence) -> Iterator[Finding]:
    """Bytes of a file cut at 128, as if every ``.npy`` header were that long; the values are wrong where it is not."""
    pipeline = evidence.pipeline
    told = {fact.file for fact in evidence.source if fact.kind == "fixed-npy-header"}
    for op in every_op(pipeline.ops if pipeline is not None else ()):
        if op.byte_offset != _NPY_OFFSET or op.location.file in told:
            continue
        yield finding(
            "fixed-npy-header",
            f"{op.name} cuts a file at byte {op.byte_offset}, as if every .npy header were that long",
            op,
            {"byte_offset": op.byte_offset},
            "The header's length is in bytes 8 and 9 (little endian; the data begin at 10 + that), and it depends on "
            "shape and type: read it from there, or store the arrays as TFRecord or raw bytes.",
            severity="warning",
        )


RULES: Final = (late_filter, per_element_overhead, fixed_npy_header)


def _sequences(ops: Sequence[PipelineOp]) -> Iterator[Sequence[PipelineOp]]:
    """The ops of the pipeline, then of each data set that a function makes: names are unique only within one."""
    yield ops
    for op in ops:
        if op.inner:
            yield from _sequences(op.inner)


def _not_read(ops: Sequence[PipelineOp], filtering: PipelineOp) -> list[PipelineOp]:
    """The maps directly before a filter of whose results it reads nothing, the nearest first.

    What it reads is followed upwards through maps that hand it on untouched.
    """
    by_name = {op.name: op for op in ops}
    readers = Counter(name for op in ops for name in op.inputs)
    reads, found = set(filtering.reads or ()), []
    current = filtering
    while len(current.inputs) == 1 and (source := by_name.get(current.inputs[0])) is not None:
        if readers[source.name] > 1:
            break  # another op wants all of its elements
        if source.op.startswith(_MAPS):
            if not reads <= source.passes.keys():
                break
            reads = {source.passes[component] for component in reads}
            found.append(source)
        elif not source.op.startswith(_LETS_PASS):
            break
        current = source
    return found


def _kept(op: PipelineOp, source: PipelineOp | None) -> float | None:
    """Share of the elements that a filter lets through."""
    if source is None or not source.elements_per_batch or op.elements_per_batch is None:
        return None
    return op.elements_per_batch / source.elements_per_batch


def _is_tiny(op: PipelineOp) -> bool:
    """Whether an op handles many elements for a batch, each small and cheap."""
    if op.cost_s is None or op.elements_per_batch is None or op.elements_per_batch < _MANY_ELEMENTS:
        return False
    small = op.element_bytes is None or op.element_bytes <= _TINY_BYTES
    each_s = op.cost_s / op.elements_per_batch
    computed = op.cpu_s is not None and op.cpu_s / op.elements_per_batch < _TINY_COST_S
    return small and each_s < (_TINY_WHERE_BUSY_S if computed else _TINY_COST_S)
