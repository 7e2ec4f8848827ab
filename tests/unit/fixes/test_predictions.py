"""Predictions of whole pipelines, worked out by hand from the costs that are given."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.evidence.made import make_evidence
from tests.unit.fixes.pipelines import BATCH, ENVIRONMENT, PYTHON, pipeline, python
from xttsbench.analysis.attribution import StepFacts
from xttsbench.evidence import Compared
from xttsbench.fixes.model import as_measured
from xttsbench.fixes.predictions import beside, predictions, unmeasured
from xttsbench.fixes.registry import candidates
from xttsbench.fixes.spec import Setting
from xttsbench.records.base import Estimate
from xttsbench.throughput.pace import Consumer

STEP = Estimate(estimate=0.02, low=0.019, high=0.021)
RANGE = {"op": "RangeDataset", "elements_per_batch": 8.0, "cost_s": 0.0}
WAITING = pipeline(RANGE, PYTHON, BATCH, python_functions=(python("blocks", cpu_s=0.0),))


def measured(seconds):
    return Estimate(estimate=seconds, low=0.9 * seconds, high=1.2 * seconds)


def by_name(given, *, alone=STEP, wall=None, **fields):
    """Rows by name; without ``wall``, what one step takes as measured, of the costs as they were read."""
    evidence = make_evidence(
        "input", pipeline=given, environment=ENVIRONMENT, **{"parts": {}, "max_speedups": {}, **fields}
    )
    return {row.name: row for row in predictions(evidence, wall=wall, alone=alone)}


def test_without_a_pipeline_nothing_is_predicted():
    assert predictions(make_evidence("input")) == ()


def test_without_costs_the_reason_is_given():
    rows = by_name(pipeline({"op": "RangeDataset"}, costs_from="no costs: the dataset is empty"))
    assert rows["as it is"].batches_per_s is None
    assert rows["as it is"].why_not == "no costs: the dataset is empty"
    assert rows["input costs nothing"].batches_per_s == pytest.approx(50)


def test_a_waiting_function_wants_parallel_calls_and_threads_for_them():
    rows = by_name(WAITING)
    # 8 calls of 10 ms: one after the other, by the 2 threads of the pool, by 32; the step takes 20 ms.
    assert rows["as it is"].batches_per_s == pytest.approx(1 / 0.08)
    assert rows["as it is"].limited_by == "1"
    assert rows["parallel-map:32"].speedup == pytest.approx(2)
    assert rows["thread-pool:32"].speedup == pytest.approx(1)
    both = rows["parallel-map:32 + thread-pool:32"]
    assert both.fixes == ("parallel-map:32", "thread-pool:32")
    assert (both.speedup, both.limited_by) == (pytest.approx(4), "step")
    assert rows["input costs nothing"].speedup == pytest.approx(4)
    assert "prefetch" not in rows
    assert "processes:2" not in rows


def test_what_was_measured_stands_beside_it():
    tried = Compared("parallel-map:32", "ok", time_s=Estimate(estimate=0.05, low=0.04, high=0.08))
    rows = {row.name: row for row in beside(tuple(by_name(WAITING, wall=measured(0.1)).values()), {tried.name: tried})}
    assert rows["as it is"].measured_per_s.estimate == pytest.approx(10)
    found = rows["parallel-map:32"].measured_per_s
    assert (found.low, found.estimate, found.high) == pytest.approx((12.5, 20, 25))
    assert rows["input costs nothing"].measured_per_s.estimate == pytest.approx(50)


def test_no_fix_is_said_to_give_more_than_the_whole_loss_of_the_input():
    parts = {"input": 0.0826, "compute": 0.0174}
    rows = by_name(WAITING, wall=measured(0.1), alone=measured(0.0166), parts=parts)
    gains = [row.speedup for row in rows.values() if row.speedup]
    assert max(gains) == pytest.approx(1 / (1 - 0.826))
    assert rows["parallel-map:32"].speedup == pytest.approx(2, rel=0.1)


def test_costs_are_scaled_to_what_was_measured_and_the_step_is_not():
    rows = by_name(WAITING, wall=measured(0.1))
    # As read a batch takes 80 ms; it took 100, so each of its 8 calls is taken for one of 12.5 ms.
    assert rows["as it is"].batches_per_s == pytest.approx(1 / 0.08)
    assert rows["parallel-map:32"].batches_per_s == pytest.approx(1 / 0.05)
    assert rows["parallel-map:32"].speedup == pytest.approx(2)
    both = rows["parallel-map:32 + thread-pool:32"]
    assert (both.speedup, both.limited_by) == (pytest.approx(5), "step")
    assert rows["input costs nothing"].speedup == pytest.approx(5)


def test_costs_lie_between_what_was_measured_with_the_step_and_without():
    # 80 ms as read, 100 with the step and 90 by itself: 94.9 is as far above the one as below the other.
    rows = by_name(WAITING, wall=measured(0.1), input_alone_s=measured(0.09))
    assert rows["parallel-map:32"].batches_per_s == pytest.approx(2 / (0.1 * 0.09) ** 0.5)
    assert rows["parallel-map:32 + thread-pool:32"].speedup == pytest.approx((0.1 * 0.09) ** 0.5 / 0.02)


def test_an_input_that_the_step_hides_is_scaled_to_what_it_takes_by_itself():
    hidden = pipeline(RANGE, {"op": "ShuffleDatasetV3", "cost_s": 0.01, "cpu_s": 0.002})
    evidence = make_evidence("compute", environment=ENVIRONMENT, input_alone_s=measured(0.012), wall_s=0.05)
    found = as_measured(hidden, Consumer(alone_s=0.05), evidence).ops[1]
    assert (found.cost_s, found.cpu_s) == pytest.approx((0.012, 0.0024))


def test_where_the_step_sets_the_pace_costs_stay_as_they_were_read():
    rows = by_name(WAITING, alone=measured(0.1), wall=measured(0.11))
    assert rows["as it is"].limited_by == "step"
    assert rows["parallel-map:32"].speedup == pytest.approx(1)


def test_a_model_that_is_far_off_is_not_scaled():
    rows = by_name(WAITING, wall=measured(0.17))
    assert rows["parallel-map:32"].batches_per_s == pytest.approx(1 / 0.04)
    assert rows["parallel-map:32"].speedup is None
    assert "2.1 times off" in rows["as it is"].why_not


def test_a_function_that_holds_the_lock_gains_from_processes_and_not_from_threads():
    holding = pipeline(RANGE, PYTHON, BATCH, python_functions=(python("holds", cpu_s=0.01),))
    rows = by_name(holding)
    assert rows["parallel-map:2"].speedup == pytest.approx(1)
    assert rows["parallel-map:2"].limited_by == "interpreter lock"
    # Each call is handed over and taken back, 150 us that both sides work for.
    assert rows["parallel-map:2 + processes:2"].speedup == pytest.approx(0.08 / ((0.08 + 8 * 150e-6) / 2), rel=1e-3)
    assert not [name for name in rows if name.startswith("thread-pool")]


def test_costs_that_were_read_one_call_at_a_time_are_not_divided_by_the_calls_of_a_fix():
    # 80 ms of sequential calls, half of it under the lock: 2 processes for 40 ms each.
    mixed = pipeline(RANGE, PYTHON, BATCH, python_functions=(python("holds", cpu_s=0.005),))
    both = by_name(mixed)["parallel-map:2 + processes:2"]
    assert both.batches_per_s == pytest.approx(2 / (0.08 + 8 * 150e-6), rel=1e-3)


def test_a_generator_cannot_be_moved_to_processes():
    generator = python("holds", cpu_s=0.01, kind="generator")
    rows = by_name(pipeline(RANGE, PYTHON, BATCH, python_functions=(generator,)))
    assert not [name for name in rows if "processes" in name]


def test_a_prefetch_is_a_candidate_where_input_and_step_take_turns():
    turns = pipeline(RANGE, {"op": "ShuffleDatasetV3", "cost_s": 0.03}, autotune=False, injects_prefetch=False)
    rows = by_name(turns)
    assert rows["as it is"].batches_per_s == pytest.approx(20)
    assert rows["prefetch"].batches_per_s == pytest.approx(1 / 0.03)


DECODE = {"op": "MapDataset", "cost_s": 0.08, "cpu_s": 0.08, "cardinality": 1000, "element_bytes": 1000.0}


def cache_of(*ops, environment=ENVIRONMENT, **fields):
    given = pipeline(RANGE | {"cardinality": 1000}, *ops, autotune=False, **fields)
    return [one for one in candidates(Setting(given, 2, environment)) if one.name.startswith("cache@")]


def test_a_cache_goes_after_the_last_op_that_yields_the_same_in_every_pass():
    shuffle = {"op": "ShuffleDatasetV3", "random": True, "cost_s": 0.01, "cardinality": 1000}
    (found,) = cache_of(DECODE, shuffle, BATCH)
    assert (found.name, found.why_not) == ("cache@1", None)
    assert cache_of(DECODE | {"random": True}, BATCH) == []
    assert cache_of(DECODE | {"cardinality": -1}, BATCH) == []
    assert cache_of({"op": "RepeatDataset", "cardinality": -1}, BATCH, DECODE | {"cardinality": -1}) == []


def test_a_cache_that_would_not_fit_is_no_candidate_and_one_of_unknown_size_cannot_be_judged():
    assert cache_of(DECODE | {"element_bytes": 5e6}) == []
    (found,) = cache_of(DECODE | {"element_bytes": None})
    assert found.edit is None
    assert found.why_not


def test_a_cache_behind_python_may_change_the_data():
    (found,) = cache_of(DECODE | {"python_functions": ("t",), "side_effects": True})
    assert found.edit is not None
    assert found.why_not is None
    assert "Python function" in found.proof


def test_behind_a_cache_only_what_comes_after_it_costs():
    random = {"op": "MapDataset", "random": True, "stateful": True, "cost_s": 0.04, "cpu_s": 0.04, "cardinality": 1000}
    rows = by_name(pipeline(RANGE | {"cardinality": 1000}, DECODE, random, autotune=False))
    assert rows["as it is"].batches_per_s == pytest.approx(1 / 0.14)
    assert rows["cache@1"].batches_per_s == pytest.approx(1 / 0.06)


def test_an_interleave_is_read_by_as_many_threads_as_its_cycle_is_long():
    reads = {"op": "InterleaveDataset", "cycle_length": 4, "cost_s": 0.08, "cpu_s": 0.0}
    rows = by_name(pipeline(RANGE, reads, BATCH))
    assert rows["parallel-interleave"].batches_per_s == pytest.approx(1 / 0.02)


def test_a_bare_dataset_has_no_ceiling():
    rows = by_name(WAITING, alone=None, has_step=False, facts=StepFacts(has_step=False))
    # Calls for the next batches run at once with those for this one.
    assert rows["parallel-map:32 + thread-pool:32"].speedup == pytest.approx(32)
    assert rows["input costs nothing"].why_not == "there is no step to set the pace"


def test_every_number_that_is_not_there_has_a_reason():
    rows = tuple(by_name(WAITING, alone=None, has_step=False, facts=StepFacts(has_step=False)).values())
    missing = unmeasured(rows)
    for index, row in enumerate(rows):
        for name in ("batches_per_s", "speedup", "measured_per_s"):
            assert (getattr(row, name) is None) == bool(missing.get(f"predictions.{index}.{name}"))


def test_beginning_anew_takes_what_it_was_measured_to_take(build):
    """Every tenth step begins an epoch and waits half a second more than the others: 50 ms a step."""
    epoch = np.arange(100) // 10
    wait_s = np.where(np.arange(100) % 10 == 0, 0.56, 0.06)
    steps = build.steps(wait_s=wait_s, step_s=0.02, epoch=epoch)
    rows = by_name(WAITING, steps=steps)
    began = 9 / 100  # the first epoch began before the first step
    assert rows["as it is"].batches_per_s == pytest.approx(1 / (0.08 + 0.5 * began))
    assert rows["parallel-map:32"].batches_per_s == pytest.approx(1 / (0.04 + 0.5 * began))
    assert rows["input costs nothing"].batches_per_s == pytest.approx(50)


def test_with_batches_first_the_calls_are_spared_and_what_each_row_takes_is_not():
    """256 rows a batch, of which each takes 10 us in Python and 40 us to be called."""
    rows = RANGE | {"elements_per_batch": 256.0}
    mapped = PYTHON | {"cost_s": 256 * 50e-6, "elements_per_batch": 256.0}
    batch = BATCH | {"batch_size": 256}
    row = python("unknown", cpu_s=10e-6, wall_s=10e-6, calls=256).model_copy(update={"around_call_s": 40e-6})
    given = pipeline(rows, mapped, batch, python_functions=(row,))
    found = by_name(given, alone=measured(0.001))
    # Threads do not help, since making a call takes the lock.
    assert (found["as it is"].limited_by, found["parallel-map"].speedup) == ("1", pytest.approx(1))
    assert found["batch-first"].batches_per_s == pytest.approx(1 / (256 * 10e-6 + 40e-6))
    assert found["batch-first"].speedup == pytest.approx(256 * 50e-6 / (256 * 10e-6 + 40e-6))
    unmeasured = pipeline(rows, mapped, batch, python_functions=(row.model_copy(update={"around_call_s": None}),))
    assert by_name(unmeasured)["batch-first"].batches_per_s is None


def test_with_batches_first_ops_of_tensorflow_take_a_batch_as_they_take_an_element_but_for_its_bytes():
    """256 rows of 40 us; a batch of them is then one call, and 256 kB to be written at 2 GB/s."""
    rows = RANGE | {"elements_per_batch": 256.0}
    mapped = {"op": "MapDataset", "cost_s": 256 * 40e-6, "cpu_s": 2 * 256 * 40e-6, "elements_per_batch": 256.0}
    given = pipeline(rows, mapped | {"element_bytes": 1000.0}, BATCH | {"batch_size": 256})
    (found,) = (one for one in candidates(Setting(given, 2, ENVIRONMENT)) if one.name == "batch-first")
    edited = found.edit(given).ops[1]
    assert edited.cost_s == pytest.approx(40e-6 + 256_000 / 2e9)
    assert edited.cpu_s == pytest.approx(2 * edited.cost_s)


def test_what_was_measured_of_a_fix_follows_from_its_speed_up_and_the_target_s_own_rate():
    # Its times are of later rounds, with other neighbours: 30 ms, of an original of 60 then and 100 before.
    tried = Compared(
        "parallel-map:32",
        "ok",
        time_s=Estimate(estimate=0.03, low=0.02, high=0.04),
        speedup=Estimate(estimate=2.0, low=1.5, high=2.5),
    )
    rows = {row.name: row for row in beside(tuple(by_name(WAITING, wall=measured(0.1)).values()), {tried.name: tried})}
    found = rows["parallel-map:32"].measured_per_s
    assert (found.low, found.estimate, found.high) == pytest.approx((15, 20, 25))


def test_a_best_case_is_that_of_the_measured_step():
    rows = by_name(WAITING, max_speedups={"input": measured(3.0)})
    assert rows["input costs nothing"].speedup == pytest.approx(3.0)


def test_what_begins_each_epoch_anew_limits_where_it_takes_most(build):
    steps = build.steps(wait_s=[1.0, *[0.001] * 9] * 4, step_s=0.02, epoch=np.repeat(np.arange(4), 10))
    quick = pipeline(RANGE, PYTHON | {"cost_s": 0.001}, BATCH, python_functions=(python("blocks", wall_s=1e-4),))
    assert by_name(quick, steps=steps)["as it is"].limited_by == "step and the beginning of each epoch"
