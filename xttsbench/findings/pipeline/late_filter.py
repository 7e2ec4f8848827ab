"""The rule `late-filter`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.pipeline import MAPS, function_of
from xttsbench.findings.rule import MAIN_SHARE, Findings, finding, gain, most_costly, pace_share, rule
from xttsbench.records.pipeline import PipelineOp

_LETS_PASS: Final = ("PrefetchDataset", "CacheDataset", "OptionsDataset", "ShuffleDataset", "AssertCardinalityDataset")
"""Ops that neither change elements nor how many there are, so that a filter may go before them."""
_NOTICEABLE: Final = 0.05
"""Share of the cost that a filter must throw away to be worth a word."""
_KEEPS_ALL: Final = 0.99


@rule(
    "late-filter",
    evidence="share of the elements that it keeps, and the share of the pace that goes to what is thrown away",
    threshold="5 % of the pace thrown away; a bottleneck where filtering first was measured or estimated to help",
    remedy="Filter first: .filter(...) before the map, on what that map is given.",
    false_alarms="a filter that throws nothing away (99 % kept) is not reported",
)
def late_filter(evidence: Evidence) -> Findings:
    """A filter after work that it does not look at, so that the work is done for what it throws away."""
    pipeline = evidence.graph
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
                late_filter,
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
    """Share of the elements that a filter lets through."""
    if source is None or not source.elements_per_batch or op.elements_per_batch is None:
        return None
    return op.elements_per_batch / source.elements_per_batch
