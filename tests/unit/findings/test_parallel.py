from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.findings.made import fixed, only, op, predicted, silent
from xttsbench.analysis.attribution import StepFacts
from xttsbench.findings.parallel import (
    compressed_records,
    order_sensitive,
    sequential_map,
    sequential_read,
    thread_pool,
)
from xttsbench.records.base import Location
from xttsbench.records.code import SourceFact
from xttsbench.records.pipeline import Pipeline, PythonFunction

MAPS = Pipeline(
    ops=(
        op("Range/_1", "RangeDataset", cost_s=0.01),
        op("Map/_2", "MapDataset", "Range/_1", cost_s=0.1, stateful=True, location=Location(file="a.py", line=1)),
        op("Map/_3", "MapDataset", "Map/_2", cost_s=0.3, stateful=True, location=Location(file="a.py", line=2)),
        op("Batch/_4", "BatchDatasetV2", "Map/_3", cost_s=0.001),
    )
)
FILES = Pipeline(
    ops=(
        op("Files/_1", "TensorSliceDataset", cardinality=6),
        op("Flat/_2", "FlatMapDataset", "Files/_1", cost_s=0.5, inner=(op("Read/_1", "TFRecordDataset"),)),
        op("Batch/_3", "BatchDatasetV2", "Flat/_2", cost_s=0.01),
    )
)
ORDERED = Pipeline(
    ops=(
        op("Range/_1", "RangeDataset", cost_s=0.001),
        op("Map/_2", "ParallelMapDatasetV2", "Range/_1", cost_s=0.4, parallelism=4, deterministic="default"),
    )
)
STRUCTURAL = pytest.mark.parametrize(
    ("rule", "fix", "name", "pipeline"),
    [
        (sequential_map, "parallel-map", "sequential-map", MAPS),
        (sequential_read, "parallel-interleave", "sequential-read", FILES),
        (thread_pool, "thread-pool:32", "thread-pool", MAPS),
    ],
)


@STRUCTURAL
def test_a_structural_rule_fires_where_its_own_fix_helped(evidence, build, rule, fix, name, pipeline) -> None:
    found = only(rule, evidence("input", pipeline=pipeline, fixes=fixed(build, fix)))
    assert (found.rule, found.limiting, found.severity) == (name, True, "critical")
    assert found.verified_speedup.estimate == 2.5
    assert found.evidence["measured_with"] == fix
    assert only(rule, evidence("input", pipeline=pipeline, fixes=fixed(build, fix, 1.5))).severity == "warning"


@STRUCTURAL
def test_or_where_the_model_says_so_and_no_trial_does(evidence, build, rule, fix, name, pipeline) -> None:
    found = only(rule, evidence("input", pipeline=pipeline, predictions=predicted(fix, 1.8)))
    assert (found.rule, found.limiting, found.evidence["predicted_with"]) == (name, True, fix)
    assert found.predicted_speedup.low == found.predicted_speedup.high == 1.8
    told = evidence("input", pipeline=pipeline, predictions=predicted(fix, 1.8), fixes=fixed(build, fix, 1.0))
    assert silent(rule, told), "it was tried and did not help"


@STRUCTURAL
def test_and_nowhere_else(evidence, build, rule, fix, name, pipeline) -> None:
    def told(bottleneck: str = "input", **changes):
        return evidence(bottleneck, **({"pipeline": pipeline, "fixes": fixed(build, fix)} | changes))

    assert not silent(rule, told())
    assert silent(rule, told(fixes=fixed(build, fix, 1.04, 0.0))), "it did not help enough"
    assert silent(rule, told(fixes=fixed(build, fix, 1.2, 0.2))), "it may not have helped"
    assert silent(rule, told("compute")), "the step does not wait"
    assert silent(rule, told("inconclusive"))
    assert silent(rule, told(pipeline=None))
    for fixes in ({}, fixed(build, fix, None), fixed(build, "other")):
        assert not [found for found in rule(told(fixes=fixes)) if found.limiting], "not tried, failed, another one"


def test_a_map_that_tensorflow_makes_parallel_is_not_named(evidence, build) -> None:
    first, given, heaviest, last = MAPS.ops
    stateless = heaviest.model_copy(update={"stateful": False})
    pipeline = MAPS.model_copy(update={"ops": (first, given, stateless, last)})
    found = only(sequential_map, evidence("input", pipeline=pipeline, fixes=fixed(build, "parallel-map")))
    assert (found.location.op, found.evidence["sequential_maps"]) == ("Map/_2", 1)


def test_the_map_that_costs_most_is_named(evidence, build) -> None:
    found = only(sequential_map, evidence("input", pipeline=MAPS, fixes=fixed(build, "parallel-map")))
    assert (found.location.op, found.location.line) == ("Map/_3", 2)
    assert found.evidence["cost_share"] == pytest.approx(0.3 / 0.411)
    assert found.evidence["sequential_maps"] == 2
    assert ".map(f, num_parallel_calls=tf.data.AUTOTUNE)" in found.remedy


def test_a_prediction_does_not_blame_a_cheap_map(evidence) -> None:
    cheap = (*MAPS.ops[:1], op("Map/_2", "MapDataset", "Range/_1", cost_s=0.001, stateful=True))
    told = evidence("input", pipeline=Pipeline(ops=cheap), predictions=predicted("parallel-map"))
    assert silent(sequential_map, told)


def test_records_of_several_files(evidence, build) -> None:
    found = only(sequential_read, evidence("input", pipeline=FILES, fixes=fixed(build, "parallel-interleave")))
    assert found.location.op == "Flat/_2"
    assert "tf.data.TFRecordDataset(files, num_parallel_reads=tf.data.AUTOTUNE)" in found.remedy
    assert "another order" in found.remedy
    assert found.evidence["sources"] == 6
    untried = only(sequential_read, evidence("input", pipeline=FILES))
    assert (untried.limiting, untried.severity) == (False, "warning")
    assert "neither tried nor estimated" in untried.remedy


def sources(kind: str, cardinality: int | None = 6, **fields) -> Pipeline:
    files = op("Files/_1", "TensorSliceDataset", cardinality=cardinality)
    return Pipeline(ops=(files, op("Read/_2", kind, "Files/_1", **({"cost_s": 0.5} | fields))))


def test_an_interleave_without_parallel_calls(evidence, build) -> None:
    told = {"fixes": fixed(build, "parallel-interleave")}
    mapped = sources(
        "InterleaveDataset", cycle_length=4, inner=(op("a", "TFRecordDataset"), op("b", "MapDataset", "a"))
    )
    found = only(sequential_read, evidence("input", pipeline=mapped, **told))
    assert ".interleave(f, cycle_length=6, num_parallel_calls=tf.data.AUTOTUNE)" in found.remedy
    assert found.evidence["cycle_length"] == 4


@pytest.mark.parametrize(
    "pipeline",
    [
        sources("ParallelInterleaveDatasetV4", parallelism=-1, inner=(op("a", "TFRecordDataset"),)),
        sources("FlatMapDataset", 1, inner=(op("a", "TFRecordDataset"),)),
        sources("FlatMapDataset", 1, inner=(op("a", "GeneratorDataset"),), python_functions=("t",)),
        sources("FlatMapDataset", -2, inner=(op("a", "BatchDatasetV2"),)),
        sources("MapDataset", stateful=True),
    ],
    ids=["parallel", "one file", "generator", "windows", "no files"],
)
def test_what_only_looks_like_files_in_turn(evidence, build, pipeline: Pipeline) -> None:
    told = evidence("input", pipeline=pipeline, fixes=fixed(build, "parallel-interleave"))
    assert silent(sequential_read, told)


def pooled(gil: str | None = None, size: int | None = None, **fields) -> Pipeline:
    function = PythonFunction(token="t", kind="numpy_function", name="g", gil=gil or "holds", location=Location(line=9))
    own = {"cost_s": 0.9, "parallelism": 32, "python_functions": ("t",) if gil else ()} | fields
    ops = (op("Range/_1", "RangeDataset", cost_s=0.01), op("Map/_2", "ParallelMapDatasetV2", "Range/_1", **own))
    return Pipeline(ops=ops, python_functions=(function,) if gil else (), threadpool_size=size)


def test_a_pool_that_helped_is_given_its_size(evidence, build) -> None:
    told = evidence("input", pipeline=pooled("blocks"), fixes=fixed(build, "thread-pool:64"))
    found = only(thread_pool, told)
    assert "private_threadpool_size = 64" in found.remedy
    assert "one thread a core" in found.title
    assert found.location.line == 9
    assert found.evidence["tried_size"] == 64


def test_a_pool_far_larger_than_the_cores_is_named_where_it_is_set(evidence) -> None:
    places = [SourceFact(kind="pool-size", file="options.py", line=line, text="") for line in (7, 9)]
    found = only(thread_pool, evidence("input", pipeline=pooled(size=8, cpu_s=0.9), source=places))
    assert (found.location.file, found.location.line) == ("options.py", 9)


def test_a_pool_of_one_thread_for_calls_that_compute(evidence) -> None:
    told = evidence("input", pipeline=pooled(size=1, cpu_s=0.9), predictions=predicted("thread-pool:2", 1.9))
    found = only(thread_pool, told)
    assert "could use all cores share 1 thread" in found.title
    assert found.location.op == "Map/_2"


def test_a_pool_predicted_with_parallel_calls_must_beat_those_alone(evidence) -> None:
    both = predicted("parallel-map + thread-pool:32", 4.0)
    pipeline = pooled("blocks")
    better = (*predicted("parallel-map", 2.0), *both)
    assert only(thread_pool, evidence("input", pipeline=pipeline, predictions=better)).evidence["tried_size"] == 32
    equal = (*predicted("parallel-map", 3.9), *both)
    assert silent(thread_pool, evidence("input", pipeline=pipeline, predictions=equal))


@pytest.mark.parametrize(
    ("size", "gil", "fires"),
    [(8, None, True), (7, None, False), (64, "blocks", False), (64, "unknown", False), (None, None, False)],
)
def test_a_pool_far_larger_than_the_cores(evidence, size, gil, fires: bool) -> None:
    found = list(thread_pool(evidence("compute", pipeline=pooled(gil, size))))
    assert bool(found) is fires
    if fires:
        assert (found[0].severity, found[0].limiting) == ("info", False)
        assert "Nothing is lost" in found[0].remedy


def test_ops_that_wait_justify_a_large_pool_unless_they_wait_for_the_cores(evidence) -> None:
    waiting = pooled(size=64, cpu_s=0.1)
    assert silent(thread_pool, evidence("compute", pipeline=waiting))
    crowded = StepFacts(has_step=True, cores_busy=0.95)
    assert not silent(thread_pool, evidence("compute", pipeline=waiting, facts=crowded))


def test_the_order_that_is_kept(evidence, build) -> None:
    told = {"steps": build.steps(wait_s=[0.01, 0.01, 0.01, 0.2] * 5, step_s=0.1)}
    found = only(order_sensitive, evidence("input", pipeline=ORDERED, **told))
    assert found.location.op == "Map/_2"
    assert "another order" in found.remedy
    assert not found.evidence["order_is_random_anyway"]
    shuffled = (
        op("Shuffle/_1", "ShuffleDatasetV3", random=True),
        ORDERED.ops[1].model_copy(update={"inputs": ("Shuffle/_1",)}),
    )
    anyway = only(order_sensitive, evidence("input", pipeline=Pipeline(ops=shuffled), **told))
    assert "Its input is shuffled" in anyway.remedy
    free = ORDERED.model_copy(update={"deterministic": False})
    assert silent(order_sensitive, evidence("input", pipeline=free, **told))
    loose = (ORDERED.ops[0], ORDERED.ops[1].model_copy(update={"deterministic": "false"}))
    assert silent(order_sensitive, evidence("input", pipeline=Pipeline(ops=loose), **told))


def test_an_order_is_suspect_where_waits_are_uneven(evidence, build) -> None:
    uneven = build.steps(wait_s=[0.01, 0.01, 0.01, 0.2] * 5, step_s=0.1)
    found = only(order_sensitive, evidence("input", pipeline=ORDERED, steps=uneven))
    assert (found.limiting, found.severity) == (False, "info")
    assert "not tried here" in found.remedy
    even = build.steps(wait_s=[0.05, 0.06] * 10, step_s=0.1)
    assert silent(order_sensitive, evidence("input", pipeline=ORDERED, steps=even))
    assert silent(order_sensitive, evidence("compute", pipeline=ORDERED, steps=uneven))


def test_parallel_calls_for_what_holds_the_lock_must_be_measured_to_help(evidence, build) -> None:
    held = PythonFunction(token="t", kind="numpy_function", name="g", gil="holds")
    busy = op("Map/_2", "MapDataset", "Range/_1", cost_s=0.3, stateful=True, python_functions=("t",))
    pipeline = Pipeline(ops=(op("Range/_1", "RangeDataset"), busy), python_functions=(held,))
    predictions = predicted("parallel-map", 1.5)
    assert silent(sequential_map, evidence("input", pipeline=pipeline, predictions=predictions))
    assert not silent(sequential_map, evidence("input", pipeline=pipeline, fixes=fixed(build, "parallel-map")))
    waits = pipeline.model_copy(update={"python_functions": (held.model_copy(update={"gil": "blocks"}),)})
    assert not silent(sequential_map, evidence("input", pipeline=waits, predictions=predictions))


def test_a_pool_is_not_advised_for_what_only_computes_whatever_one_process_measured(evidence, build) -> None:
    def called(cpu_s: float) -> Pipeline:
        function = PythonFunction(
            token="t", kind="numpy_function", name="load", gil="unknown", call_time_s=0.004, call_cpu_s=cpu_s
        )
        mapped = op("Map/_2", "ParallelMapDatasetV2", cost_s=0.1, parallelism=8, python_functions=("t",))
        return Pipeline(ops=(mapped,), python_functions=(function,))

    better = fixed(build, "thread-pool:32", 1.85)
    assert silent(thread_pool, evidence("input", pipeline=called(0.0039), fixes=better))
    assert only(thread_pool, evidence("input", pipeline=called(0.0002), fixes=better)).limiting


def read(*compressions: str | None, cost_s: float = 0.5, cached: bool = False) -> Pipeline:
    """Files read with some kinds of compression, and a map that takes 0.5 s a batch."""
    inner = tuple(op(f"r{number}", "TFRecordDataset", compression=kind) for number, kind in enumerate(compressions))
    where = Location(file="data.py", line=7)
    return Pipeline(
        ops=(
            op("Read/_1", "FlatMapDataset", cost_s=cost_s, inner=inner, location=where, cached=cached),
            op("Map/_2", "MapDataset", "Read/_1", cost_s=0.5),
        )
    )


def test_records_that_are_decompressed_while_the_step_waits(evidence) -> None:
    found = only(compressed_records, evidence("input", pipeline=read("GZIP")))
    assert (found.rule, found.severity, found.limiting) == ("compressed-records", "warning", False)
    assert (found.location.file, found.location.line, found.location.op) == ("data.py", 7, "Read/_1")
    # The map, which TensorFlow runs on both processors, has half the pace of its cost.
    assert found.evidence == pytest.approx({"compression": "GZIP", "cost_share": 0.5, "pace_share": 2 / 3})
    assert "(GZIP)" in found.title


def test_several_kinds_are_named_once_each(evidence) -> None:
    found = only(compressed_records, evidence("input", pipeline=read("ZLIB", "GZIP", "ZLIB")))
    assert found.evidence["compression"] == "GZIP and ZLIB"


@pytest.mark.parametrize(
    ("bottleneck", "pipeline"),
    [
        ("compute", read("GZIP")),
        ("input", read(None)),
        ("input", read("GZIP", cost_s=0.1)),
        ("input", read("GZIP", cached=True)),
    ],
    ids=["nothing waits for it", "not compressed", "a small part of the pace", "behind a full cache"],
)
def test_it_is_silent(evidence, bottleneck: str, pipeline: Pipeline) -> None:
    assert silent(compressed_records, evidence(bottleneck, pipeline=pipeline))


@STRUCTURAL
def test_a_rule_is_not_silent_beside_an_accepted_fix_that_its_own_is_a_part_of(
    evidence, build, rule, fix, name, pipeline
) -> None:
    if rule is order_sensitive:
        return
    whole = f"{fix} + prefetch"
    fixes = fixed(build, fix, 1.0) | fixed(build, whole, 3.0)
    assert silent(rule, evidence("input", pipeline=pipeline, fixes=fixes))
    fixes[whole] = replace(fixes[whole], accepted=True)
    found = only(rule, evidence("input", pipeline=pipeline, fixes=fixes))
    assert (found.rule, found.limiting, found.verified_speedup.estimate) == (name, True, 3.0)
    assert found.evidence["measured_with"] == whole


def test_as_many_calls_are_advised_as_the_gain_is_of(evidence) -> None:
    made = Pipeline(ops=(op("Map/_1", "MapDataset", cost_s=1.0, stateful=True, python_functions=("t",)),))
    rows = predicted("parallel-map:32", 4.0)
    found = only(sequential_map, evidence("input", pipeline=made, predictions=rows))
    assert ".map(f, num_parallel_calls=32)" in found.remedy
