from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xttsbench.evidence.evidence import Compared
from xttsbench.findings.pipeline.input_bound import input_bound
from xttsbench.findings.registry import RULES
from xttsbench.findings.source import fixed_npy_header
from xttsbench.records.base import Estimate, Location
from xttsbench.records.pipeline import Pipeline, PipelineOp, Prediction, PythonFunction
from xttsbench.records.trial import Batches

KINDS = (
    "RangeDataset",
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
    "filter-first",
    "batch-first",
    "any-order",
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
        "byte_offset": st.sampled_from([None, 44, 128]),
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
        "batches": Batches(cached=1, bytes=10**8, shapes=("a",), static_signature="", padding_share=0.8),
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
    assert found.evidence["batch_s_without_a_step"] == pytest.approx(0.4)
    assert found.predicted_speedup.estimate == 2.0
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
