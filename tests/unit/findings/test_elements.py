from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.findings.made import only, op, predicted, silent
from xttsbench.evidence import Compared
from xttsbench.findings import RULES
from xttsbench.findings.elements import input_bound, late_filter, per_element_overhead
from xttsbench.findings.source import fixed_npy_header
from xttsbench.records.base import Estimate, Location
from xttsbench.records.pipeline import Pipeline, PipelineOp, Prediction, PythonFunction
from xttsbench.records.trial import Batches


def filtered(reads=(0,), passes=None, *, kept: float = 4.0, between=(), **fields) -> Pipeline:
    """A map of most of the cost, of whose 8 elements a batch takes ``kept`` pass the filter."""
    own = {"cost_s": 0.9, "stateful": True, "elements_per_batch": 8.0, "passes": {0: 0} if passes is None else passes}
    before = between[-1].name if between else "Map/_2"
    return Pipeline(
        ops=(
            op("Files/_1", "TensorSliceDataset", cost_s=0.01, elements_per_batch=8.0),
            op("Map/_2", "MapDataset", "Files/_1", **(own | fields)),
            *between,
            op("Filter/_3", "FilterDataset", before, reads=reads, elements_per_batch=kept, cost_s=0.01),
            op("Batch/_4", "BatchDatasetV2", "Filter/_3"),
        )
    )


def test_a_filter_that_does_not_look_at_what_was_made(evidence) -> None:
    found = only(late_filter, evidence("input", pipeline=filtered()))
    assert (found.rule, found.limiting, found.severity) == ("late-filter", True, "warning")
    assert found.location.op == "Filter/_3"
    assert found.evidence["share_kept"] == 0.5
    assert found.evidence["pace_share_thrown_away"] == pytest.approx(0.9 / 0.92 / 2)
    idle = only(late_filter, evidence("compute", pipeline=filtered()))
    assert (idle.limiting, idle.severity) == (False, "info")
    assert "Nothing waits for it now" in idle.remedy


@pytest.mark.parametrize(
    "pipeline",
    [
        filtered(reads=(1,)),
        filtered(passes={}),
        filtered(reads=None),
        filtered(kept=8.0),
        filtered(cost_s=0.001),
        filtered(between=(op("Batch/_9", "BatchDatasetV2", "Map/_2"),)),
        filtered(between=(op("Take/_9", "TakeDataset", "Map/_2"),)),
        Pipeline(),
    ],
    ids=[
        "reads the result",
        "nothing is handed on",
        "not worked out",
        "keeps all",
        "cheap",
        "batched",
        "taken",
        "empty",
    ],
)
def test_filters_that_are_where_they_belong(evidence, pipeline: Pipeline) -> None:
    assert silent(late_filter, evidence("input", pipeline=pipeline))


def test_what_the_filter_reads_is_followed_through_maps(evidence) -> None:
    between = (
        op("Map/_8", "ParallelMapDatasetV2", "Map/_2", passes={1: 0}, parallelism=2, cost_s=0.1),
        op("Prefetch/_9", "PrefetchDataset", "Map/_8"),
    )
    found = only(late_filter, evidence("input", pipeline=filtered(reads=(1,), between=between)))
    assert found.evidence["work"] == "Map/_8, Map/_2"
    only_last = filtered(reads=(1,), passes={1: 1}, between=between)
    assert only(late_filter, evidence("input", pipeline=only_last)).evidence["work"] == "Map/_8"


def test_a_map_that_another_op_reads_as_well_stays(evidence) -> None:
    pipeline = filtered()
    both = Pipeline(ops=(*pipeline.ops, op("Other/_5", "BatchDatasetV2", "Map/_2")))
    assert silent(late_filter, evidence("input", pipeline=both))


def test_a_filter_inside_an_interleave(evidence) -> None:
    outer = op("Interleave/_1", "InterleaveDataset", inner=filtered().ops)
    found = only(late_filter, evidence("input", pipeline=Pipeline(ops=(outer,))))
    assert not found.limiting, "how much of the pace it has is not known"
    assert found.evidence.get("pace_share_of_the_work") is None


def tiny(cost_s: float = 0.02, elements: float = 512.0, **fields) -> Pipeline:
    """40 us an element."""
    own = {"cost_s": cost_s, "elements_per_batch": elements, "stateful": True, "element_bytes": 4.0} | fields
    function = PythonFunction(token="t", kind="numpy_function", name="scale")
    return Pipeline(
        ops=(
            op("Range/_1", "RangeDataset", cost_s=0.001, elements_per_batch=elements, element_bytes=8.0),
            op("Map/_2", "MapDataset", "Range/_1", **own),
            op("Batch/_3", "BatchDatasetV2", "Map/_2", cost_s=0.001, batch_size=512, elements_per_batch=1.0),
        ),
        python_functions=(function,),
    )


def test_many_tiny_elements(evidence) -> None:
    found = only(per_element_overhead, evidence("input", pipeline=tiny()))
    assert (found.rule, found.limiting, found.severity) == ("per-element-overhead", False, "warning")
    assert found.location.op == "Map/_2"
    assert found.evidence["cost_s_per_element"] == pytest.approx(0.021 / 512)
    assert ".batch(512).map(f)" in found.remedy
    python = only(per_element_overhead, evidence("input", pipeline=tiny(python_functions=("t",))))
    assert "let scale() take a whole batch" in python.remedy
    assert only(per_element_overhead, evidence("contention", pipeline=tiny())).severity == "info"
    assert only(per_element_overhead, evidence("input", pipeline=tiny(), predictions=predicted("batch-first"))).limiting


def sliced(row_s: float = 1.3e-6, rows: int = 4096, **fields) -> Pipeline:
    """Rows of arrays in memory, each cut out, shuffled and copied into its batch."""
    own = {"elements_per_batch": float(rows), "element_bytes": 260.0} | fields
    return Pipeline(
        ops=(
            op("Slices/_1", "TensorSliceDataset", cost_s=row_s * rows, **own),
            op("Shuffle/_2", "ShuffleDatasetV3", "Slices/_1", cost_s=0.9 * row_s * rows, **own),
            op("Batch/_3", "BatchDatasetV2", "Shuffle/_2", cost_s=0.5 * row_s * rows, batch_size=rows),
        ),
    )


def test_rows_of_arrays_in_memory_that_go_through_one_by_one(evidence) -> None:
    found = only(per_element_overhead, evidence("input", pipeline=sliced()))
    assert (found.location.op, found.limiting) == ("Slices/_1", False)
    assert found.title.startswith("4096 elements a batch at 2 us each")
    assert "tf.gather(x, rows)) behind .batch(4096)" in found.remedy
    assert only(per_element_overhead, evidence("input", pipeline=sliced(), predictions=predicted("gather"))).limiting
    assert silent(per_element_overhead, evidence("input", pipeline=sliced(1e-3)))
    assert silent(per_element_overhead, evidence("input", pipeline=sliced(element_bytes=1e6)))
    assert silent(per_element_overhead, evidence("input", pipeline=sliced(rows=16)))
    counted = sliced().ops[0].model_copy(update={"op": "RangeDataset"})
    assert silent(per_element_overhead, evidence("input", pipeline=Pipeline(ops=(counted, *sliced().ops[1:]))))


@pytest.mark.parametrize(
    "pipeline",
    [
        tiny(0.2),
        tiny(0.06),
        tiny(0.2, cpu_s=0.001),
        tiny(elements=16.0, cost_s=0.0006),
        tiny(element_bytes=1e6),
        tiny(0.0001),
        tiny(None),
        Pipeline(),
    ],
    ids=["real work", "some work", "waits", "few", "large", "cheap beside the rest", "not known", "empty"],
)
def test_elements_that_are_worth_their_calls(evidence, pipeline: Pipeline) -> None:
    busy = op("Slow/_9", "MapDataset", "Batch/_3", cost_s=0.015, stateful=True, elements_per_batch=1.0)
    told = Pipeline(ops=(*pipeline.ops, busy)) if pipeline.ops and pipeline.ops[1].cost_s == 0.0001 else pipeline
    assert silent(per_element_overhead, evidence("input", pipeline=told))
    assert silent(per_element_overhead, evidence("compute", pipeline=tiny()))


def test_on_busy_cores_the_processor_time_tells(evidence) -> None:
    waiting = tiny(0.1, cpu_s=0.02)  # 195 us an element, 39 us of them on a processor
    assert not silent(per_element_overhead, evidence("input", pipeline=waiting))


KINDS = (
    "RangeDataset",
    "TensorSliceDataset",
    "MapDataset",
    "ParallelMapDatasetV2",
    "FlatMapDataset",
    "InterleaveDataset",
    "ParallelInterleaveDatasetV4",
    "FilterDataset",
    "ShuffleDatasetV3",
    "CacheDatasetV2",
    "BatchDatasetV2",
    "PaddedBatchDatasetV2",
    "TakeDataset",
    "RepeatDataset",
    "PrefetchDataset",
    "CopyToDeviceDataset",
    "ZipDataset",
)
FIXES = (
    "parallel-map",
    "parallel-interleave",
    "prefetch",
    "thread-pool:32",
    "parallel-map + thread-pool:32",
    "processes:2",
    "batch-first",
    "gather",
    "cache@op2",
)
OPS = st.fixed_dictionaries(
    {
        "op": st.sampled_from(KINDS),
        "parallelism": st.sampled_from([None, 1, 4, -1]),
        "buffer_size": st.sampled_from([None, 0, 2, 100_000, -1]),
        "stateful": st.booleans(),
        "random": st.booleans(),
        "side_effects": st.booleans(),
        "cardinality": st.sampled_from([None, -2, -1, 0, 1, 7, 1000]),
        "cost_s": st.sampled_from([None, 0.0, 1e-3, 0.5]),
        "cpu_s": st.sampled_from([None, 0.0, 1e-3]),
        "elements_per_batch": st.sampled_from([None, 0.0, 1.0, 64.0, 512.0]),
        "element_bytes": st.sampled_from([None, 8.0, 1e8]),
        "reads": st.sampled_from([None, (), (0,)]),
        "passes": st.sampled_from([{}, {0: 0}]),
        "filename": st.sampled_from([None, "", "/a/cache"]),
        "python_functions": st.sampled_from([(), ("t",)]),
        "inner": st.sampled_from([(), (PipelineOp(name="inner", op="TFRecordDataset"),)]),
    }
)
GILS = st.sampled_from(["holds", "blocks", "releases", "unknown"])
MEMORY = {"cpu": {"allowed_cpus": 2.0}, "memory": {"total_bytes": 10**9, "limit_bytes": None}}


def chain(ops: list[dict], gil: str, pool: int | None) -> Pipeline:
    made = [
        PipelineOp(name=f"op{number}", inputs=(f"op{number - 1}",) if number else (), **fields)
        for number, fields in enumerate(ops)
    ]
    function = PythonFunction(token="t", kind="numpy_function", name="load", gil=gil, location=Location(line=1))
    return Pipeline(ops=tuple(made), python_functions=(function,), threadpool_size=pool)


def gains() -> dict:
    """Every fix helps five-fold, measured or predicted."""
    five = Estimate(estimate=5.0, low=4.9, high=5.1)
    modelled = [
        Prediction(name=name, fixes=tuple(name.split(" + ")), batches_per_s=50.0, speedup=5.0) for name in FIXES[:5]
    ]
    return {
        "fixes": {name: Compared(name, "ok", speedup=five, processes=1) for name in FIXES[5:]},
        "predictions": tuple(modelled),
        "batches": Batches(cached=1, bytes=10**8, shapes=("a",), padding_share=0.8),
        "environment": MEMORY,
    }


@settings(deadline=None)
@given(
    st.lists(OPS, max_size=7),
    GILS,
    st.sampled_from([None, 1, 64]),
    st.sampled_from(["compute", "inconclusive", "host", "dispatch", "compile", "transfer"]),
)
def test_no_pipeline_is_blamed_where_the_step_does_not_wait(evidence, ops, gil, pool, bottleneck: str) -> None:
    told = evidence(bottleneck, pipeline=chain(ops, gil, pool), **gains())
    for rule in (*RULES["In the pipeline"], fixed_npy_header):
        for found in rule(told):
            assert not found.limiting, found.rule
            assert found.severity != "critical" or found.rule in ("oversized-prefetch", "cache-misuse"), found.rule


@settings(deadline=None)
@given(st.lists(OPS, max_size=7), GILS, st.sampled_from([None, 1, 64]))
def test_every_finding_has_a_remedy_a_title_of_one_line_and_numbers(evidence, ops, gil, pool) -> None:
    told = evidence("input", pipeline=chain(ops, gil, pool), **gains())
    for rule in (*RULES["In the pipeline"], fixed_npy_header):
        for found in rule(told):
            assert found.remedy
            assert found.title
            assert "\n" not in found.title + found.remedy
            assert any(value is not None for value in found.evidence.values())
            assert found.limiting or found.rule != "input-bound"


def test_what_the_step_waits_for_is_named_with_its_line(evidence, build) -> None:
    slow = PipelineOp(name="Map/_2", op="MapDataset", cost_s=0.3, stateful=True, location=Location(file="a.py", line=3))
    ops = (PipelineOp(name="Range/_1", op="RangeDataset", cost_s=0.1), slow)
    told = evidence("input", pipeline=Pipeline(ops=ops), input_alone_s=build.estimate(0.4))
    (found,) = input_bound(told)
    assert (found.rule, found.limiting) == ("input-bound", True)
    assert (found.location.op, found.location.line) == ("Map/_2", 3)
    assert found.evidence["pace_share"] == pytest.approx(0.75)
    assert found.evidence["batch_without_a_step_s"] == pytest.approx(0.4)
    assert found.predicted_speedup.estimate == 2.0
    assert "run it in parallel" in found.remedy
    busy = Pipeline(ops=(ops[0], slow.model_copy(update={"parallelism": -1, "chosen_parallelism": 2})))
    assert "It runs in parallel already" in next(iter(input_bound(evidence("input", pipeline=busy)))).remedy
    assert "graph was not read" in next(iter(input_bound(evidence("input")))).title
    assert not list(input_bound(evidence("compute", pipeline=Pipeline(ops=ops))))


def test_an_op_that_takes_far_less_than_the_step_waits_is_not_named(evidence, build) -> None:
    cheap = PipelineOp(name="Slices/_1", op="TensorSliceDataset", cost_s=3e-5, location=Location(file="a.py", line=3))
    batch = PipelineOp(name="Batch/_2", op="BatchDatasetV2", cost_s=1e-5, inputs=("Slices/_1",))
    prefetch = PipelineOp(name="Prefetch/_3", op="PrefetchDataset", inputs=("Batch/_2",))
    given = Pipeline(ops=(cheap, batch, prefetch))
    told = evidence("input", pipeline=given, parts={"input": 7e-4, "compute": 2e-3}, wall_s=2.7e-3)
    (found,) = input_bound(told)
    assert found.location.op is None
    assert "no op explains it: by themselves all of them take 0.04 ms of the 0.7 ms" in found.title
    assert "Hand over larger batches" in found.remedy
    assert not any(one.limiting for rule in RULES["In the pipeline"] for one in rule(told) if one.location.op)
    costly = given.model_copy(update={"ops": (cheap.model_copy(update={"cost_s": 5e-4}), batch, prefetch)})
    (found,) = input_bound(evidence("input", pipeline=costly, parts={"input": 7e-4, "compute": 2e-3}, wall_s=2.7e-3))
    assert found.location.op == "Slices/_1"


def test_a_dataset_alone_waits_in_no_step(evidence) -> None:
    made = Pipeline(ops=(op("Map/_1", "MapDataset", cost_s=1.0),))
    found = only(input_bound, evidence("input", has_step=False, pipeline=made))
    assert found.title == "no step is beside it; Map/_1 sets the pace"


def test_a_mean_that_says_nothing_is_no_evidence(evidence) -> None:
    few = Estimate(estimate=0.4, low=0.0, high=1.1)
    assert "batch_without_a_step_s" not in only(input_bound, evidence("input", input_alone_s=few)).evidence
