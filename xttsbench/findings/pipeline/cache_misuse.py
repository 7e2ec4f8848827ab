"""The rule `cache-misuse`."""

from __future__ import annotations

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.pipeline import (
    CACHE_MEMORY_SHARE,
    INFINITE,
    bytes_of,
    downstream,
    function_of,
    input_of,
    memory_bytes,
    upstream,
)
from xttsbench.findings.rule import Findings, finding, gain, pace_share, rule
from xttsbench.records.pipeline import Pipeline, PipelineOp, every_op, size
from xttsbench.records.report import Finding


@rule(
    "cache-misuse",
    evidence="which fault, the op behind it and its line, elements and bytes",
    threshold="random ops before it; an endless input; an end before the input's own; more than half of the memory",
    remedy="Cache what is finite and not random, before shuffle and repeat, and let it be read to its end once.",
    false_alarms="freezing the order can be meant, for the same batches in each epoch",
)
def cache_misuse(evidence: Evidence) -> Findings:
    """A cache that freezes what should be random, is never filled, grows without end, or does not fit."""
    pipeline = evidence.graph
    for op in pipeline.ops:
        if not op.op.startswith("CacheDataset"):
            continue
        yield from _frozen(pipeline, op)
        yield from _endless(evidence, op, input_of(pipeline, op))
        yield from _cut_short(evidence, pipeline, op)
        yield from _too_large(evidence, op)


def _frozen(pipeline: Pipeline, op: PipelineOp) -> Findings:
    drawn = [own for own in upstream(pipeline, op) if any(each.random for each in every_op((own,)))]
    if not drawn:
        return
    first = drawn[0]
    only_order = all(own.op.startswith("Shuffle") for own in drawn)
    what = "order" if only_order else "random numbers"
    remedy = (
        "Shuffle after .cache(), so that each epoch has another order."
        if only_order
        else f"Put .cache() before {first.name}"
        f"{f' (.map({function_of(first)}))' if 'Map' in first.op else ''}: what is drawn there is drawn once, and "
        "every epoch sees the same."
    )
    yield finding(
        cache_misuse,
        f"{op.name} keeps the {what} of the first epoch for all others ({first.name} is before it)",
        op,
        {"fault": "frozen", "random_op": first.name, "random_line": first.location.line, "only_order": only_order},
        remedy,
        severity="warning",
    )


def _endless(evidence: Evidence, op: PipelineOp, source: PipelineOp | None) -> Findings:
    if INFINITE not in (op.cardinality, source.cardinality if source is not None else None):
        return
    each = bytes_of(evidence, op)
    yield finding(
        cache_misuse,
        f"{op.name} caches a data set without an end: it grows with every element and is never read",
        op,
        {"fault": "endless", "element_bytes": each, "in_memory": op.filename == ""},
        "Put .cache() before .repeat().",
        severity="warning",
    )


def _cut_short(evidence: Evidence, pipeline: Pipeline, op: PipelineOp) -> Findings:
    """What ends the iteration before the cache has seen the end of its input, so that it is thrown away.

    A cache is complete once its last element was read (tried on TensorFlow 2.21): ``take`` of exactly as many is fine.
    """
    if op.cardinality is None or op.cardinality <= 0:
        return
    reading = {op.name: op.cardinality}  # elements that an op on the way yields when it is read to its end
    for own in downstream(pipeline, op):
        sources = [name for name in own.inputs if name in reading]
        if not sources or own.cardinality is None or own.cardinality == -2:
            return
        whole = reading[sources[0]]
        cuts = own.op.startswith("TakeDataset") or (own.op.startswith("ZipDataset") and len(own.inputs) > 1)
        if cuts and 0 <= own.cardinality < whole:
            yield _thrown_away(evidence, pipeline, op, own)
            return
        if whole == INFINITE or own.op.startswith(("Repeat", "Skip", "Shard", "Concatenate")):
            return  # it may well be read to its end once
        reading[own.name] = own.cardinality


def _thrown_away(evidence: Evidence, pipeline: Pipeline, op: PipelineOp, cut: PipelineOp) -> Finding:
    share = pace_share(evidence, *upstream(pipeline, op))
    helps = gain(evidence, f"cache@{op.name}", *(f"cache@{name}" for name in (*op.inputs, cut.name)))
    waits = evidence.limits("input")
    return finding(
        cache_misuse,
        f"{op.name} is never filled: {cut.name} ends the epoch before the cache has read its input, so it is discarded",
        op,
        {
            "fault": "cut short",
            "cached_elements": op.cardinality,
            "cut_by": cut.name,
            "cut_line": cut.location.line,
            "elements_taken": cut.cardinality,
            "pace_share": share,
        },
        "Put .take(n) before .cache()." if cut.op.startswith("Take") else "Make both sides of zip() equally long.",
        limits=helps,
        severity="warning" if waits else "info",
    )


def _too_large(evidence: Evidence, op: PipelineOp) -> Findings:
    memory, each = memory_bytes(evidence), bytes_of(evidence, op)
    if memory is None or each is None or op.filename != "" or op.cardinality is None or op.cardinality < 0:
        return
    held = each * op.cardinality
    if held <= CACHE_MEMORY_SHARE * memory:
        return
    yield finding(
        cache_misuse,
        f"{op.name} will hold {size(held)}; the process may use {size(memory)}",
        op,
        {"fault": "too large", "elements": op.cardinality, "element_bytes": each, "share_of_memory": held / memory},
        "Cache on disk (.cache('/path/of/the/cache')), or cache what is smaller: before decoding, or as uint8.",
        severity="critical" if held > memory else "warning",
    )
