"""The rules on elements and their batches.

What is done for each element: `late-filter`, `per-element-overhead`, `input-bound`; what a batch of them holds:
`padding-waste`, `dynamic-shape`, `nan-batch`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from xttsbench.evidence import Evidence
from xttsbench.evidence.pipeline import (
    BATCHES,
    MAPS,
    explains_wait,
    function_of,
    last_of,
    no_op_explains,
    ops_cost_s,
    slowest_op,
)
from xttsbench.findings.rule import MAIN_SHARE, Findings, cost_share, gain, most_costly, pace_share, rule
from xttsbench.fixes.gather import rows_to_batches
from xttsbench.records.pipeline import PipelineOp
from xttsbench.throughput.threads import functions_of

_LETS_PASS: Final = ("PrefetchDataset", "CacheDataset", "OptionsDataset", "ShuffleDataset", "AssertCardinalityDataset")
"""Ops that neither change elements nor how many there are, so that a filter may go before them."""
_NOTICEABLE: Final = 0.05  # Share of the cost that a filter must throw away to be worth a word
_KEEPS_ALL: Final = 0.99


@rule(
    "late-filter",
    threshold="work for elements that are thrown away has 5 % of the pace, where that is known; a bottleneck only "
    "where the step waits for data",
    remedy="Filter first: .filter(...) before the map, on what that map is given.",
    false_alarms="none known",
)
def late_filter(evidence: Evidence) -> Findings:
    """A filter behind a map whose results it does not look at: the map works for elements that are thrown away."""
    pipeline = evidence.graph
    for ops in _sequences(pipeline.ops):
        for op in ops:
            if not op.op.startswith("FilterDataset") or op.reads is None:
                continue
            wasted = _not_read(ops, op)
            kept = _kept(op, next((own for own in ops if own.name in op.inputs), None))
            if not wasted or (kept is not None and kept > _KEEPS_ALL):
                continue
            share = pace_share(evidence, *wasted) if ops is pipeline.ops else None
            thrown = share * (1 - kept) if share is not None and kept is not None else share
            if thrown is not None and thrown < _NOTICEABLE:
                continue
            costly, waits = most_costly(evidence, wasted) or wasted[0], evidence.limits("input")
            yield late_filter.finding(
                f"{op.name} throws away what {costly.name} has worked for, and does not look at it",
                {
                    "share_kept": kept,
                    "pace_share_of_the_work": share,
                    "pace_share_thrown_away": thrown,
                    "work": ", ".join(own.name for own in wasted),
                    "work_line": costly.location.line,
                },
                f"Filter first: .filter(...) before .map({function_of(costly)}), on what that map is given."
                + ("" if waits else " Nothing waits for it now, so this saves processor time only."),
                at=op,
                severity="warning" if waits else "info",
                limiting=waits and kept is not None and (share or 0.0) >= MAIN_SHARE,
            )


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
        if source.op.startswith(MAPS):
            if not reads <= source.passes.keys():
                break
            reads = {source.passes[component] for component in reads}
            found.append(source)
        elif not source.op.startswith(_LETS_PASS):
            break
        current = source
    return found


def _kept(op: PipelineOp, source: PipelineOp | None) -> float | None:
    if source is None or not source.elements_per_batch or op.elements_per_batch is None:
        return None
    return op.elements_per_batch / source.elements_per_batch


_MANY_ELEMENTS: Final = 32  # Elements per batch from which what each costs on its own adds up
_TINY_COST_S: Final = 100e-6  # An op that takes less for an element spends it on the call, as far as elements are small
_TINY_WHERE_BUSY_S: Final = 300e-6
"""The same for an op of which the processor time alone is that small: the rest is waiting for a core, or a little."""
_TINY_BYTES: Final = 16 * 1024
_ADDS_UP: Final = 0.50
_BATCHES: Final = ("BatchDataset", "ParallelBatchDataset", "PaddedBatchDataset")


@rule(
    "per-element-overhead",
    threshold="the step waits for data or for cores, and half of the pace is in ops that take 32 elements or more "
    "for a batch, each of 16 KiB at most and in under 0.1 ms (0.3 ms where less than 0.1 ms is processor time); a "
    "bottleneck where batching first or gathering helps",
    remedy="Batch first: .batch(n).map(f), with f written for a whole batch; rows of arrays in memory are gathered a "
    "batch at a time, by indices that go through the pipeline in their place.",
    false_alarms="ops that really need that long for an element gain nothing from a batch",
)
def per_element_overhead(evidence: Evidence) -> Findings:
    """Tiny elements, of which a call may cost more than its work."""
    pipeline = evidence.graph
    if not (evidence.limits("input") or evidence.limits("contention")):
        return
    tiny = [op for op in pipeline.ops if _is_tiny(op)]
    share = pace_share(evidence, *tiny)
    maps = [op for op in tiny if op.op.startswith((*MAPS, "FilterDataset", "FlatMapDataset", "InterleaveDataset"))]
    sliced = [op for way in rows_to_batches(pipeline) for op in way if op in tiny]
    costly = most_costly(evidence, maps) or most_costly(evidence, sliced)
    if costly is None or share is None or share < _ADDS_UP:
        return
    elements = costly.elements_per_batch or 0.0
    batch = next((op for op in pipeline.ops if op.op.startswith(_BATCHES)), None)
    number = str(batch.batch_size) if batch is not None and batch.batch_size else "n"
    total_s = sum(op.cost_s or 0.0 for op in tiny)
    function = function_of(costly)
    python = functions_of(costly, pipeline)
    remedy = (
        "Each row costs a step of every op. Let indices go through them, and gather a batch at once: .range(len(x)) in "
        f"place of the slices of x, and .map(lambda rows: tf.gather(x, rows)) behind .batch({number})."
        if costly in sliced
        else f"Batch first: .batch({number}) before .map(...), and let {python[0].name}() take a whole batch: one call "
        f"in place of {elements:.0f}."
        if python
        else f"Batch first: .batch({number}).map({function}), with {function} written for a whole batch (most "
        "TensorFlow ops take a leading dimension as they are, what reads or decodes a file does not)."
    )
    yield per_element_overhead.finding(
        f"{elements:.0f} elements a batch at {1e6 * total_s / elements:.0f} us each, in {_ops(len(tiny))}: calls may "
        "be most of that",
        {
            "elements_per_batch": elements,
            "ops_per_element": len(tiny),
            "cost_s_per_element": total_s / elements,
            "pace_share": share,
            "element_bytes": costly.element_bytes,
            "cost_share": cost_share(evidence, costly),
        },
        remedy,
        at=costly,
        severity="warning" if evidence.limits("input") else "info",
        helps=gain(evidence, "batch-first", "gather"),
    )


def _ops(count: int) -> str:
    return f"the {count} ops that take them one by one, together" if count > 1 else "the op that takes them one by one"


def _is_tiny(op: PipelineOp) -> bool:
    """Whether an op handles many elements for a batch, each small and cheap."""
    if op.cost_s is None or op.elements_per_batch is None or op.elements_per_batch < _MANY_ELEMENTS:
        return False
    small = op.element_bytes is None or op.element_bytes <= _TINY_BYTES
    each_s = op.cost_s / op.elements_per_batch
    computed = op.cpu_s is not None and op.cpu_s / op.elements_per_batch < _TINY_COST_S
    return small and each_s < (_TINY_WHERE_BUSY_S if computed else _TINY_COST_S)


_UNEXPLAINED: Final = (
    "Making an op cheaper gives little. Hand over larger batches or several at once, let a distributed iterator fetch "
    "ahead (tf.distribute.InputOptions), and repeat() before the last prefetch where epochs are short."
)


_BUSY: Final = (
    "It runs in parallel already. Make what it does cheaper, do it once ahead of the training (files of what it "
    "yields, or a cache behind it, before anything random), or give the input more processors."
)


def _runs_in_parallel(op: PipelineOp) -> bool:
    return any(calls not in (None, 1) for calls in (op.parallelism, op.chosen_parallelism))


@rule(
    "input-bound",
    threshold="the input is the verdict, or takes 10 % of the step; always a bottleneck",
    remedy="Make the costly op cheaper, run it in parallel, or cache what it yields.",
    false_alarms="a dataset without a step has nothing to wait for but its input",
)
def input_bound(evidence: Evidence) -> Findings:
    """The step waits for data; the op that sets the pace is named where that is known."""
    if not evidence.limits("input"):
        return
    op = slowest_op(evidence)
    what = f"{op.name} sets the pace" if op is not None else "no op's cost is known" if evidence.pipeline else ""
    unexplained = not explains_wait(evidence)
    if unexplained:
        what = no_op_explains(evidence)
    alone, has_step = evidence.input_alone_s, evidence.has_step or evidence.emulated
    waits = f"{evidence.share('input'):.0%} of the step is waiting for data" if has_step else "no step is beside it"
    yield input_bound.finding(
        f"{waits}; {what or 'its graph was not read'}",
        {
            "wait_s_per_step": evidence.parts.get("input"),
            # of a few batches with the beginning of an epoch among them the mean says nothing
            "batch_without_a_step_s": alone.estimate if alone is not None and 2 * alone.low > alone.estimate else None,
            "op_cost_s_per_batch": op.cost_s if op is not None else None,
            "op_cpu_s_per_batch": op.cpu_s if op is not None else None,
            "cost_share": cost_share(evidence, op),
            "pace_share": pace_share(evidence, op) if op is not None else None,
            "ops_s_per_batch": ops_cost_s(evidence) if unexplained else None,
        },
        _UNEXPLAINED if unexplained else _BUSY if op is not None and _runs_in_parallel(op) else None,
        severity="warning",
        limiting=True,
        at=op,
        # A dataset alone has nothing else to wait for, so that nothing says what would be left.
        predicted_speedup=evidence.max_speedups.get("input") if has_step else None,
    )


_WASTE: Final = 0.30  # Share of padding from which it is worth a word
_SURE: Final = 0.01


@rule(
    "padding-waste",
    threshold="30 % of the largest padded component of the batches examined; a warning from 50 %; never a bottleneck",
    remedy="Batch elements of similar length together: bucket_by_sequence_length with fixed edges.",
    false_alarms="zeros that mean something at the end of an element; batches padded to one shape for XLA",
)
def padding_waste(evidence: Evidence) -> Findings:
    """A good part of a batch is padding, measured on the batches themselves."""
    batches = evidence.batches
    if batches is None or batches.padding_share is None or batches.padding_share < _WASTE:
        return
    useful = 1 - batches.padding_share
    buckets = last_of(evidence, ("GroupByWindowDataset",))
    if buckets is not None:
        remedy = "Its buckets are too wide: more bucket_boundaries, closer together where most elements are."
    elif len(batches.shapes) == 1:
        remedy = (
            "All batches are padded to one length: .bucket_by_sequence_length(length, bucket_boundaries=[...], "
            "bucket_batch_sizes=[...], pad_to_bucket_boundary=True) keeps shapes few and pads less."
        )
    else:
        remedy = (
            "Batch elements of similar length together: bucket_by_sequence_length with fixed edges "
            "(pad_to_bucket_boundary=True keeps shapes few)."
        )
    yield padding_waste.finding(
        f"{batches.padding_share:.0%} of {batches.padding_component} is padding",
        {
            "padding_share": batches.padding_share,
            "padding_efficiency": useful,
            "batches_examined": batches.cached,
            "shapes_of_all_batches": len(batches.shapes),
            "step_s_that_goes_to_padding": _padding_s(evidence, batches.padding_share),
        },
        remedy,
        severity="warning" if batches.padding_share >= 0.5 else "info",
        at=buckets or last_of(evidence, BATCHES),
    )


def _padding_s(evidence: Evidence, padding_share: float) -> float | None:
    """Seconds that padding costs a step, where its time is shown to grow with the elements of the batch."""
    length = evidence.explanation.length if evidence.explanation is not None else None
    if length is None or evidence.steps is None or length.p_value >= _SURE or length.slope_s_per_element <= 0:
        return None
    return length.slope_s_per_element * float(np.mean(evidence.steps.batch_elements)) * padding_share


@rule(
    "dynamic-shape",
    threshold="three shapes, and time lost to tracing or compiling in the steady state; a bottleneck where "
    "compilation is one",
    remedy="Pad to a few fixed edges (buckets), so that each shape is compiled once, before training.",
    false_alarms="shapes that are all seen in the first steps",
)
def dynamic_shape(evidence: Evidence) -> Findings:
    """Batches of several shapes, for which the step is traced or compiled again."""
    batches, steps = evidence.batches, evidence.steps
    if batches is None or steps is None or not evidence.has_step or len(batches.shapes) < 3:
        return
    by_shape = [trace for trace in evidence.traces if trace.reason == "shape"]
    compiles = int(steps.xla_compiles.sum())
    if evidence.share("compile") <= 0 or not (by_shape or compiles):
        return
    limiting = evidence.limits("compile")
    count_only = _differ_in_count_only(batches.shapes)
    yield dynamic_shape.finding(
        f"{len(batches.shapes)} different batch shapes; the step is traced or compiled again for new ones",
        {
            "shapes": len(batches.shapes),
            "traces_by_shape": len(by_shape),
            "xla_compiles_in_steady_state": compiles,
            "example": batches.shapes[-1],
            "only_the_number_of_elements_differs": count_only,
        },
        "Only the number of elements differs: .batch(n, drop_remainder=True), or buckets of one batch size."
        if count_only
        else "Pad to a few fixed edges (buckets), so that each shape is compiled once, before training: "
        "bucket_by_sequence_length(..., pad_to_bucket_boundary=True, drop_remainder=True).",
        severity="warning" if limiting else "info",
        limiting=limiting,
        at=last_of(evidence, ("GroupByWindowDataset",)) or last_of(evidence, BATCHES),
        predicted_speedup=evidence.max_speedups.get("compile") if limiting else None,
    )


def _differ_in_count_only(shapes: Sequence[str]) -> bool | None:
    """Whether signatures such as ``[(8, 9), (8,)]`` differ in first dimensions only; ``None`` where one is no such."""
    rests = set()
    for shape in shapes:
        try:
            signature = ast.literal_eval(shape)
            rests.add(tuple(tuple(tensor[1:]) for tensor in signature))
        except (ValueError, SyntaxError, TypeError):
            return None
    return len(rests) == 1


@rule(
    "nan-batch",
    threshold="one such number in the batches examined, of a target that is no script; never a bottleneck",
    remedy="Find the element: tf.debugging.check_numerics in the last map raises at the first.",
    false_alarms="infinity as a mask, as in attention",
)
def nan_batch(evidence: Evidence) -> Findings:
    """Batches that hold NaN or infinity, of which a model learns nothing."""
    if evidence.batches is not None and evidence.batches.nonfinite:
        names = ", ".join(evidence.batches.nonfinite)
        yield nan_batch.finding(
            f"the batches hold NaN or infinity ({names})",
            {"components": names, "batches": evidence.batches.cached},
            severity="critical",
        )
