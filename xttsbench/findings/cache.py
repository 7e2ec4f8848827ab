"""The rules on caches: `cacheable`, where one would help, and `cache-misuse`, where one does harm or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xttsbench.evidence import Evidence
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
from xttsbench.findings.rule import Findings, Gain, accepted, cost_share, gain, is_main, pace_share, rule
from xttsbench.fixes.cache import cache_places, cut_by, elements_in_a_pass, shuffled_bytes
from xttsbench.records.fix import FixSet
from xttsbench.records.pipeline import Pipeline, PipelineOp, every_op, size
from xttsbench.throughput.threads import chain_before

_EXPENSIVE: Final = 0.50
"""Share of the pace that the ops before a cache must have to be worth one where nothing says what it gives."""
_SHORT_EPOCH_S: Final = 600.0  # A data set that takes no longer to go through is hardly trained on once
_LONGEST_EPOCH_S: Final = 24 * 3600.0  # A data set that takes longer to go through is hardly seen twice


@rule(
    "cacheable",
    threshold="the step waits for data or for cores, and a cache was measured or estimated to help or, where nothing "
    "says what one gives, ops that draw nothing at random have 50 % of the pace; a bottleneck only where it helps",
    remedy="Keep it with .cache() after this op, before anything random.",
    false_alarms="one pass over the data gains nothing; a Python function may return something else each time",
)
def cacheable(evidence: Evidence) -> Findings:
    """An expensive beginning of the pipeline that could be kept."""
    pipeline = evidence.graph
    if not (evidence.limits("input") or evidence.limits("contention")):
        return
    taken = _accepted_place(evidence, pipeline)
    best = taken or _best_place(evidence, pipeline)
    if best is None:
        return
    op, found = best
    orderings = [own for own in pipeline.ops if own.name in chain_before(op, pipeline).orderings]
    again = any(own.op.startswith("Repeat") for own in (*downstream(pipeline, op), *orderings))
    helps = found if taken or again or _is_seen_again(evidence, pipeline, op, found) else None
    share = pace_share(evidence, *_kept(pipeline, op))
    memory, each, elements = memory_bytes(evidence), bytes_of(evidence, op), elements_in_a_pass(op, pipeline)
    if taken is None and (each is None or elements is None or share is None):
        return
    held = None if each is None or elements is None else each * elements
    in_memory = memory is not None and held is not None and held <= CACHE_MEMORY_SHARE * memory
    if taken is not None:
        in_memory = True
    elif not in_memory and memory is not None and shuffled_bytes(op, pipeline) > CACHE_MEMORY_SHARE * memory:
        return  # on a disk it would fit, and the shuffle behind it would not
    where = "in memory: .cache()" if in_memory else "on a local disk: .cache('/path/of/the/cache')"
    python = [own for own in _kept(pipeline, op) if own.python_functions]
    remedy = f"Keep it {where} after this op, {_before(orderings)}. The first epoch takes as long as now."
    if python and (helps is None or helps.changes is None):
        remedy += " Provided that its Python functions give the same for the same element every time."
    kept = "" if held is None else f", {size(held)} if they were kept"
    shares = [cost_share(evidence, own) for own in _kept(pipeline, op)]
    if None not in shares and len(shares) > 1:
        kept = f" (with the ops before it {sum(filter(None, shares)):.0%} of the time of all ops){kept}"
    yield cacheable.finding(
        f"{op.name} makes its {'' if elements is None else f'{elements:,.0f} '}elements anew each time through{kept}",
        {
            "pace_share_up_to_it": share,
            "elements": None if elements is None else round(elements),
            "bytes": held,
            "fits_in_memory": in_memory if memory is not None else None,
            "epoch_s": _epoch_s(evidence, pipeline, op),
            "python_functions": len(python),
        },
        remedy,
        at=op,
        severity="warning" if again else "info",
        helps=helps,
    )


def _accepted_place(evidence: Evidence, pipeline: Pipeline) -> tuple[PipelineOp, Gain] | None:
    """Place of the cache that was accepted, alone or with other fixes, whatever else is known of it."""
    places = ((op, accepted(evidence, f"cache@{op.name}")) for op in pipeline.ops)
    return next(((op, found) for op, found in places if found is not None), None)


def _best_place(evidence: Evidence, pipeline: Pipeline) -> tuple[PipelineOp, Gain | None] | None:
    """Best place for a cache: most gain, and among places of nearly as much gain the least held memory.

    Among places with a measured or estimated gain where there are any; else the share of the pace before it decides.
    """
    # What is advised here is what the search for fixes looks at.
    known = {one.op.name for one in cache_places(pipeline, evidence.environment)}
    places = [op for op in pipeline.ops if op.name in known and _repeats(evidence, pipeline, op)]
    places = [op for op in places if is_main(evidence, *_kept(pipeline, op))]
    gains = [(op, found) for op in places if (found := gain(evidence, f"cache@{op.name}")) is not None]
    worth = {op.name: found.speedup.estimate for op, found in gains}
    if gains:
        places = [op for op, _ in gains]
    elif evidence.limits("input") and _is_judged(evidence):
        return None  # and none of those that were is worth it
    else:
        worth = {op.name: pace_share(evidence, *_kept(pipeline, op)) or 0.0 for op in places}
        places = [op for op in places if worth[op.name] >= _EXPENSIVE]
    if not places:
        return None
    most = max(worth[op.name] for op in places)
    close = [op for op in places if worth[op.name] >= 0.95 * most]
    chosen = min(close, key=lambda op: (bytes_of(evidence, op) or 0.0) * (elements_in_a_pass(op, pipeline) or 0))
    return chosen, next((found for op, found in gains if op is chosen), None)


def _repeats(evidence: Evidence, pipeline: Pipeline, op: PipelineOp) -> bool:
    """Whether an op yields known elements without side effects."""
    if not elements_in_a_pass(op, pipeline) or bytes_of(evidence, op) is None:
        return False
    before = every_op(_before_cache(pipeline, op))
    if any(own.side_effects and not own.python_functions for own in before):
        return False
    epoch_s = _epoch_s(evidence, pipeline, op)
    return epoch_s is None or epoch_s <= _LONGEST_EPOCH_S


def _is_judged(evidence: Evidence) -> bool:
    """Whether a cache somewhere was measured, or the model says what one gives."""
    measured = any("cache" in FixSet.parse(name) for name in evidence.fixes)
    return measured or any("cache" in FixSet.parse(found.name) and found.speedup for found in evidence.predictions)


def _is_seen_again(evidence: Evidence, pipeline: Pipeline, op: PipelineOp, helps: Gain | None) -> bool:
    """Whether a data set without ``repeat`` is as good as sure to be gone through again, and to be the same then."""
    epoch_s = _epoch_s(evidence, pipeline, op)
    return helps is not None and helps.changes is None and epoch_s is not None and epoch_s <= _SHORT_EPOCH_S


def _kept(pipeline: Pipeline, op: PipelineOp) -> list[PipelineOp]:
    """The ops that a cache after ``op`` saves: those before it, without what another one saves already."""
    before = _before_cache(pipeline, op)
    saved = {own.name for cache in before if cache.op.startswith("Cache") for own in upstream(pipeline, cache)}
    return [own for own in before if own.name not in saved]


def _before_cache(pipeline: Pipeline, op: PipelineOp) -> list[PipelineOp]:
    """The ops up to ``op``, without the shuffles and repeats that come after a cache of it."""
    later = chain_before(op, pipeline).orderings
    return [own for own in (*upstream(pipeline, op), op) if own.name not in later]


def _epoch_s(evidence: Evidence, pipeline: Pipeline, op: PipelineOp) -> float | None:
    """Seconds of an epoch now, judged by the number of elements of ``op``; ``None`` where not known."""
    elements = elements_in_a_pass(op, pipeline)
    if not evidence.wall_s or not op.elements_per_batch or elements is None:
        return None
    return elements / op.elements_per_batch * evidence.wall_s


def _before(orderings: Sequence[PipelineOp]) -> str:
    """Phrase for the place of a cache, relative to the shuffles and repeats."""
    calls = " and ".join(f".{'shuffle' if 'Shuffle' in own.op else 'repeat'}(...)" for own in orderings)
    return f"and write {calls} behind it, not before the map" if orderings else "before anything random"


@rule(
    "cache-misuse",
    threshold="random ops before the cache, an endless input, an op behind it that ends the epoch before its input "
    "ends, or half of the memory in one; a bottleneck only where it is never filled",
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
    yield cache_misuse.finding(
        f"{op.name} keeps the {what} of the first epoch for all others ({first.name} is before it)",
        {"fault": "frozen", "random_op": first.name, "random_line": first.location.line, "only_order": only_order},
        remedy,
        at=op,
        severity="warning",
    )


def _endless(evidence: Evidence, op: PipelineOp, source: PipelineOp | None) -> Findings:
    if INFINITE not in (op.cardinality, source.cardinality if source is not None else None):
        return
    each = bytes_of(evidence, op)
    yield cache_misuse.finding(
        f"{op.name} caches a data set without an end: it grows with every element and is never read",
        {"fault": "endless", "element_bytes": each, "in_memory": op.filename == ""},
        "Put .cache() before .repeat().",
        at=op,
        severity="warning",
    )


def _cut_short(evidence: Evidence, pipeline: Pipeline, op: PipelineOp) -> Findings:
    """Finds an op that ends the iteration before the cache has seen the end of its input, so that it is thrown away."""
    if (cut := cut_by(op, pipeline)) is None:
        return
    yield cache_misuse.finding(
        f"{op.name} is never filled: {cut.name} ends the epoch before the cache has read its input, so it is discarded",
        {
            "fault": "cut short",
            "cached_elements": op.cardinality,
            "cut_by": cut.name,
            "cut_line": cut.location.line,
            "elements_taken": cut.cardinality,
            "pace_share_up_to_it": pace_share(evidence, *upstream(pipeline, op)),
        },
        "Put .take(n) before .cache()." if cut.op.startswith("Take") else "Make both sides of zip() equally long.",
        at=op,
        severity="warning" if evidence.limits("input") else "info",
        helps=gain(evidence, *(f"cache@{name}" for name in (op.name, *op.inputs, cut.name))),
    )


def _too_large(evidence: Evidence, op: PipelineOp) -> Findings:
    memory, each = memory_bytes(evidence), bytes_of(evidence, op)
    if memory is None or each is None or op.filename != "" or op.cardinality is None or op.cardinality < 0:
        return
    held = each * op.cardinality
    if held <= CACHE_MEMORY_SHARE * memory:
        return
    yield cache_misuse.finding(
        f"{op.name} will hold {size(held)}; the process may use {size(memory)}",
        {"fault": "too large", "elements": op.cardinality, "element_bytes": each, "share_of_memory": held / memory},
        "Cache on disk (.cache('/path/of/the/cache')), or cache what is smaller: before decoding, or as uint8.",
        at=op,
        severity="critical" if held > memory else "warning",
    )
