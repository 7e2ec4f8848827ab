"""The part of a pipeline that workers of TensorFlow's tf.data service could run, and what keeps the rest here.

Pure. What is said of the service was tried with two worker processes on TensorFlow 2.21. Workers run a copy of the
graph: Python functions and iterators are not there, variables and random generators are as they were when the dataset
was made, tables come along with their entries. Under ``DYNAMIC`` each element of a source goes to one worker, so that
whatever counts elements counts those of its worker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from xttsbench.fixes.spec import with_upstream
from xttsbench.records.pipeline import (
    Leaving,
    Pin,
    Pipeline,
    PipelineOp,
    PythonFunction,
    Sharding,
    every_op,
    kind_of_op,
    place,
    size,
)
from xttsbench.throughput.threads import inputs_of

SPLITS: Final = ("Range", "TensorSlice", "Tensor")
"""Kinds of sources whose elements the dispatcher can hand out one by one."""
_EACH_ALONE: Final = re.compile(
    r"Map(AndBatch)?|Filter|FlatMap|Interleave|Shuffle(AndRepeat)?|(Padded|DenseToRagged)?Batch|Rebatch|Unbatch|Repeat"
    r"|GroupByWindow|Concatenate|Prefetch|Sleep|Options|Model"
)
"""Kinds of ops of which a worker can run its share: what one element gives depends on no count of others."""
_COUNTS: Final = re.compile(r"Take(While)?|Skip|Shard|Zip|Scan|(Sliding)?Window|DirectedInterleave|Unique|Random")
"""Kinds of ops that give other elements where those before them come in another order, or in part."""
_KEEPS: Final = ("Cache", "Snapshot", "Save")
_AT_THE_END: Final = ("Prefetch", "Options", "Model")  # worth having in this process, where the step takes from them
_SHUFFLES: Final = ("Shuffle", "ShuffleAndRepeat")
_READERS: Final = ("TFRecord", "TextLine", "FixedLengthRecord")
_SHARED: Final = re.compile(r".+://|nfs\d?|cifs|smb3|ceph|lustre|gpfs|glusterfs|beegfs|9p|fuse\.\w+")
"""File systems that several hosts can mount, and URLs."""
_LARGE: Final = 2**20  # bytes of data in memory from which on they are worth a word


def leaving(pipeline: Pipeline) -> Leaving:
    """The part of a pipeline that can leave, where ``distribute`` would stand, and what keeps the rest."""
    pins = [pin for op in pipeline.ops for pin in _pins(op, pipeline)]
    held = {pin.op for pin in pins if not pin.only_other_hosts}
    counting = next((op for op in pipeline.ops if _COUNTS.fullmatch(kind_of_op(op.op))), None)
    movable = [op for op in pipeline.ops if not with_upstream(op, pipeline) & held]
    while movable and kind_of_op(movable[-1].op) in _AT_THE_END:
        movable.pop()
    last = movable[-1] if movable and counting is None else None
    if last is None or not inputs_of(last, pipeline):
        name = counting.name if counting is not None else None
        first = next((pin for pin in pins if pin.op in held and pin.op == (name or pin.op)), None)
        why = f"at {at(first)}, {first.why}" if first is not None else "no op of it is known"
        return Leaving(pins=tuple(pins), refused=f"nothing of the pipeline can run elsewhere: {why}")
    moved = with_upstream(last, pipeline)
    ops = [op for op in pipeline.ops if op.name in moved]
    carried = sum(op.embedded_bytes for op in ops)
    return Leaving(
        pins=tuple(pins),
        after=last.name,
        location=place(last),
        share=_share(ops, pipeline),
        carried_bytes=carried if carried >= _LARGE else 0,
        copied=tuple(_copied(ops, carried)),
        shardings=tuple(_shardings(ops)),
    )


def at(pin: Pin) -> str:
    """Place of a pin for a person."""
    found = pin.location
    return f"{found.file}:{found.line}" if found.file else pin.op


def _pins(op: PipelineOp, pipeline: Pipeline) -> Iterator[Pin]:
    for one in pipeline.python_functions:
        if one.token in op.python_functions:
            where = one.location if one.location.file else place(op)
            why = f"it calls the Python {one.kind} {one.name}, which is in this process alone"
            yield Pin(op=op.name, location=where.model_copy(update={"op": op.name}), why=why, frees=_frees(one))
    storage = op.files_on or ""
    if storage and not _SHARED.fullmatch(storage):
        frees = "put them on storage that all hosts mount at the same path"
        why = f"its files are on this machine ({storage})"
        yield Pin(op=op.name, location=place(op), why=why, frees=frees, only_other_hosts=True)
    if not op.python_functions and (kept := _kept(op, pipeline)) is not None:
        yield Pin(op=op.name, location=place(op), why=kept[0], frees=kept[1])


def _frees(function: PythonFunction) -> str:
    """Remedy that would let a Python function leave."""
    if function.kind == "generator":
        way = "open-generator, and native for its body" if function.parts is not None else "no fix of xttsbench"
        return f"{way}; or write what it yields into files"
    native = function.native
    if native is not None and native.refused is None:
        return "the fix native, which makes it ops of TensorFlow"
    return "write it with ops of TensorFlow" + (f" (the fix native does not: it {native.refused})" if native else "")


def _kept(op: PipelineOp, pipeline: Pipeline) -> tuple[str, str | None] | None:
    """Why an op that calls no Python has to run here, and what would let it leave; ``None`` where it can."""
    kind, inside = kind_of_op(op.op), list(every_op((op,)))
    captured = {word for one in inside for word in one.captures}
    if "iterator" in captured:
        return "it reads an iterator of this process", "have the pipeline read that dataset itself"
    if "variable" in captured:
        return (
            "it reads a variable, of which workers have the value from when the dataset was made",
            "hand the value over as a part of each element",
        )
    if kind == "Random" or "generator" in captured or (op.random and kind not in _SHUFFLES):
        return (
            "it draws random numbers: from one seed, or a copy of one generator, all workers draw the same",
            "draw them behind it, or by tf.random.stateless_* from a part of each element",
        )
    if op.side_effects:
        return "it prints, writes or assigns, which workers would do elsewhere", None
    if kind in _KEEPS:
        return "what it keeps would be kept by each worker, of its own share", "what comes before it can leave"
    if _COUNTS.fullmatch(kind):
        return "it counts elements, or pairs them by their order, and each worker has its own share of them", None
    if kind not in SPLITS and not _EACH_ALONE.fullmatch(kind):
        return "whether workers could share it out is not known", None
    if any(one.drops_rest for one in inside):
        return (
            "it drops the last, smaller batch: each worker would drop one of its own",
            "drop_remainder=False, or batches made behind what leaves",
        )
    if op.endless:
        return "it repeats without end, and workers would not end an epoch together", "repeat() behind what leaves"
    before = [one for one in pipeline.ops if one.name in with_upstream(op, pipeline)]
    if op.op.startswith("InterleaveDataset") and any(kind_of_op(one.op) in _SHUFFLES for one in before):
        return (
            "a sequential interleave behind a shuffle is given each file on every worker (TensorFlow 2.21)",
            "num_parallel_calls, which the fix parallel-interleave gives it",
        )
    return None


def _share(ops: list[PipelineOp], pipeline: Pipeline) -> float | None:
    """Share of some ops in the time of all; ``None`` where that is not known."""
    moved, total = (sum(0.0 if op.cached else op.cost_s or 0.0 for op in some) for some in (ops, pipeline.ops))
    return moved / total if total > 0 else None


def _copied(ops: list[PipelineOp], carried_bytes: int) -> Iterator[str]:
    if carried_bytes >= _LARGE:
        yield f"{size(carried_bytes)} of data in memory travel with the graph to each worker"
    for op in ops:
        if any("table" in one.captures for one in every_op((op,))):
            yield f"{op.name} reads a table: each worker gets its entries as they were when the dataset was made"


def _shardings(ops: list[PipelineOp]) -> Iterator[Sharding]:
    """The policies for ops of which each worker can run its share."""
    yield Sharding(policy="OFF", once=False, why="each worker yields everything: N workers give each sample N times")
    source = ops[0]
    shares = f"{source.cardinality:,}" if source.cardinality and source.cardinality > 0 else "the"
    why = f"each of {shares} elements of {source.name} goes to one worker; those of a lost worker are lost"
    yield Sharding(policy="DYNAMIC", once=True, why=why)
    reads = any(kind_of_op(one.op) in _READERS for one in every_op(ops))
    why = "each worker reads files of its own" if reads else "it reads no files that TensorFlow could share out"
    yield Sharding(policy="FILE", once=reads, why=f"{why}; it needs the addresses of all workers at the start")
    drawn = next((op for op in ops if op.random), None)
    why = "each worker makes everything and keeps its share, so only what comes behind it is faster"
    if drawn is not None:
        why = f"{drawn.name} gives another order on each worker, and their shares overlap"
    yield Sharding(policy="DATA", once=drawn is None, why=why)
