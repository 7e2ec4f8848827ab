"""How many calls are asked for, of which ops, and what that does to the record."""

from __future__ import annotations

import pytest

from tests.unit.fixes.pipelines import BATCH, DECODE, ENVIRONMENT, PYTHON, RANGE, pipeline, python
from xttsbench.fixes.registry import candidates
from xttsbench.fixes.spec import Setting

READS = pipeline({"op": "TFRecordDataset"}).ops
PARALLEL = PYTHON | {"op": "ParallelMapDatasetV2"}


def found(given, cpus=2, **fields):
    return {one.name: one for one in candidates(Setting(given, cpus, ENVIRONMENT, **fields))}


@pytest.mark.parametrize(("goal_s", "calls"), [(None, 32), (0.02, 32), (0.002, 64), (1e-4, 128)])
def test_functions_that_wait_get_as_many_calls_and_threads_as_the_step_needs(goal_s, calls):
    # 80 ms of waiting a batch, and half as much again: 6 calls for a step of 20 ms, 60 for one of 2 ms.
    given = found(pipeline(RANGE, PYTHON, BATCH, python_functions=(python("blocks"),)), goal_s=goal_s)
    assert {f"parallel-map:{calls}", f"thread-pool:{calls}"} <= given.keys()
    assert not given[f"thread-pool:{calls}"].alone


@pytest.mark.parametrize(("cpu_s", "calls"), [(1e-5, 128), (0.004, 64), (0.01, 32)])
def test_no_more_calls_than_the_processors_can_serve(cpu_s, calls):
    # Of 80 ms that a batch's calls wait, so much is computing: with 4 ms on two processors 2 ms are the least a batch.
    waits = PYTHON | {"cpu_s": cpu_s}
    given = found(pipeline(RANGE, waits, BATCH, python_functions=(python("blocks"),)), goal_s=1e-4)
    assert {f"parallel-map:{calls}", f"thread-pool:{calls}"} <= given.keys()


def test_functions_that_compute_are_left_to_autotune():
    releases = pipeline(RANGE, PYTHON, BATCH, python_functions=(python("releases", cpu_s=0.01),))
    assert "parallel-map" in found(releases)
    assert not [name for name in found(releases) if name.startswith("thread-pool")]


def test_functions_that_hold_the_lock_are_called_once_a_processor_from_processes():
    holds = found(pipeline(RANGE, PYTHON, BATCH, python_functions=(python("holds", cpu_s=0.01),)), cpus=4)
    assert {"parallel-map:4", "processes:4"} <= holds.keys()
    assert not holds["processes:4"].alone
    assert "keeps it in each process" in holds["processes:4"].proof


@pytest.mark.parametrize(("element_bytes", "copied_s"), [(None, 0.0), (1e6, 8 * 1e6 / 2e9)])
def test_handing_calls_over_costs_a_crossing_each_and_the_copying_of_what_they_yield(element_bytes, copied_s):
    op = PYTHON | {"element_bytes": element_bytes, "elements_per_batch": 8.0, "cpu_s": 0.01}
    given = pipeline(RANGE, op, BATCH, python_functions=(python("holds", cpu_s=0.01),))
    (after,) = [one for one in found(given, cpus=4)["processes:4"].edit(given).ops if one.op == "MapDataset"]
    crossing_s = 8 * 150e-6 + copied_s
    assert (after.cost_s, after.cpu_s) == (pytest.approx(0.08 + crossing_s), pytest.approx(0.01 + crossing_s))


def test_one_processor_is_not_shared_among_processes():
    holds = pipeline(RANGE, PYTHON, BATCH, python_functions=(python("holds", cpu_s=0.01),))
    assert not [name for name in found(holds, cpus=1) if name.startswith("processes")]


def test_files_of_a_flat_map_are_read_ahead_and_one_file_is_not():
    reads = {"op": "FlatMapDataset", "inner": READS, "cost_s": 0.08, "cpu_s": 0.0}
    given = found(pipeline(RANGE | {"cardinality": 6}, reads, BATCH))
    edited = given["parallel-interleave:6"].edit(pipeline(RANGE | {"cardinality": 6}, reads, BATCH))
    assert (edited.ops[1].parallelism, edited.ops[1].cycle_length) == (6, 6)
    assert not [name for name in found(pipeline(RANGE | {"cardinality": 1}, reads)) if "interleave" in name]


def test_tiny_calls_are_worth_batching_where_they_are_a_share_of_the_work():
    tiny = {"op": "MapDataset", "cost_s": 8 * 50e-6, "elements_per_batch": 8.0}
    assert "batch-first" in found(pipeline(RANGE, tiny, BATCH))
    assert "batch-first" not in found(pipeline(RANGE, DECODE, tiny, BATCH))
    assert "batch-first" not in found(pipeline(RANGE, tiny | {"random": True}, BATCH))
    called = tiny | {"python_functions": ("t",)}
    kinds = {"numpy_function": True, "py_function": False}
    for kind, fits in kinds.items():
        given = pipeline(RANGE, called, BATCH, python_functions=(python("holds", cpu_s=5e-5, wall_s=5e-5, kind=kind),))
        assert ("batch-first" in found(given)) is fits


def test_rows_of_arrays_in_memory_are_worth_gathering_where_they_are_a_share_of_the_work():
    rows = {"elements_per_batch": 1000.0, "element_bytes": 400.0}
    slices = rows | {"op": "TensorSliceDataset", "cost_s": 1e-3, "cardinality": 9000}
    shuffle = rows | {"op": "ShuffleDatasetV3", "buffer_size": 9000, "cost_s": 1e-3, "cpu_s": 1e-3}
    batch = {"op": "BatchDatasetV2", "batch_size": 1000, "element_bytes": 4e5, "cost_s": 1e-3}
    given = pipeline(slices, shuffle, batch)
    edited = found(given)["gather"].edit(given)
    assert [op.cost_s for op in edited.ops] == pytest.approx([0.15e-3, 0.15e-3, 0.15e-3 + 4e5 / 2e9])
    assert (edited.ops[1].cpu_s, edited.ops[1].element_bytes) == (pytest.approx(0.15e-3), 8.0)
    assert found(given)["gather"].ops == tuple(op.name for op in given.ops)
    cheap = pipeline(slices | {"cost_s": 1e-6}, batch)
    assert [op.cost_s for op in found(cheap)["gather"].edit(cheap).ops] == pytest.approx([1e-6, 0.35e-3])
    unpriced = pipeline(slices | {"cost_s": None}, batch | {"cost_s": None})
    assert (found(unpriced)["gather"].edit, found(unpriced)["gather"].why_not is None) == (None, False)
    for others in (
        (slices, shuffle, DECODE | {"cost_s": 1e-5, "elements_per_batch": 1000.0}, batch),
        (slices, shuffle, batch, DECODE | {"cost_s": 1.0, "elements_per_batch": 1.0}),
        (slices | {"elements_per_batch": 4.0}, batch | {"batch_size": 4}),
        (slices | {"op": "RangeDataset"}, shuffle, batch),
        (slices, shuffle, batch | {"op": "PaddedBatchDatasetV2"}),
        (slices, shuffle),
    ):
        assert "gather" not in found(pipeline(*others))
    read_twice = pipeline(slices, batch, batch | {"inputs": ("0",)})
    assert "gather" not in found(read_twice)


def test_a_larger_pool_does_not_free_an_interleave_that_autotune_leaves_at_one_call():
    stuck = {"op": "ParallelInterleaveDatasetV4", "parallelism": -1, "chosen_parallelism": 1, "cost_s": 0.08,
             "python_functions": ("t",), "stateful": True}  # fmt: skip
    given = pipeline(RANGE, stuck, BATCH, python_functions=(python("blocks"),))
    tried = found(given)
    (pool,) = [one for name, one in tried.items() if name.startswith("thread-pool")]
    assert pool.edit(given).ops[1].chosen_parallelism == 1
    assert not [name for name in tried if name.startswith("parallel-interleave")]


def test_functions_that_cannot_be_moved_are_refused_before_a_trial_is_spent_on_them():
    given = pipeline(RANGE, PYTHON, BATCH, python_functions=(python("holds", cpu_s=0.01),))
    why = "The Python function load (data.py:3) cannot run in another process: its 'LOCK' is a lock"
    refused = found(given.model_copy(update={"immovable": why}), cpus=4)["processes:4"]
    assert (found(given, cpus=4)["processes:4"].refused, refused.refused) == (None, why)
