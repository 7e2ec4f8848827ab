from __future__ import annotations

import pytest

from tests.unit.findings.made import only, op, predicted, silent
from xttsbench.findings.pipeline.cache_misuse import cache_misuse
from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline, PipelineOp

GB = 10**9
ENVIRONMENT = {"cpu": {"allowed_cpus": 2.0}, "memory": {"total_bytes": 16 * GB, "limit_bytes": None}}


def told(evidence, pipeline: Pipeline, bottleneck: str = "input", **fields):
    return evidence(bottleneck, **({"pipeline": pipeline, "environment": ENVIRONMENT} | fields))


def cached(*before: PipelineOp, after: tuple[PipelineOp, ...] = (), **fields) -> Pipeline:
    own = {"filename": "", "cardinality": 100, "element_bytes": 1e3} | fields
    source = op("Range/_1", "RangeDataset", cardinality=own["cardinality"])
    last = before[-1].name if before else source.name
    return Pipeline(ops=(source, *before, op("Cache/_5", "CacheDatasetV2", last, **own), *after))


def test_a_cache_after_a_shuffle_keeps_its_order(evidence) -> None:
    frozen = cached(op("Shuffle/_2", "ShuffleDatasetV3", "Range/_1", random=True, location=Location(line=4)))
    found = only(cache_misuse, told(evidence, frozen, "compute"))
    assert (found.rule, found.severity, found.limiting) == ("cache-misuse", "warning", False)
    assert (found.evidence["fault"], found.evidence["only_order"], found.evidence["random_line"]) == ("frozen", True, 4)
    assert found.remedy.startswith("Shuffle after .cache()")


def test_a_cache_after_augmentation_keeps_its_numbers(evidence) -> None:
    frozen = cached(op("Map/_2", "MapDataset", "Range/_1", random=True, function="__inference_Dataset_map_flip_1"))
    found = only(cache_misuse, told(evidence, frozen))
    assert not found.evidence["only_order"]
    assert ".map(flip)" in found.remedy


def test_healthy_caches(evidence) -> None:
    seeded = op("Shuffle/_2", "ShuffleDatasetV3", "Range/_1", random=False)
    later = op("Shuffle/_6", "ShuffleDatasetV3", "Cache/_5", random=True, cardinality=100)
    whole = op("Take/_6", "TakeDataset", "Cache/_5", cardinality=100)
    around = op("Repeat/_6", "RepeatDataset", "Cache/_5", cardinality=-1)
    some = op("Take/_7", "TakeDataset", "Repeat/_6", cardinality=250)
    batch = op("Batch/_6", "BatchDatasetV2", "Cache/_5", cardinality=25)
    for pipeline in (
        cached(),
        cached(seeded),
        cached(after=(later,)),
        cached(after=(whole,)),
        cached(after=(around, some)),
        cached(after=(batch, op("Take/_7", "TakeDataset", "Batch/_6", cardinality=25))),
        cached(after=(op("Filter/_6", "FilterDataset", "Cache/_5", cardinality=-2),)),
        cached(cardinality=None),
        Pipeline(),
    ):
        assert silent(cache_misuse, told(evidence, pipeline))
    assert silent(cache_misuse, evidence("input"))


def test_a_cache_that_is_cut_short_before_it_is_full(evidence) -> None:
    cut = op("Take/_6", "TakeDataset", "Cache/_5", cardinality=60, location=Location(line=8))
    batch = op("Batch/_6", "BatchDatasetV2", "Cache/_5", cardinality=25)
    late = op("Take/_7", "TakeDataset", "Batch/_6", cardinality=20)
    for after, taken in (((cut,), 60), ((batch, late), 20)):
        found = only(cache_misuse, told(evidence, cached(after=after), "compute"))
        assert (found.evidence["fault"], found.evidence["elements_taken"]) == ("cut short", taken)
        assert (found.limiting, found.severity) == (False, "info")
        assert "before .cache()" in found.remedy
        assert only(cache_misuse, told(evidence, cached(after=after))).severity == "warning"
    pair = op("Zip/_7", "ZipDataset", "Cache/_5", "Other/_6", cardinality=40)
    zipped = cached(after=(op("Other/_6", "RangeDataset", cardinality=40), pair))
    assert "zip()" in only(cache_misuse, told(evidence, zipped)).remedy


def test_it_limits_where_the_model_says_what_a_full_cache_gives(evidence) -> None:
    cut = op("Take/_6", "TakeDataset", "Cache/_5", cardinality=60)
    full = told(evidence, cached(after=(cut,)), predictions=predicted("cache@Cache/_5"))
    assert only(cache_misuse, full).limiting


def test_a_cache_of_what_never_ends(evidence) -> None:
    found = only(cache_misuse, told(evidence, cached(cardinality=-1), "compute"))
    assert (found.evidence["fault"], found.severity) == ("endless", "warning")
    assert "before .repeat()" in found.remedy


@pytest.mark.parametrize(
    ("element_bytes", "filename", "severity"),
    [(7e7, "", None), (9e7, "", "warning"), (2e8, "", "critical"), (2e8, "/disk/x", None), (2e8, None, None)],
)
def test_a_cache_that_outgrows_the_memory(evidence, element_bytes: float, filename, severity) -> None:
    pipeline = cached(element_bytes=element_bytes, filename=filename)
    found = list(cache_misuse(told(evidence, pipeline)))
    assert [one.severity for one in found] == ([severity] if severity else [])
    assert not any(one.limiting for one in found)
