"""Where a cache may go, what it spares, and why it may not."""

from __future__ import annotations

import pytest

from tests.unit.fixes.pipelines import BATCH, DECODE, ENVIRONMENT, PYTHON, RANGE, pipeline, python
from xttsbench.fixes.cache import behind_cache, cache_places, candidates, elements_in_a_pass, is_read_to_its_end
from xttsbench.fixes.spec import Setting
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.throughput.threads import demand

CACHE = {"op": "CacheDatasetV2", "cost_s": 0.0, "cardinality": 1000, "elements_per_batch": 8.0, "filename": ""}
TAKE = {"op": "TakeDataset", "cost_s": 0.0, "cardinality": 500, "element_bytes": 1000.0, "elements_per_batch": 8.0}


def names(given, environment=ENVIRONMENT):
    return [place.name for place in cache_places(given, environment)]


def test_a_cache_of_what_is_cheap_does_not_stand_in_the_way_of_one_of_what_is_not():
    early = pipeline(RANGE, CACHE, DECODE, BATCH)
    assert [one.name for one in candidates(Setting(early, 2, ENVIRONMENT))] == ["cache@2"]


def test_what_a_full_cache_spares_already_is_not_spared_again():
    full = pipeline(RANGE, DECODE | {"cached": True}, CACHE, DECODE | {"cost_s": 0.01})
    (place,) = cache_places(full, ENVIRONMENT)
    assert (place.name, place.spared_s) == ("cache@3", pytest.approx(0.01))


def test_a_cache_that_is_never_filled_is_replaced_by_one_after_what_ends_the_epoch():
    never = pipeline(RANGE, DECODE, CACHE, TAKE)
    assert not is_read_to_its_end(never.ops[1], never)
    assert names(never) == ["cache@3"]
    whole = pipeline(RANGE, DECODE, CACHE, TAKE | {"cardinality": 1000})
    assert names(whole) == []  # what is there is filled, and spares all of it


def test_a_place_that_holds_less_is_kept_beside_one_that_spares_more():
    wide = DECODE | {"cost_s": 0.02, "element_bytes": 50_000.0}
    given = pipeline(RANGE, DECODE, wide, BATCH)
    assert [one.name for one in candidates(Setting(given, 2, ENVIRONMENT))] == ["cache@2", "cache@1"]
    only_wider = pipeline(RANGE, DECODE, wide | {"cost_s": 1e-4}, BATCH)
    assert [one.name for one in candidates(Setting(only_wider, 2, ENVIRONMENT))] == ["cache@1"]


def test_what_has_no_room_in_memory_says_how_much_is_missing():
    large = pipeline(RANGE, DECODE | {"element_bytes": 5e6})
    (nowhere,) = cache_places(large, ENVIRONMENT)
    assert not nowhere.fits
    assert "4.66 GiB" in nowhere.why_not
    assert "7.45 GiB" in nowhere.why_not


def test_random_numbers_inside_an_interleave_are_seen():
    inner = pipeline({"op": "MapDataset", "random": True}).ops
    reads = DECODE | {"op": "InterleaveDataset", "inner": inner}
    assert names(pipeline(RANGE, reads)) == []


def test_python_has_to_be_proved_and_other_side_effects_forbid():
    behind = pipeline(RANGE, PYTHON | {"cardinality": 1000, "element_bytes": 8.0}, python_functions=(python("blocks"),))
    (place,) = cache_places(behind, ENVIRONMENT)
    assert place.why_not is None
    assert "Python function" in place.proof
    (prints,) = cache_places(pipeline(RANGE, DECODE | {"side_effects": True}), ENVIRONMENT)
    assert "would happen once" in prints.why_not


def test_what_draws_at_random_is_not_cached_but_what_comes_before_it_may_be():
    drawing = PYTHON | {"cardinality": 1000, "element_bytes": 1000.0, "elements_per_batch": 8.0}
    draws = python("blocks", random="f() at a.py:3 draws random numbers (np.random.uniform)")
    last, before = candidates(
        Setting(pipeline(RANGE, DECODE, drawing, BATCH, python_functions=(draws,)), 2, ENVIRONMENT)
    )
    assert (last.name, before.name, before.hazard) == ("cache@2", "cache@1", None)
    assert last.hazard == f"a cache would repeat the first pass: {draws.random}; put that behind the cache"
    (only,) = candidates(Setting(pipeline(RANGE, drawing, python_functions=(draws,)), 2, ENVIRONMENT))
    assert only.hazard is not None


def test_behind_a_filter_the_elements_of_a_pass_are_those_that_it_let_through():
    keeps = {"op": "FilterDataset", "cardinality": -2, "elements_per_batch": 8.0, "element_bytes": 1e3, "cost_s": 0.01}
    given = pipeline(RANGE | {"elements_per_batch": 32.0}, DECODE | {"elements_per_batch": 32.0}, keeps)
    assert elements_in_a_pass(given.ops[2], given) == pytest.approx(250)
    assert cache_places(given, ENVIRONMENT)[0].held_bytes == pytest.approx(250e3)


SHUFFLE = {"op": "ShuffleDatasetV3", "random": True, "buffer_size": 1000, "cost_s": 0.001, "elements_per_batch": 8.0}
ENDLESS = {"op": "RepeatDataset", "cardinality": -1, "cost_s": 0.0, "elements_per_batch": 8.0}


@pytest.mark.parametrize("orderings", [(SHUFFLE | {"cardinality": 1000},), (ENDLESS,), (SHUFFLE, ENDLESS)])
def test_a_shuffle_or_a_repeat_before_a_map_comes_after_its_cache(orderings):
    decode = DECODE | {"cardinality": orderings[-1]["cardinality"]}
    given = pipeline(RANGE, *orderings, decode, BATCH | {"cardinality": -1 if ENDLESS in orderings else 125})
    (place,) = cache_places(given, ENVIRONMENT)
    assert (place.op.op, place.why_not) == ("MapDataset", None)
    assert (place.held_bytes, place.spared_s) == (1e6, pytest.approx(0.08))
    assert elements_in_a_pass(place.op, given) == 1000
    (fix,) = candidates(Setting(given, 2, ENVIRONMENT))
    left = {op.name: op.cost_s for op in fix.edit(given).ops}
    assert left[place.op.name] == 0
    assert all(left[op.name] == op.cost_s for op in given.ops if op.op in ("ShuffleDatasetV3", "RepeatDataset"))


@pytest.mark.parametrize(
    "ops",
    [
        (SHUFFLE, BATCH, DECODE),  # other elements are together in each pass
        (ENDLESS, BATCH, DECODE),  # a batch reaches over the end of a pass
        (SHUFFLE, DECODE | {"random": True}),
        (SHUFFLE, {"op": "FilterDataset"}, DECODE),  # what is drawn depends on what is left
    ],
)
def test_what_a_shuffle_or_a_repeat_makes_of_elements_is_not_cached(ops):
    assert names(pipeline(RANGE, *ops)) == []


def test_a_pass_that_is_cut_short_behind_the_shuffle_fills_no_cache():
    assert names(pipeline(RANGE, SHUFFLE, DECODE, TAKE)) == []
    assert names(pipeline(RANGE, SHUFFLE, DECODE, TAKE | {"cardinality": 1000})) == ["cache@2"]


def test_a_take_behind_endless_batches_may_end_before_the_cache_is_full():
    batches = BATCH | {"cardinality": -1, "elements_per_batch": 1.0}
    rest = (RANGE, ENDLESS, DECODE | {"cardinality": -1}, batches)
    assert names(pipeline(*rest, TAKE | {"cardinality": 20, "elements_per_batch": 1.0})) == []
    assert names(pipeline(*rest, TAKE | {"cardinality": 125, "elements_per_batch": 1.0})) == ["cache@2"]


OPS = (
    PipelineOp(name="range", op="RangeDataset", cost_s=0.1),
    PipelineOp(name="load", op="MapDataset", inputs=("range",), cost_s=1.0, cpu_s=0.5),
    PipelineOp(name="cache", op="CacheDatasetV2", inputs=("load",), cost_s=0.01),
    PipelineOp(name="noise", op="MapDataset", inputs=("cache",), cost_s=0.2),
    PipelineOp(name="other", op="TensorDataset", cost_s=0.3),
    PipelineOp(name="zip", op="ZipDataset", inputs=("noise", "other")),
)


def test_what_is_before_a_full_cache_takes_nothing_and_the_rest_does() -> None:
    found = behind_cache(Pipeline(ops=OPS))
    assert [op.name for op in found.ops if op.cached] == ["range", "load"]
    assert [demand(op, found, 2).cost_s for op in found.ops] == [0.0, 0.0, 0.01, 0.2, 0.3, 0.0]
    assert found.ops[1].cost_s == 1.0, "what it took is still told"


def test_without_a_cache_nothing_changes() -> None:
    given = Pipeline(ops=OPS[:2])
    assert behind_cache(given) == given


def test_windows_over_one_tensor_are_the_same_in_each_pass() -> None:
    tensor = {"op": "TensorDataset", "inputs": (), "cost_s": 0.0, "cardinality": 1, "elements_per_batch": 8.0}
    repeat = {"op": "RepeatDataset", "cost_s": 0.0, "cardinality": -1, "elements_per_batch": 8.0}
    zipped = {"op": "ZipDataset", "inputs": ("0", "2"), "cost_s": 0.0, "cardinality": 1000, "elements_per_batch": 8.0}
    given = pipeline(RANGE, tensor, repeat, zipped, DECODE, BATCH)
    assert names(given) == ["cache@5", "cache@4"]
    shuffled = {**tensor, "op": "ShuffleDatasetV3", "inputs": ("1",), "random": True}
    random = pipeline(RANGE, tensor, shuffled, repeat, zipped | {"inputs": ("0", "3")}, DECODE, BATCH)
    assert names(random) == []
