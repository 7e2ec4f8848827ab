"""What limits a training run, told from steps made by hand: parts that add up, and a name for the largest loss."""

from __future__ import annotations

import numpy as np
import pytest

from xttsbench.comparison.figures import PROCESSOR
from xttsbench.diagnosis.training import train_verdict
from xttsbench.records.report import Variant


def session(build, *, wait: float = 1e-3, step: float = 0.05, gap: float = 1e-4, steps: int = 200, block: int = 0):
    columns = {"wait_s": wait, "step_s": build.noisy(step, steps, np.random.default_rng(block))}
    as_is = build.segment("as_is", warmup=1, gap_s=gap, **columns)
    return build.trial("arm", build.segment("warm_up", step_s=[2.0]), as_is, block=block, arm="train", group="train")


@pytest.mark.parametrize(
    ("times", "bottleneck", "said"),
    [
        ({}, "compute", "Training computes"),
        ({"wait": 0.02}, "input", "Training waits 2"),
        ({"gap": 0.02}, "host", "28% of the time goes into what lies between the steps"),
    ],
)
def test_the_largest_avoidable_loss_is_named(build, times, bottleneck: str, said: str) -> None:
    found = train_verdict([session(build, **times)], None, mode="graph")
    assert found.verdict.bottleneck == bottleneck
    assert found.verdict.confidence > 0.95
    assert found.verdict.summary.startswith(said)
    parts = found.verdict.attribution_s.model_dump()
    assert sum(parts.values()) == pytest.approx(found.verdict.step_time_s.estimate)
    assert parts["host"] == pytest.approx(times.get("gap", 1e-4))
    assert parts["input"] == pytest.approx(times.get("wait", 1e-3))
    assert parts["residual"] == 0


def test_an_eager_step_is_not_taken_for_computing(build) -> None:
    found = train_verdict([session(build)], None, mode="eager")
    assert found.verdict.bottleneck == "inconclusive"
    assert found.verdict.attribution_s is None
    assert "--no-graph" in found.unmeasured["verdict.attribution_s"]
    assert train_verdict([session(build, wait=0.05)], None, mode="eager").verdict.bottleneck == "input"


def test_sessions_count_by_their_steps_and_the_longest_tells_of_time(build) -> None:
    short, long = session(build, step=0.03, steps=40), session(build, step=0.05, steps=300, block=1)
    found = train_verdict([short, long], None, mode="graph")
    assert found.verdict.step_time_s.estimate == pytest.approx((40 * 0.031 + 300 * 0.051) / 340, rel=0.03)
    assert found.trial is long


def test_without_a_step_the_cause_is_told(build) -> None:
    dead = build.trial("arm", status="killed", cause="killed by SIGKILL in phase 'setup'", arm="train", group="train")
    found = train_verdict([dead], None, mode="graph")
    assert found.verdict.bottleneck == "inconclusive"
    assert "killed by SIGKILL" in found.verdict.summary
    assert found.unmeasured["verdict.step_time_s"] == found.unmeasured["oscillation.cv"]


@pytest.mark.parametrize(("of", "known"), [(PROCESSOR, False), ("GPU (driver)", True)])
def test_the_processor_is_no_accelerator(build, of: str, known: bool) -> None:
    arm = Variant(
        id="train", role="baseline", blocks=1, status="ok", utilization=build.estimate(0.9), utilization_of=of
    )
    found = train_verdict([session(build)], arm, mode="graph")
    assert (found.verdict.accelerator_utilization is not None) is known
    assert ("verdict.accelerator_utilization" in found.unmeasured) is not known
