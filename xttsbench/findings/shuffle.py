"""The rules on shuffles: `shuffle-fill`, `shuffle-after-batch`."""

from __future__ import annotations

from typing import Final

import numpy as np

from xttsbench.evidence import Evidence
from xttsbench.evidence.pipeline import (
    BATCHES,
    LARGE,
    TOO_LARGE,
    bytes_of,
    function_of,
    input_of,
    memory_bytes,
    upstream,
)
from xttsbench.findings.rule import Findings, is_main, most_costly, pace_s, rule
from xttsbench.fixes.gather import SLICES
from xttsbench.records.pipeline import PipelineOp, size

_SLOW_FILL_S: Final = 2.0  # A buffer that takes less to fill goes unnoticed, unless epochs are short
_VERY_SLOW_FILL_S: Final = 30.0
_MUCH_BYTES: Final = 256 << 20  # Of small elements, most of which is not their data
_BESIDE_BYTES: Final = 200.0
"""Memory that a buffered element takes beside its data, one tensor of it at least: 211 of the 215 bytes that each of a
million float32 took (measured with TensorFlow 2.21)."""


@rule(
    "shuffle-fill",
    threshold="filling takes 2 s or 10 % of an epoch, or the buffer 10 % of the memory or, of small elements, 256 "
    "MiB; never a bottleneck",
    remedy="A smaller buffer, or shuffle names and numbers in place of data.",
    false_alarms="none known",
)
def shuffle_fill(evidence: Evidence) -> Findings:
    """A shuffle buffer that must be full before the first element comes: what that takes in time and memory."""
    pipeline = evidence.graph
    for op in pipeline.ops:
        if not op.op.startswith("Shuffle") or not op.buffer_size or op.buffer_size < 0:
            continue
        before = upstream(pipeline, op)
        source = input_of(pipeline, op)
        there = source.cardinality if source is not None else op.cardinality
        held = min(op.buffer_size, there) if there is not None and there >= 0 else op.buffer_size
        fill_s, first_s = _fill_s(evidence, op, held), _first_wait_s(evidence)
        if fill_s is not None and first_s is not None and first_s < 0.3 * fill_s:
            fill_s = None  # the run itself began sooner than that
        each, memory = bytes_of(evidence, op), memory_bytes(evidence)
        held_bytes = held * (each + _BESIDE_BYTES) if each is not None else None
        small = each is not None and each <= _BESIDE_BYTES
        share = held_bytes / memory if held_bytes is not None and memory else None
        of_epoch = _share_of_epoch(evidence, op, there, fill_s)
        slow = fill_s is not None and (fill_s >= _SLOW_FILL_S or (of_epoch or 0.0) >= LARGE)
        much = (share or 0.0) >= LARGE or (small and held_bytes is not None and held_bytes >= _MUCH_BYTES)
        if not slow and not much:
            continue
        bad = (share or 0.0) >= TOO_LARGE or (fill_s or 0.0) >= _VERY_SLOW_FILL_S or (of_epoch or 0.0) >= TOO_LARGE
        heavy = most_costly(evidence, [own for own in before if own.op.startswith(("Map", "ParallelMap"))])
        remedy = shuffle_fill.remedy
        if heavy is not None and is_main(evidence, heavy):
            first = f"Shuffle before .map({function_of(heavy)}), where the elements are still names or numbers"
            remedy = f"{first}: {heavy.name} is done for the whole buffer first."
        elif small and source is not None and source.op == SLICES and held == there:
            remedy = _as_one_tensor(held)
        takes = [f"{fill_s:.2g} s"] if slow and fill_s is not None else []
        if held_bytes is not None and each is not None:
            takes.append(size(held_bytes) + (f", of which {size(held * each)} are data" if small else ""))
        yield shuffle_fill.finding(
            f"{op.name} fills {held} elements before the first batch ({', '.join(takes)})",
            {
                "buffer_size": op.buffer_size,
                "filled_elements": held,
                "fill_s": fill_s,
                "share_of_epoch": of_epoch,
                "first_wait_s": first_s,
                "buffered_bytes": held_bytes,
                "share_of_memory": share,
            },
            f"{remedy} It is paid at the start{'' if _is_filled_once(evidence, op) else ' of each epoch'}.",
            at=op,
            severity="warning" if bad else "info",
        )


def _as_one_tensor(rows: int) -> str:
    """Code to write in place of a full shuffle of small rows in memory."""
    return (
        "Each row is a tensor of its own there, kept as long as the iterator is. Shuffle all row numbers as one "
        f"tensor, {size(8.0 * rows)}: rows = "
        "tf.data.Dataset.range(1).flat_map(lambda _: tf.data.Dataset.from_tensor_slices("
        f"tf.random.shuffle(tf.range({rows}, dtype=tf.int64)))), which draws another order in each epoch, and gather "
        "behind the batch: rows.batch(n).map(lambda taken: tf.gather(x, taken)) for each array x."
    )


def _fill_s(evidence: Evidence, op: PipelineOp, elements: int) -> float | None:
    """Seconds until a buffer is full, from what an element costs above it; ``None`` where that is not known."""
    if not op.elements_per_batch:
        return None
    paces = [pace for own in upstream(evidence.graph, op) if (pace := pace_s(evidence, own)) is not None]
    return sum(paces) / op.elements_per_batch * elements if paces else None


def _share_of_epoch(evidence: Evidence, op: PipelineOp, elements: int | None, fill_s: float | None) -> float | None:
    """The fill beside the time that an epoch takes now; ``None`` where its length is not known."""
    if _is_filled_once(evidence, op) or fill_s is None or not evidence.wall_s:
        return None
    if not elements or elements < 0 or not op.elements_per_batch:
        return None
    return fill_s / (elements / op.elements_per_batch * evidence.wall_s)


def _is_filled_once(evidence: Evidence, op: PipelineOp) -> bool:
    """Whether a buffer is not filled anew in each epoch: it reads a data set that repeats, or is what is repeated.

    TensorFlow makes one op of a shuffle and the repeat behind it, which goes on filling from the next epoch.
    """
    after = [own for own in evidence.graph.ops if op.name in own.inputs]
    is_repeated = bool(after) and all(own.op.startswith("Repeat") for own in after)
    return is_repeated or any(own.op.startswith("Repeat") for own in upstream(evidence.graph, op))


def _first_wait_s(evidence: Evidence) -> float | None:
    waits = [
        segment.columns["wait_ns"][0] / 1e9
        for trial in evidence.ladder
        if (segment := trial.segment("as_is")) is not None and segment.columns.get("wait_ns")
    ]
    return float(np.mean(waits)) if waits else None


_NO_FAULT: Final = ("Shuffle", "Unbatch", "GroupByWindow")
"""Ops before it that mix the elements already, take the batches apart, or make buckets whose order is to be mixed."""


@rule(
    "shuffle-after-batch",
    threshold="a shuffle that reads batches, with no other shuffle, unbatch or buckets before it; never a bottleneck",
    remedy="Shuffle before .batch(...): the elements mix, and the buffer counts elements, not batches.",
    false_alarms="batches that belong together, such as consecutive pieces of one recording",
)
def shuffle_after_batch(evidence: Evidence) -> Findings:
    """A shuffle of whole batches: it mixes batches and not their elements, and its buffer counts batches."""
    for op in evidence.graph.ops:
        before = upstream(evidence.graph, op)
        batch = next((own for own in before if own.op.startswith(BATCHES)), None)
        if not op.op.startswith("Shuffle") or batch is None or any(own.op.startswith(_NO_FAULT) for own in before):
            continue
        count, each = op.buffer_size or 0, bytes_of(evidence, op)
        yield shuffle_after_batch.finding(
            f"{op.name} shuffles whole batches: what {batch.name} put together stays together in every epoch",
            {
                "buffer_size": op.buffer_size,
                "buffered_bytes": count * each if each is not None and count > 0 else None,
                "batch": batch.name,
                "batch_line": batch.location.line,
            },
            at=op,
        )
