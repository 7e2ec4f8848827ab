"""The rule `sequential-read`."""

from __future__ import annotations

from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.pipeline import function_of, input_of
from xttsbench.findings.rule import Findings, blamed, cost_share, finding, gain, is_main, most_costly, pace_share, rule
from xttsbench.fixes.calls import stays_at_one_call
from xttsbench.records.pipeline import Pipeline, PipelineOp, every_op

READERS: Final = ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset")
"""Ops that read a file's records; the classes of these names take ``num_parallel_reads``."""


@rule(
    "sequential-read",
    evidence="number of sources, cycle length, kind of reader, shares of cost and pace",
    threshold="reading in parallel was measured or estimated to help, or was not tried and the op has 30 % of the pace",
    remedy="Read several at once: .interleave(..., num_parallel_calls=tf.data.AUTOTUNE), or num_parallel_reads.",
    false_alarms="on one spinning disk several readers can be slower; the elements come in another order",
)
def sequential_read(evidence: Evidence) -> Findings:
    """Files, or other sources, read one after the other, where reading several at once helps."""
    helps = gain(evidence, "parallel-interleave")
    if not evidence.limits("input"):
        return
    op = most_costly(evidence, [op for op in evidence.graph.ops if _reads_in_turn(evidence.graph, op)])
    if op is None:
        return
    untried = (
        not any(name.startswith("parallel-interleave") for name in evidence.fixes) and _file_reader(op) is not None
    )
    if not (blamed(evidence, helps, op) if helps is not None else untried and is_main(evidence, op)):
        return
    source = input_of(evidence.graph, op)
    files = source.cardinality if source is not None and (source.cardinality or 0) > 0 else None
    reader = _file_reader(op)
    cycle = f"cycle_length={min(files, 16)}, " if files else ""
    interleave = f".interleave({function_of(op)}, {cycle}num_parallel_calls=tf.data.AUTOTUNE)"
    remedy = (
        f"Read several at once: tf.data.{reader}(files, num_parallel_reads=tf.data.AUTOTUNE)."
        if reader is not None and len(op.inner) == 1 and op.op.startswith("FlatMap")
        else f"Read several at once: {interleave}."
    )
    if stays_at_one_call(op):
        calls = (
            f"cycle_length={min(files, 16)}, num_parallel_calls={min(files, 16)}" if files else "num_parallel_calls=4"
        )
        remedy = f"AUTOTUNE runs one call here. Say how many: .interleave({function_of(op)}, {calls})."
    yield finding(
        sequential_read,
        f"{op.name} reads its {f'{files} ' if files else ''}sources one at a time",
        op,
        {
            "cost_share": cost_share(evidence, op),
            "pace_share": pace_share(evidence, op),
            "sources": files,
            "cycle_length": op.cycle_length,
            "reader": reader,
        },
        f"{remedy} The elements are the same, in another order (one that repeats, unless deterministic=False)."
        + ("" if helps is not None else " What it would give was neither tried nor estimated here."),
        limits=helps,
        severity="warning",
    )


def _reads_in_turn(pipeline: Pipeline, op: PipelineOp) -> bool:
    """Whether an op reads several sources one at a time; of ``flat_map`` only what reads files does."""
    if stays_at_one_call(op):
        return True
    if not op.op.startswith(("FlatMapDataset", "InterleaveDataset", "LegacyInterleaveDataset")):
        return False
    if op.parallelism is not None:
        return False
    source = input_of(pipeline, op)
    if source is not None and source.cardinality is not None and 0 <= source.cardinality <= 1:
        return False  # one file, or a generator, which is a flat_map over one element
    return _file_reader(op) is not None or not op.op.startswith("FlatMap") or (not op.inner and not op.python_functions)


def _file_reader(op: PipelineOp) -> str | None:
    """The kind of file reader that the data sets of an op's function are made of."""
    return next((kind for own in every_op(op.inner) for kind in READERS if own.op.startswith(kind)), None)
