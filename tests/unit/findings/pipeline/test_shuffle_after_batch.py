from __future__ import annotations

from xttsbench.findings.pipeline.shuffle_after_batch import shuffle_after_batch
from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline, PipelineOp


def chain(*kinds: str) -> Pipeline:
    """Each op reads the one before it; every shuffle holds 16 elements of 1000 bytes."""
    ops = [
        PipelineOp(
            name=f"{kind}/_{number}",
            op=kind,
            inputs=(f"{kinds[number - 1]}/_{number - 1}",) if number else (),
            buffer_size=16 if kind.startswith("Shuffle") else None,
            element_bytes=1000.0,
            location=Location(file="data.py", line=number),
        )
        for number, kind in enumerate(kinds)
    ]
    return Pipeline(ops=tuple(ops))


def test_a_shuffle_of_whole_batches(evidence) -> None:
    late = chain("RangeDataset", "BatchDatasetV2", "ShuffleDatasetV3", "PrefetchDataset")
    (found,) = shuffle_after_batch(evidence("input", pipeline=late))
    assert (found.rule, found.severity, found.limiting) == ("shuffle-after-batch", "info", False)
    assert found.location.line == 2
    assert (found.evidence["buffered_bytes"], found.evidence["batch_line"]) == (16_000.0, 1)
    assert "before .batch" in found.remedy


def test_silent_where_elements_are_mixed_or_batches_are_none_or_buckets(evidence) -> None:
    for kinds in (
        ("RangeDataset", "ShuffleDatasetV3", "BatchDatasetV2"),
        ("RangeDataset", "ShuffleDatasetV3", "BatchDatasetV2", "ShuffleDatasetV3"),
        ("RangeDataset", "BatchDatasetV2", "UnbatchDataset", "ShuffleDatasetV3"),
        ("RangeDataset", "GroupByWindowDataset", "PaddedBatchDatasetV2", "ShuffleDatasetV3"),
    ):
        assert not list(shuffle_after_batch(evidence("input", pipeline=chain(*kinds)))), kinds
    assert not list(shuffle_after_batch(evidence("input")))
