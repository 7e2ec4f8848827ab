"""What the model says of fixes that were put together later, and of what they leave over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.evidence.made import make_evidence
from tests.unit.fixes.pipelines import BATCH, ENVIRONMENT, PYTHON, RANGE, pipeline, python
from tests.unit.throughput.test_pace import every_sixteenth, simulated
from xttsbench.fixes.predictions import COSTS_NOTHING, longer_buffer, predict_speedup
from xttsbench.fixes.proposals import proposals
from xttsbench.records.base import Estimate
from xttsbench.records.fix import FixSet
from xttsbench.records.pipeline import Prediction

STEP_S = 0.02
BOTH = ["parallel-map:32", "thread-pool:32"]
LAST = {"op": "PrefetchDataset", "buffer_size": 2, "cost_s": 0.0}


def waiting(*last):
    """A step of 20 ms that waits for calls of 10 ms as read, eight a batch, made in turn: 100 ms as measured."""
    steps = Estimate(estimate=1 / STEP_S, low=0.99 / STEP_S, high=1.01 / STEP_S)
    return make_evidence(
        "input",
        pipeline=pipeline(RANGE, PYTHON, BATCH, *last, python_functions=(python("blocks"),)),
        predictions=(Prediction(name=COSTS_NOTHING, batches_per_s=1 / STEP_S, measured_per_s=steps),),
        environment=ENVIRONMENT,
    )


def late(build, ahead):
    """Steps whose batches come as fast as they are needed on the average, and every sixteenth late."""
    production_s = np.tile(every_sixteenth(), 4) * STEP_S / every_sixteenth().mean() * 0.9
    return build.steps(wait_s=simulated(production_s, np.full(len(production_s), STEP_S), ahead), step_s=STEP_S)


def test_what_is_expected_of_any_fixes_together_is_what_the_model_says() -> None:
    evidence = waiting()
    alone = {one.name: one.predicted_speedup for one in proposals(evidence)}
    assert predict_speedup(evidence, FixSet.of(BOTH)) == pytest.approx(5)
    assert predict_speedup(evidence, FixSet.of(BOTH[:1])) == alone[BOTH[0]]
    assert predict_speedup(evidence, FixSet.of((BOTH[0], "step:graph"))) is None
    assert predict_speedup(replace(evidence, wall_s=1.0), FixSet.of(BOTH)) is None  # the model is far off


@pytest.mark.parametrize(("last", "kind"), [((), "prefetch"), ((LAST,), "buffer")])
def test_what_still_comes_in_bursts_beside_a_fix_calls_for_a_longer_buffer(build, last, kind) -> None:
    found = longer_buffer(waiting(*last), FixSet.of(BOTH), late(build, 4 if not last else 6))
    assert found.kind == kind
    assert found.number >= 16


def test_even_steps_and_a_buffer_that_is_there_already_call_for_none(build) -> None:
    even = build.steps(wait_s=np.full(64, 0.0005), step_s=STEP_S)
    assert longer_buffer(waiting(LAST), FixSet.of(BOTH), even) is None
    assert longer_buffer(waiting(LAST), FixSet.of((*BOTH, "buffer:64")), late(build, 6)) is None
    assert longer_buffer(replace(waiting(LAST), wall_s=1.0), FixSet.of(BOTH), late(build, 6)) is None
