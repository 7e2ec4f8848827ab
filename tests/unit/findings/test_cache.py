from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.findings.made import fixed, only, op, predicted, silent
from xttsbench.findings.cache import cache_misuse, cacheable
from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline, PipelineOp

GB = 10**9
ENVIRONMENT = {"cpu": {"allowed_cpus": 2.0}, "memory": {"total_bytes": 16 * GB, "limit_bytes": None}}


def decoding(**fields) -> Pipeline:
    """A thousand files of 1 MB, decoded to 4 MB each, flipped at random, 8 to a batch."""
    decode = {"cost_s": 0.8, "element_bytes": 4e6, "cardinality": 1000, "elements_per_batch": 8.0} | fields
    return Pipeline(
        ops=(
            op("Files/_1", "TensorSliceDataset", cost_s=0.001, element_bytes=100.0, cardinality=1000),
            op("Read/_2", "MapDataset", "Files/_1", cost_s=0.1, element_bytes=1e6, cardinality=1000),
            op("Decode/_3", "MapDataset", "Read/_2", **decode),
            op("Flip/_4", "MapDataset", "Decode/_3", cost_s=0.1, random=True, element_bytes=4e6, cardinality=1000),
            op("Batch/_5", "BatchDatasetV2", "Flip/_4", cost_s=0.01, element_bytes=32e6, cardinality=125),
        )
    )


def told(evidence, pipeline: Pipeline, bottleneck: str = "input", **fields):
    return evidence(bottleneck, **({"pipeline": pipeline, "environment": ENVIRONMENT} | fields))


def test_an_expensive_beginning_that_is_the_same_each_time(evidence, build) -> None:
    found = only(cacheable, told(evidence, decoding()))
    assert (found.rule, found.limiting, found.severity) == ("cacheable", False, "info")
    assert found.location.op == "Decode/_3"
    assert found.evidence["bytes"] == 4e9
    assert found.evidence["fits_in_memory"] is True
    assert found.evidence["pace_share_up_to_it"] == pytest.approx(
        0.451 / 0.511
    )  # stateless maps run on both processors
    assert found.evidence["epoch_s"] == pytest.approx(125 * 0.1)
    assert "in memory: .cache()" in found.remedy
    for name in ({"predictions": predicted("cache@Decode/_3")}, {"fixes": fixed(build, "cache@Decode/_3")}):
        assert only(cacheable, told(evidence, decoding(), **name)).limiting


def test_what_does_not_fit_into_memory_goes_to_a_disk(evidence) -> None:
    found = only(cacheable, told(evidence, decoding(element_bytes=9e6)))
    assert found.evidence["fits_in_memory"] is False
    assert "local disk" in found.remedy


def test_of_places_that_give_nearly_as_much_the_smallest(evidence) -> None:
    cheap = decoding(cost_s=0.003)
    heavy = cheap.ops[1].model_copy(update={"cost_s": 0.9})
    found = only(cacheable, told(evidence, cheap.model_copy(update={"ops": (cheap.ops[0], heavy, *cheap.ops[2:])})))
    assert found.location.op == "Read/_2", "decoding is cheap and makes four times as much of it"


@pytest.mark.parametrize(
    "fields",
    [
        {"random": True},
        {"side_effects": True},
        {"cardinality": -1},
        {"cardinality": -2},
        {"cardinality": None},
        {"element_bytes": None},
        {"cost_s": 0.001},
        {"inner": (PipelineOp(name="s", op="ShuffleDatasetV3", random=True),)},
        {"cardinality": 10**9},
    ],
    ids=["random", "effects", "infinite", "unknown", "not read", "size", "cheap", "random inside", "weeks"],
)
def test_what_cannot_or_need_not_be_cached(evidence, fields) -> None:
    pipeline = decoding(**fields)
    reading = pipeline.ops[1].model_copy(update={"cost_s": 0.0})  # so that nothing is worth keeping before it
    assert silent(
        cacheable, told(evidence, pipeline.model_copy(update={"ops": (pipeline.ops[0], reading, *pipeline.ops[2:])}))
    )


def test_python_functions_may_be_cached_with_a_proviso(evidence) -> None:
    found = only(cacheable, told(evidence, decoding(side_effects=True, python_functions=("t",), stateful=True)))
    assert "Provided that its Python functions" in found.remedy
    changes = predicted("cache@Decode/_3", why_not="it changes the data if a Python function is not pure")
    # Whether it is gone through again is not known, and whether the data stay the same neither
    pipeline = decoding(side_effects=True, python_functions=("t",), stateful=True)
    modelled = only(cacheable, told(evidence, pipeline, predictions=changes))
    assert not modelled.limiting
    assert "Provided that" in modelled.remedy
    again = Pipeline(ops=(*pipeline.ops, op("Repeat/_6", "RepeatDataset", "Batch/_5", cardinality=-1)))
    repeated = only(cacheable, told(evidence, again, predictions=changes))
    assert repeated.limiting
    assert "Mind that it changes the data" in repeated.remedy
    assert "Provided" not in repeated.remedy


def test_a_long_epoch_without_repeat_may_be_the_only_one(evidence) -> None:
    model = {"predictions": predicted("cache@Decode/_3")}
    assert only(cacheable, told(evidence, decoding(), wall_s=4.0, **model)).limiting  # 8 minutes
    assert not only(cacheable, told(evidence, decoding(), wall_s=6.0, **model)).limiting  # 12 minutes


def test_a_cache_that_was_judged_not_to_help_is_not_proposed(evidence, build) -> None:
    assert silent(cacheable, told(evidence, decoding(), predictions=predicted("cache@Decode/_3", 1.05)))
    assert silent(cacheable, told(evidence, decoding(), fixes=fixed(build, "cache@Decode/_3", 1.0)))


def test_what_is_cached_is_not_proposed_again(evidence) -> None:
    before = decoding().ops
    cache = op("Cache/_9", "CacheDatasetV2", "Decode/_3", filename="", cardinality=1000)
    cached = (*before[:3], cache, before[3].model_copy(update={"inputs": ("Cache/_9",)}), before[4])
    assert silent(cacheable, told(evidence, Pipeline(ops=cached)))


def test_nobody_waits_for_it(evidence) -> None:
    assert silent(cacheable, told(evidence, decoding(), "compute"))
    assert silent(cacheable, told(evidence, decoding(), "inconclusive"))
    beside = only(cacheable, told(evidence, decoding(), "contention", predictions=predicted("cache@Decode/_3")))
    assert not beside.limiting


@pytest.mark.parametrize("endless", [False, True])
def test_what_follows_a_shuffle_or_a_repeat_is_cached_before_it(evidence, endless) -> None:
    ordering = (
        op("order", "RepeatDataset", "files", cardinality=-1)
        if endless
        else op("order", "ShuffleDatasetV3", "files", cardinality=400, random=True)
    )
    first, *others = decoding().ops
    ops = (
        first.model_copy(update={"name": "files", "cardinality": 400}),
        ordering,
        *(
            one.model_copy(
                update={
                    "inputs": tuple("order" if name == first.name else name for name in one.inputs),
                    "cardinality": -1 if endless and one.cardinality else one.cardinality,
                }
            )
            for one in others
        ),
    )
    found = only(cacheable, told(evidence, Pipeline(ops=ops)))
    assert found.evidence["elements"] == 400
    call = ".repeat(...)" if endless else ".shuffle(...)"
    assert f"after this op, and write {call} behind it, not before the map. The" in found.remedy


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


@pytest.mark.parametrize("fields", [{}, {"cardinality": -2}, {"element_bytes": None}, {"cost_s": None}])
def test_a_cache_that_was_accepted_is_found_whatever_else_is_known_of_its_place(evidence, build, fields) -> None:
    # 1.1 (0.99 to 1.21), less than a rule asks for by itself: accepted by the evidence of all rounds together
    name = "parallel-map + cache@Decode/_3"
    fixes = {name: replace(fixed(build, name, 1.1, 0.1)[name], accepted=True)}
    found = only(cacheable, told(evidence, decoding(**fields), fixes=fixes))
    assert (found.limiting, found.location.op, found.verified_speedup.estimate) == (True, "Decode/_3", 1.1)
    assert found.title.startswith("Decode/_3 makes its ")
    assert ("with the ops before it" in found.title) == ("cost_s" not in fields)
    assert silent(cacheable, told(evidence, decoding(**fields), fixes=fixed(build, name, 1.1, 0.1))) or not fields
