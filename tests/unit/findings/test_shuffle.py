from __future__ import annotations

import pytest

from tests.unit.findings.made import only, op, silent
from xttsbench.findings.shuffle import shuffle_after_batch, shuffle_fill
from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline, PipelineOp

GB = 10**9
ENVIRONMENT = {"cpu": {"allowed_cpus": 2.0}, "memory": {"total_bytes": 16 * GB, "limit_bytes": None}}


def shuffled(buffer_size: int, cost_s: float | None = 0.08, *, cardinality: int | None = None, **fields) -> Pipeline:
    """8 elements a batch, each 10 ms of a sequential map."""
    return Pipeline(
        ops=(
            op("Range/_1", "RangeDataset"),
            op("Map/_2", "MapDataset", "Range/_1", cost_s=cost_s, stateful=True, cardinality=cardinality),
            op("Shuffle/_3", "ShuffleDatasetV3", "Map/_2", buffer_size=buffer_size, elements_per_batch=8.0, **fields),
        )
    )


def began(build, first_wait_s: float):
    return (build.trial("ladder", build.segment("as_is", wait_s=[first_wait_s, 0.1, 0.1], step_s=0.1, warmup=1)),)


@pytest.mark.parametrize(
    ("buffer_size", "severity"), [(190, None), (210, "info"), (2900, "info"), (3100, "warning"), (0, None), (-2, None)]
)
def test_the_time_that_a_shuffle_takes_to_fill(evidence, buffer_size: int, severity) -> None:
    found = list(shuffle_fill(evidence("input", pipeline=shuffled(buffer_size))))
    assert [one.severity for one in found] == ([severity] if severity else [])
    for one in found:
        assert one.evidence["fill_s"] == pytest.approx(buffer_size * 0.01)
        assert not one.limiting
        assert "Shuffle before .map(f)" in one.remedy


def test_a_run_that_began_sooner_overrules_the_estimate(evidence, build) -> None:
    told = {"pipeline": shuffled(1000)}
    assert silent(shuffle_fill, evidence("input", ladder=began(build, 0.5), **told))
    assert only(shuffle_fill, evidence("input", ladder=began(build, 9.0), **told)).evidence["first_wait_s"] == 9.0


def test_a_buffer_holds_no_more_than_there_is(evidence) -> None:
    few = {"pipeline": shuffled(10_000, cardinality=100)}
    assert silent(shuffle_fill, evidence("input", wall_s=5.0, **few)), "a second of an epoch of a minute"
    found = only(shuffle_fill, evidence("input", pipeline=shuffled(10_000, cardinality=300)))
    assert (found.evidence["filled_elements"], found.evidence["buffer_size"]) == (300, 10_000)


@pytest.mark.parametrize(("element_bytes", "severity"), [(1e5, None), (2e6, "info"), (5e6, "warning"), (None, None)])
def test_the_memory_of_a_shuffle(evidence, element_bytes, severity) -> None:
    pipeline = shuffled(1000, None, element_bytes=element_bytes)
    found = list(shuffle_fill(evidence("compute", pipeline=pipeline, environment=ENVIRONMENT)))
    assert [one.severity for one in found] == ([severity] if severity else [])
    for one in found:
        assert "smaller buffer" in one.remedy


def test_small_rows_take_the_memory_of_their_tensors(evidence) -> None:
    rows = 40_000_000
    pipeline = Pipeline(
        ops=(
            op("Slices/_1", "TensorSliceDataset", cardinality=rows),
            op("Shuffle/_2", "ShuffleDatasetV3", "Slices/_1", buffer_size=rows, element_bytes=8.0),
        )
    )
    found = only(shuffle_fill, evidence("compute", pipeline=pipeline, environment=ENVIRONMENT))
    assert found.evidence["buffered_bytes"] == pytest.approx(rows * 208), "beside 8 bytes of data each"
    assert "of which 305 MiB are data" in found.title
    assert f"tf.random.shuffle(tf.range({rows}" in found.remedy
    part = pipeline.ops[1].model_copy(update={"buffer_size": rows // 2})
    found = only(
        shuffle_fill, evidence("compute", pipeline=Pipeline(ops=(pipeline.ops[0], part)), environment=ENVIRONMENT)
    )
    assert "smaller buffer" in found.remedy, "another order than a part of the rows can have"


def test_a_fill_that_takes_much_of_every_epoch(evidence) -> None:
    stalling = shuffled(10_000, cardinality=100)  # a second of it in epochs of 12.5 steps of 100 ms
    found = only(shuffle_fill, evidence("input", pipeline=stalling))
    assert found.evidence["share_of_epoch"] == pytest.approx(0.8)
    assert (found.severity, found.limiting) == ("warning", False)
    repeated = Pipeline(ops=(*stalling.ops, op("Repeat/_4", "RepeatDataset", "Shuffle/_3")))
    assert silent(shuffle_fill, evidence("input", pipeline=repeated)), "it is filled across epochs"


def test_what_is_filled_once_is_said_to_be(evidence) -> None:
    once, anew = "It is paid at the start.", "It is paid at the start of each epoch."
    each_epoch = shuffled(3000)
    repeated = Pipeline(ops=(*each_epoch.ops, op("Repeat/_4", "RepeatDataset", "Shuffle/_3")))
    first, *rest = each_epoch.ops
    rest[0] = rest[0].model_copy(update={"inputs": ("Repeat/_4",)})
    repeats = Pipeline(ops=(first, op("Repeat/_4", "RepeatDataset", "Range/_1"), *rest))
    for pipeline, said in ((each_epoch, anew), (repeated, once), (repeats, once)):
        assert only(shuffle_fill, evidence("input", pipeline=pipeline)).remedy.endswith(said)


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
