"""The step as the model takes it, from segments of known steps."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.evidence.made import make_evidence
from tests.unit.fixes.pipelines import ENVIRONMENT, pipeline, python
from tests.unit.throughput.test_pace import every_sixteenth, simulated
from xttsbench.analysis.attribution import StepFacts
from xttsbench.evidence.pipeline import consumer, machine
from xttsbench.fixes.predictions import predictions
from xttsbench.fixes.proposals import proposals
from xttsbench.records.base import Estimate
from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction
from xttsbench.records.trial import Segment, TrialRecord, TrialSpec
from xttsbench.throughput.threads import threads

MS = 1_000_000


def trial(**segments):
    """Ten equal steps in each segment, from columns in milliseconds."""
    made = tuple(
        Segment(name=name, columns={f"{key}_ns": (value * MS,) * 10 for key, value in ({"start": 0} | columns).items()})
        for name, columns in segments.items()
    )
    spec = TrialSpec(trial_id="0", kind="ladder", target="data.py:make")
    return TrialRecord(spec=spec, status="ok", started_utc="", duration_s=1.0, segments=made)


ALONE = {"wall": 20, "wait": 0, "step": 20, "calls": 15, "cpu": 30, "main_cpu": 8}


def test_a_bare_dataset_has_no_step():
    step = consumer(make_evidence("input", has_step=False, facts=StepFacts(has_step=False)), None)
    assert (step.alone_s, step.cpu_s, step.lock_s) == (0, 0, 0)


def test_the_step_alone_with_its_processors_and_its_own_python():
    facts = StepFacts(has_step=True, handoff_s=1e-4)
    step = consumer(make_evidence("input", ladder=[trial(step_only=ALONE)], facts=facts), 0.02)
    # 5 of 20 ms are outside its tf.functions, which is all that may hold the lock.
    assert (step.alone_s, step.cpu_s, step.lock_s) == pytest.approx((0.02, 0.03, 0.005))
    assert step.handoff_s == 1e-4


def test_after_a_pause_a_batch_is_handed_over_more_slowly():
    facts = StepFacts(has_step=False, handoff_s=1e-4, handoff_after_pause_s=6e-4)
    paced = trial(as_is={"wall": 9, "wait": 4, "step": 5})
    paced = paced.model_copy(update={"spec": paced.spec.model_copy(update={"emulated_ms": (5.0,)})})
    step = consumer(make_evidence("input", has_step=False, emulated=True, ladder=[paced], facts=facts), None)
    assert (step.alone_s, step.handoff_s) == (0.005, 6e-4)


@pytest.mark.parametrize(
    ("gil", "alone_s"), [("blocks", 0.0053), ("releases", 0.0053), ("holds", 0.005), ("unknown", 0.005)]
)
def test_an_emulated_step_is_as_late_as_it_was_measured_where_no_lock_can_be_the_reason(gil, alone_s):
    beside = trial(as_is={"wall": 9.3, "wait": 4, "step": 5.2, "main_cpu": 0.4})
    beside = beside.model_copy(update={"spec": beside.spec.model_copy(update={"emulated_ms": (5.0,)})})
    given = Pipeline(python_functions=(PythonFunction(token="t", kind="numpy_function", name="f", gil=gil),))
    evidence = make_evidence("input", has_step=False, emulated=True, ladder=[beside], pipeline=given)
    step = consumer(evidence, None)
    # The loop's own Python takes the processor, and the lock, whatever the device does.
    assert (step.alone_s, step.cpu_s, step.lock_s) == pytest.approx((alone_s, 0.0004, 0.0004))


def test_the_kernels_of_an_eager_step_do_not_hold_the_lock():
    facts = StepFacts(has_step=True, eager=True, dispatch_floor_s=0.002, host_share=0.1)
    step = consumer(make_evidence("input", ladder=[trial(step_only=ALONE | {"calls": 0})], facts=facts), 0.02)
    assert step.lock_s == pytest.approx(0.004)


def test_without_the_step_alone_the_step_beside_its_input_is_taken():
    beside = {"wall": 50, "wait": 25, "step": 25, "calls": 24, "cpu": 60, "main_cpu": 10}
    step = consumer(make_evidence("input", ladder=[trial(as_is=beside)]), None)
    assert (step.alone_s, step.cpu_s, step.lock_s) == pytest.approx((0.025, 0.010, 0.001))


def test_a_quota_may_leave_a_fraction_of_a_processor():
    evidence = make_evidence("input", environment={"cpu": {"allowed_cpus": 1.5}})
    found = machine(Pipeline(threadpool_size=8), evidence)
    assert (found.processors, found.pool_threads) == (1.5, 8)


def test_stages_carry_what_the_ops_need():
    ops = (
        PipelineOp(name="a", op="RangeDataset", elements_per_batch=4.0),
        PipelineOp(name="b", op="ParallelMapDatasetV2", parallelism=2, cost_s=0.04, cpu_s=0.01, elements_per_batch=4.0,
                   inputs=("a",)),
        PipelineOp(name="c", op="PaddedBatchDatasetV2", batch_size=4, cost_s=0.01, inputs=("b",)),
    )  # fmt: skip
    (prefetch,) = threads(Pipeline(ops=ops), 2).inputs
    assert [work.name for work in prefetch.at_once] == ["c"]
    (calls,) = prefetch.inputs
    assert (calls.calls[0].cost_s, calls.calls[0].cpu_s, calls.calls[0].pool_s) == (0.04, 0.01, 0.04)
    assert (calls.parallelism, calls.ready, calls.elements) == (2, 0.5, 4.0)


STEP_S = 0.008
PRODUCED = np.tile(every_sixteenth(), 4)
MEAN_S = float(PRODUCED.mean())


def bursty(*, buffer=1, **fields):
    source = {"op": "RangeDataset", "cost_s": 0.0, "elements_per_batch": 1.0}
    fetch = {
        "op": "MapDataset",
        "stateful": True,
        "python_functions": ("t",),
        "cost_s": MEAN_S,
        "cpu_s": 0.0,
        "elements_per_batch": 1.0,
    }
    last = {"op": "PrefetchDataset", "buffer_size": buffer, "cost_s": 0.0}
    given = python("blocks", calls=1, wall_s=MEAN_S)
    return pipeline(source, fetch, *([last] if buffer else []), python_functions=(given,), **fields)


def evidence_of(build, given, waits):
    steps = build.steps(wait_s=waits, step_s=STEP_S)
    wall_s = float(waits.mean()) + STEP_S
    return make_evidence(
        "input",
        pipeline=given,
        environment=ENVIRONMENT,
        steps=steps,
        wall_s=wall_s,
        parts={"input": float(waits.mean()), "compute": STEP_S},
        input_alone_s=Estimate(estimate=MEAN_S, low=MEAN_S, high=MEAN_S),
    )


def rows_of(evidence):
    alone = Estimate(estimate=STEP_S, low=STEP_S, high=STEP_S)
    wall = Estimate(estimate=evidence.wall_s, low=evidence.wall_s, high=evidence.wall_s)
    return {row.name: row for row in predictions(evidence, wall=wall, alone=alone)}


def test_rates_that_suffice_do_not_hide_what_bursts_cost(build):
    waits = simulated(PRODUCED, np.full(len(PRODUCED), STEP_S), 1)
    rows = rows_of(evidence_of(build, bursty(), waits))
    assert 1 / rows["as it is"].batches_per_s == pytest.approx(float(waits.mean()) + STEP_S, rel=0.05)
    (buffer,) = [row for name, row in rows.items() if name.startswith("buffer:")]
    size = int(buffer.name.partition(":")[2])
    true_s = float(simulated(PRODUCED, np.full(len(PRODUCED), STEP_S), size).mean()) + STEP_S
    assert 1 / buffer.batches_per_s == pytest.approx(true_s, rel=0.05)
    assert buffer.speedup > 1.3


def test_an_even_wait_is_no_burst(build):
    rows = rows_of(evidence_of(build, bursty(), np.full(600, 0.006)))
    assert not [name for name in rows if "buffer" in name]


def test_a_pipeline_that_ends_in_a_batch_gets_a_prefetch_of_that_size(build):
    waits = simulated(PRODUCED, np.full(len(PRODUCED), STEP_S), 2)
    rows = rows_of(evidence_of(build, bursty(buffer=0), waits))
    assert [name for name in rows if name.startswith("prefetch:")]


def test_the_buffer_is_proposed(build):
    waits = simulated(PRODUCED, np.full(len(PRODUCED), STEP_S), 1)
    found = {one.name.partition(":")[0]: one for one in proposals(evidence_of(build, bursty(), waits))}
    assert found["buffer"].worth
    assert found["buffer"].predicted_speedup > 1.3
