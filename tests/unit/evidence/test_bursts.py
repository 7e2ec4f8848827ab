"""An input in bursts behind a small buffer: seen, predicted, and cured by a buffer that lasts over them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.evidence.made import make_evidence
from tests.unit.fixes.pipelines import ENVIRONMENT, pipeline, python
from tests.unit.throughput.test_bursts import every_sixteenth, simulated
from xttsbench.fixes.model import predictions
from xttsbench.fixes.proposals import proposals
from xttsbench.records.base import Estimate

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
