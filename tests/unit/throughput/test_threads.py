"""Which ops share a thread, and what runs beside what: each case as TensorFlow 2.21 was seen to run it."""

from __future__ import annotations

import pytest

from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction
from xttsbench.throughput.threads import (
    Chain,
    chain_of,
    demand,
    elements_per_batch,
    pool_size,
    threads,
    written_parallelism,
)


def chain(*ops, **fields):
    """A pipeline of ops that each read the one before, named by their number."""
    made = [
        PipelineOp(name=str(number), inputs=(str(number - 1),) if number else (), **given)
        for number, given in enumerate(ops)
    ]
    return Pipeline(ops=tuple(made), **fields)


RANGE = {"op": "RangeDataset"}
MAP = {"op": "MapDataset", "stateful": True}
PARALLEL = {"op": "ParallelMapDatasetV2", "parallelism": 4}
PREFETCH = {"op": "PrefetchDataset", "buffer_size": 4}
SHUFFLE = {"op": "ShuffleDatasetV3"}
BATCH = {"op": "BatchDatasetV2", "batch_size": 8}
PADDED = {"op": "PaddedBatchDatasetV2", "batch_size": 8}


def named(ops):
    return "".join(op.name for op in ops)


def outline(pipeline, cpus=2):
    """(spread, at once, calls, parallelism) of each thread from the consumer to the source."""
    return [(named(t.spread), named(t.at_once), named(t.calls), t.parallelism) for t in threads(pipeline, cpus).walk()]


def test_sequential_ops_share_the_thread_of_an_injected_prefetch_or_of_the_consumer():
    assert outline(chain(RANGE, MAP, SHUFFLE)) == [("", "", "", 1), ("012", "", "", 1)]
    assert outline(chain(RANGE, MAP, SHUFFLE, injects_prefetch=False)) == [("012", "", "", 1)]
    assert outline(chain(RANGE, MAP, autotune=False)) == [("01", "", "", 1)]


def test_a_prefetch_ends_a_thread_and_one_of_no_buffer_does_not():
    assert outline(chain(RANGE, MAP, PREFETCH, MAP, PREFETCH)) == [
        ("", "", "", 1),
        ("34", "", "", 1),
        ("012", "", "", 1),
    ]
    assert outline(chain(RANGE, PREFETCH | {"buffer_size": 0}, MAP, PREFETCH))[1] == ("0123", "", "", 1)


def test_a_parallel_map_is_fed_by_a_thread_of_its_own():
    assert outline(chain(RANGE, MAP, PARALLEL)) == [("", "", "", 1), ("01", "", "2", 4)]


def test_map_and_batch_are_fused_and_even_a_sequential_map_then_works_ahead():
    assert outline(chain(RANGE, MAP, BATCH, injects_prefetch=False)) == [("", "", "", 1), ("0", "", "12", 1)]
    fused = threads(chain(RANGE, PARALLEL, BATCH), 2).inputs[0]
    assert (fused.ready, fused.parallelism) == (1.0, 4)
    off = {"experimental_optimization.map_and_batch_fusion": "False"}
    assert outline(chain(RANGE, PARALLEL, BATCH, injects_prefetch=False, options=off))[0] == ("", "2", "", 1)
    assert outline(chain(RANGE, PARALLEL, PADDED, injects_prefetch=False))[0] == ("", "2", "", 1)


def test_what_an_unfused_parallel_map_keeps_ready_is_a_part_of_a_batch():
    calls = threads(chain(RANGE, PARALLEL, SHUFFLE, BATCH, injects_prefetch=False), 2).inputs[0]
    assert (calls.ready, calls.elements) == (0.5, 8.0)


def test_a_plain_map_without_state_is_made_parallel_by_autotune():
    stateless = {"op": "MapDataset"}
    assert outline(chain(RANGE, stateless, SHUFFLE))[2] == ("0", "", "1", 2)
    assert outline(chain(RANGE, stateless, SHUFFLE, autotune=False)) == [("012", "", "", 1)]
    assert outline(chain(RANGE, stateless | {"python_functions": ("t",)}, SHUFFLE))[1] == ("012", "", "", 1)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ({"op": "ParallelInterleaveDatasetV4", "parallelism": 16, "cycle_length": 4}, 4),
        ({"op": "ParallelInterleaveDatasetV4", "parallelism": -1, "cycle_length": 8}, 8),
        ({"op": "ParallelInterleaveDatasetV4", "parallelism": -1, "cycle_length": -1, "chosen_parallelism": 1}, 1),
        ({"op": "ParallelMapDatasetV2", "parallelism": 16}, 16),
        ({"op": "ParallelMapDatasetV2", "parallelism": -1}, 2),
    ],
)
def test_calls_at_once(op, expected):
    pipeline = chain(op)
    assert written_parallelism(pipeline.ops[0], pipeline, 2) == expected


def test_the_pool_follows_the_options_then_the_processors_that_the_process_counted():
    assert pool_size(Pipeline(threadpool_size=32, cpus=8), 2) == 32
    assert pool_size(Pipeline(cpus=8), 2) == 8
    assert pool_size(Pipeline(), 2) == 2


def test_elements_per_batch_follow_from_batch_sizes_unless_counted():
    assert elements_per_batch(chain(RANGE, MAP, BATCH)) == {"0": 8.0, "1": 8.0, "2": 1.0}
    counted = chain(RANGE, {"op": "FilterDataset", "elements_per_batch": 8.0}, BATCH)
    assert elements_per_batch(counted)["1"] == 8.0


def test_calls_that_wait_for_one_another_s_lock_are_taken_at_what_they_hold_it_for():
    function = PythonFunction(
        token="t", kind="numpy_function", name="f", gil="holds", call_cpu_s=0.01, calls_per_batch=4
    )
    given = PARALLEL | {"cost_s": 0.16, "python_functions": ("t",)}
    pipeline = chain(RANGE, given, python_functions=(function,), threadpool_size=8)
    need = demand(pipeline.ops[1], pipeline, 4)
    assert (need.cost_s, need.lock_s, need.pool_s) == pytest.approx((0.04, 0.04, 0.04))


def test_reading_in_an_interleave_takes_no_thread_of_the_pool_and_its_functions_do():
    inner = (PipelineOp(name="a", op="TFRecordDataset", cost_s=0.3), PipelineOp(name="b", op="MapDataset", cost_s=0.1))
    given = {"op": "ParallelInterleaveDatasetV4", "parallelism": 4, "cost_s": 0.4, "inner": inner}
    pipeline = chain(RANGE, given)
    assert demand(pipeline.ops[1], pipeline, 2).pool_s == pytest.approx(0.1)


def test_inputs_of_a_concatenation_come_in_turn():
    ops = (
        PipelineOp(name="a", op="PrefetchDataset", buffer_size=1, inputs=("x",)),
        PipelineOp(name="b", op="PrefetchDataset", buffer_size=1, inputs=("y",)),
        PipelineOp(name="both", op="ConcatenateDataset", inputs=("a", "b")),
        PipelineOp(name="end", op="PrefetchDataset", buffer_size=1, inputs=("both",)),
    )
    last = threads(Pipeline(ops=ops), 2).inputs[0]
    assert last.in_turn
    assert len(last.inputs) == 2
    zipped = tuple(op.model_copy(update={"op": "ZipDataset"}) if op.name == "both" else op for op in ops)
    assert not threads(Pipeline(ops=zipped), 2).inputs[0].in_turn


def test_what_autotune_kept_ready_at_the_end_is_taken_where_it_was_seen():
    work = {"op": "ShuffleDatasetV3", "cost_s": 0.1}
    assert threads(chain(RANGE, work), 2).inputs[0].ready == 2
    assert threads(chain(RANGE, work, injected_buffer_size=12), 2).inputs[0].ready == 12


@pytest.mark.parametrize(
    ("gil", "lock_s", "at_once_s"),
    [
        ("holds", 8 * 0.0011, 8 * 0.0011),
        ("unknown", 8 * 0.0011, 8 * 0.0011),
        ("blocks", 8 * 0.0011, 8 * 0.0011 / 2),  # it ends under the lock, too, but later
        ("releases", 8 * 0.0001, 8 * 0.0001),
    ],
)
def test_making_a_call_takes_the_lock_whatever_the_function_does(gil, lock_s, at_once_s):
    call = {"token": "t", "kind": "numpy_function", "name": "f", "gil": gil, "calls_per_batch": 8.0}
    function = PythonFunction(**call, call_time_s=0.01, call_cpu_s=0.001, around_call_s=0.0001)
    given = chain(RANGE, MAP | {"python_functions": ("t",), "cost_s": 0.08}, BATCH, python_functions=(function,))
    found = demand(given.ops[1], given, 2)
    assert (found.lock_s, found.at_once_s, found.calls) == pytest.approx((lock_s, at_once_s, 8))


def test_what_waits_and_computes_for_long_may_compute_outside_the_lock():
    call = {"token": "t", "kind": "numpy_function", "name": "f", "gil": "blocks", "calls_per_batch": 8.0}
    function = PythonFunction(**call, call_time_s=0.01, call_cpu_s=0.004, around_call_s=0.0001)
    given = chain(RANGE, MAP | {"python_functions": ("t",), "cost_s": 0.08}, BATCH, python_functions=(function,))
    assert demand(given.ops[1], given, 2).lock_s == pytest.approx(8 * 0.0001)


TYPES = {
    "files": "TensorSliceDataset",
    "shuffle": "ShuffleDatasetV3",
    "repeat": "RepeatDataset",
    "decode": "MapDataset",
    "ahead": "PrefetchDataset",
    "scale": "ParallelMapDatasetV2",
    "batch": "BatchDatasetV2",
    "filter": "FilterDataset",
    "zip": "ZipDataset",
    "options": "OptionsDataset",
}


def found(*names, at=None, also=()):
    inputs = {name: (before,) if before else () for name, before in zip(names, (None, *names), strict=False)}
    return chain_of(at or names[-1], TYPES, inputs | dict(also))


@pytest.mark.parametrize(
    ("names", "chain"),
    [
        (["files", "shuffle", "decode"], Chain(("shuffle",), ("decode",), "files")),
        (["files", "repeat", "shuffle", "decode"], Chain(("repeat", "shuffle"), ("decode",), "files")),
        (
            ["files", "shuffle", "decode", "ahead", "repeat", "scale"],
            Chain(("shuffle", "repeat"), ("decode", "ahead", "scale"), "files"),
        ),
        (["files", "decode", "shuffle", "scale"], Chain(("shuffle",), ("scale",), "decode")),
        (["files", "shuffle", "options", "scale"], Chain(("shuffle",), ("options", "scale"), "files")),
        (["files", "filter", "repeat", "decode"], Chain(("repeat",), ("decode",), "filter")),
        (["files", "shuffle", "batch", "repeat", "decode"], Chain(("repeat",), ("decode",), "batch")),
    ],
)
def test_orderings_with_nothing_but_maps_behind_them_may_be_moved(names, chain) -> None:
    assert found(*names) == chain


@pytest.mark.parametrize(
    "names",
    [
        ["files", "decode"],
        ["files", "shuffle"],
        ["files", "shuffle", "ahead"],
        ["files", "shuffle", "decode", "batch"],
        ["files", "shuffle", "filter", "decode"],
        ["files", "shuffle", "batch", "decode"],
    ],
)
def test_others_stay(names) -> None:
    assert found(*names) == Chain((), (), names[-1])


def test_what_others_read_as_well_stays_theirs() -> None:
    assert not found("files", "shuffle", "decode", also={"zip": ("shuffle", "decode")}).orderings
    assert found("files", "shuffle", "decode", also={"zip": ("decode", "decode")}).orderings
