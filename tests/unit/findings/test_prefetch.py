from __future__ import annotations

import pytest

from tests.unit.findings.made import fixed, only, op, predicted, silent
from xttsbench.findings.prefetch import device_prefetch_not_last, no_prefetch, oversized_prefetch, redundant_prefetch
from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline
from xttsbench.records.trial import Batches

GB = 10**9
ENVIRONMENT = {"cpu": {"allowed_cpus": 2.0}, "memory": {"total_bytes": 16 * GB, "limit_bytes": None}}


BARE = Pipeline(
    ops=(op("Range/_1", "RangeDataset", cost_s=0.1), op("Batch/_4", "BatchDatasetV2", "Range/_1")),
    injects_prefetch=False,
)


def test_a_prefetch_that_is_missing_at_the_end(evidence, build) -> None:
    for told in ({"fixes": fixed(build, "prefetch", 1.9)}, {"predictions": predicted("prefetch", 1.9)}):
        found = only(no_prefetch, evidence("input", pipeline=BARE, **told))
        assert (found.rule, found.limiting, found.severity) == ("no-prefetch", True, "warning")
        assert found.location.op == "Batch/_4"
        assert (found.verified_speedup or found.predicted_speedup).estimate == 1.9
        assert found.evidence["tensorflow_injects_prefetch"] is False
        assert silent(no_prefetch, evidence("compute", pipeline=BARE, **told))
        assert silent(no_prefetch, evidence("inconclusive", pipeline=BARE, **told))
    assert silent(no_prefetch, evidence("input", pipeline=BARE)), "not tried"
    assert silent(no_prefetch, evidence("input", pipeline=BARE, fixes=fixed(build, "prefetch", None)))
    assert silent(no_prefetch, evidence("input"))


def test_a_prefetch_of_nothing(evidence, build) -> None:
    empty = Pipeline(ops=(*BARE.ops, op("Prefetch/_5", "PrefetchDataset", "Batch/_4", buffer_size=0)))
    found = only(no_prefetch, evidence("input", pipeline=empty))
    assert (found.limiting, found.severity) == (False, "warning")
    assert "in place of .prefetch(0)" in found.remedy
    assert silent(no_prefetch, evidence("compute", pipeline=empty))
    assert silent(no_prefetch, evidence("input", pipeline=empty, has_step=False))
    # The input alone takes 50 ms of the 100 ms, and the step the other 50 ms
    told = evidence("input", pipeline=empty, input_alone_s=build.estimate(0.05))
    turned = only(no_prefetch, told)
    assert (turned.limiting, turned.predicted_speedup.estimate) == (True, pytest.approx(2.0))
    assert not only(no_prefetch, evidence("input", pipeline=empty, input_alone_s=build.estimate(0.095))).limiting
    one = Pipeline(ops=(*BARE.ops, op("Prefetch/_5", "PrefetchDataset", "Batch/_4", buffer_size=1)))
    assert silent(no_prefetch, evidence("input", pipeline=one))


def prefetches(*, adjacent: bool) -> Pipeline:
    first = op("Prefetch/_2", "PrefetchDataset", "Range/_1", buffer_size=10, chosen_buffer_size=40, element_bytes=2.0)
    between = () if adjacent else (op("Batch/_3", "BatchDatasetV2", "Prefetch/_2"),)
    last = op("Prefetch/_4", "PrefetchDataset", "Prefetch/_2" if adjacent else "Batch/_3", buffer_size=-1)
    return Pipeline(ops=(op("Range/_1", "RangeDataset"), first, *between, last))


def test_prefetch_after_prefetch_is_redundant_without_measuring(evidence) -> None:
    found = only(redundant_prefetch, evidence("compute", pipeline=prefetches(adjacent=True)))
    assert (found.severity, found.limiting, found.location.op) == ("info", False, "Prefetch/_2")
    assert (found.evidence["prefetches"], found.evidence["buffered_elements"]) == (2, 40)
    assert found.evidence["buffered_bytes"] == 80
    assert found.predicted_speedup is None


def test_one_that_an_op_reads_is_not_redundant(evidence) -> None:
    assert silent(redundant_prefetch, evidence("compute", pipeline=prefetches(adjacent=False)))


def test_a_prefetch_that_is_needed_is_not_named_beside_one_that_is_not(evidence) -> None:
    ops = prefetches(adjacent=True).ops
    useful = op("Prefetch/_0", "PrefetchDataset", buffer_size=100)
    pipeline = Pipeline(ops=(useful, op("Map/_1", "MapDataset", "Prefetch/_0"), *ops[1:]))
    found = only(redundant_prefetch, evidence("input", pipeline=pipeline))
    assert (found.location.op, found.evidence["buffered_elements"]) == ("Prefetch/_2", 40)


def test_one_prefetch_is_not_redundant(evidence) -> None:
    one = Pipeline(ops=prefetches(adjacent=False).ops[2:])
    assert silent(redundant_prefetch, evidence("input", pipeline=one))
    assert silent(redundant_prefetch, evidence("input"))


def buffered(size: int, element_bytes: float | None, *, batch: bool = True, device: bool = False, **fields) -> Pipeline:
    ops = [op("Range/_1", "RangeDataset")]
    ops += [op("Batch/_2", "BatchDatasetV2", ops[-1].name)] if batch else []
    ops += [op("CopyToDeviceDataset/3", "CopyToDeviceDataset", ops[-1].name)] if device else []
    own = {"buffer_size": size, "element_bytes": element_bytes} | fields
    return Pipeline(ops=(*ops, op("Prefetch/_4", "PrefetchDataset", ops[-1].name, **own)))


@pytest.mark.parametrize(
    ("buffer_size", "severity"), [(320, "critical"), (100, "warning"), (40, "info"), (30, None), (2, None), (0, None)]
)
def test_a_buffer_of_many_batches(evidence, buffer_size: int, severity) -> None:
    pipeline = buffered(buffer_size, 0.05 * GB)
    found = list(oversized_prefetch(evidence("input", pipeline=pipeline, environment=ENVIRONMENT)))
    assert [one.severity for one in found] == ([severity] if severity else [])
    for one in found:
        assert not one.limiting
        assert one.evidence["share_of_memory"] == pytest.approx(buffer_size * 0.05 / 16)
        assert "counts batches" in one.remedy


def test_what_makes_a_buffer_large(evidence) -> None:
    def told(pipeline: Pipeline, **fields):
        return evidence("input", **({"pipeline": pipeline, "environment": ENVIRONMENT} | fields))

    rule = oversized_prefetch
    assert silent(rule, told(buffered(100_000, 1e3))), "many, but small"
    assert silent(rule, told(buffered(320, None))), "their size is not known"
    assert silent(rule, told(buffered(320, 0.05 * GB, cardinality=10))), "there are not so many"
    assert silent(rule, told(buffered(320, 0.05 * GB), environment={})), "the memory is not known"
    assert "counts batches" not in only(rule, told(buffered(320, 0.05 * GB, batch=False))).remedy
    assert "ram_budget" in only(rule, told(buffered(-1, 0.05 * GB, chosen_buffer_size=320))).remedy
    batches = Batches(cached=2, bytes=GB // 10, shapes=())
    assert not silent(rule, told(buffered(320, None), batches=batches)), "the batches that were kept tell"


def test_a_buffer_on_the_device_is_held_against_its_memory(evidence) -> None:
    gpus = [{"index": 0, "memory_total_bytes": 8 * GB}]
    told = evidence("compute", pipeline=buffered(50, 0.02 * GB, device=True), environment=ENVIRONMENT | {"gpus": gpus})
    found = only(oversized_prefetch, told)  # 1 GB of 8, and of 16 too little to tell
    assert found.evidence["on_device"]
    assert "GPU memory" in found.title
    unknown = ENVIRONMENT | {"gpus": [{"index": 0, "memory_total_bytes": None}]}
    assert silent(oversized_prefetch, evidence(pipeline=buffered(50, 0.02 * GB, device=True), environment=unknown))


def test_ops_after_the_copy_to_the_device(evidence) -> None:
    ops = buffered(2, None, device=True).ops
    late = Pipeline(
        ops=(*ops, op("MapDataset/5", "MapDataset", "Prefetch/_4", location=Location(line=7))), unserialisable="x"
    )
    found = only(device_prefetch_not_last, evidence("input", pipeline=late))
    assert (found.severity, found.limiting, found.location.op) == ("warning", False, "CopyToDeviceDataset/3")
    assert (found.evidence["ops_after"], found.evidence["line_after"]) == ("MapDataset", 7)
    assert only(device_prefetch_not_last, evidence("compute", pipeline=late)).severity == "info"
    assert only(device_prefetch_not_last, evidence("transfer", pipeline=late)).severity == "warning"
    assert silent(device_prefetch_not_last, evidence("input", pipeline=Pipeline(ops=ops)))
    assert silent(device_prefetch_not_last, evidence("input"))
