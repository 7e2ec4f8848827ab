"""The verdict on a comparison's baseline: certain for a dataset alone, left to a diagnosis where there is a step."""

from __future__ import annotations

import pytest

from xttsbench.comparison.arms import compare
from xttsbench.records.plan import Accelerator
from xttsbench.workflows.run.report import baseline_verdict


def verdict(build, wall: float, *, devices=None, blocks: int = 2, **options):
    devices = devices or (build.emulated(10),)
    comparison = build.comparison("a", "b", accelerators=devices, blocks=blocks)
    trials = [
        build.arm_trial(arm.id, wall, block=block, emulated_ms=device.step_times_ms, **options)
        for device in devices
        for block in range(blocks)
        for arm in comparison.arms
    ]
    return baseline_verdict(compare(comparison, trials))


@pytest.mark.parametrize(
    ("wall", "bottleneck"), [(0.1, "input"), (0.0125, "input"), (0.0108, "compute"), (0.0101, "compute")]
)
def test_a_dataset_alone_waits_for_data_or_does_not(build, wall, bottleneck) -> None:
    found = verdict(build, wall).verdict
    assert found.bottleneck == bottleneck
    assert found.confidence > 0.9
    parts = found.attribution_s
    assert parts.input == pytest.approx(wall - 0.01, abs=0.0002)
    assert parts.compute == pytest.approx(0.01, rel=0.01)
    told = sum(dict(parts).values())
    assert told == pytest.approx(found.step_time_s.estimate)
    assert found.accelerator_utilization.estimate == pytest.approx(0.01 / wall, rel=0.02)
    assert f"{1 - 0.01 / wall:.0%}"[:1] in found.summary


def test_handing_over_a_ready_batch_is_no_loss_of_the_input(build) -> None:
    """A wait of 1.2 ms behind 10 ms is input, unless most of it is what waking up to a ready batch costs."""
    plain = verdict(build, 0.0112).verdict
    told = verdict(build, 0.0112, handoff_s=1e-4, handoff_after_pause_s=1e-3).verdict
    assert (plain.bottleneck, told.bottleneck) == ("input", "compute")
    assert plain.attribution_s.input - told.attribution_s.input == pytest.approx(1e-3)
    assert told.attribution_s.dispatch == pytest.approx(1e-4)


def test_a_bare_dataset_has_only_its_input(build) -> None:
    found = verdict(build, 0.02, devices=(Accelerator(),), has_step=False)
    assert (found.verdict.bottleneck, found.verdict.confidence) == ("input", 1.0)
    assert found.verdict.accelerator_utilization is None
    assert "emulated:MS" in found.unmeasured["verdict.accelerator_utilization"]


def test_with_a_step_no_bottleneck_is_named_and_diagnose_is_pointed_to(build) -> None:
    found = verdict(build, 0.02, devices=(Accelerator(),))
    assert found.verdict.bottleneck == "inconclusive"
    assert found.verdict.attribution_s is None
    assert "'xttsbench diagnose' names what limits a step" in found.verdict.summary
    assert "as fast as a" in found.verdict.summary  # the answer of the comparison comes first
    assert "diagnose" in found.unmeasured["verdict.attribution_s"]
    assert found.verdict.step_time_s.estimate == pytest.approx(0.02, rel=0.01)
    assert found.verdict.input_wait_fraction.estimate == pytest.approx(0.5, rel=0.01)


def test_it_is_about_the_accelerator_where_it_is_certain(build) -> None:
    found = verdict(build, 0.1, devices=(Accelerator(), build.emulated(10)))
    assert found.group == 1
    assert found.verdict.bottleneck == "input"
    assert "(emulated accelerator, 10 ms a step)" in found.verdict.summary


def test_a_dataset_that_ends_at_once_is_not_judged(build) -> None:
    found = verdict(build, 0.1, columns={"epoch": [float(n // 2) for n in range(60)]}).verdict
    assert found.bottleneck == "inconclusive"
    assert "ends after 2 batch(es)" in found.summary


def test_nothing_measured_is_said_with_its_cause(build) -> None:
    comparison = build.comparison("a", "b")
    found = baseline_verdict(compare(comparison, [build.dead("a")]))
    assert found.verdict.summary == (
        "Nothing could be concluded: the baseline a ended (killed: killed by SIGKILL in phase 'as_is')."
    )
    assert found.verdict.step_time_s is None
    assert found.unmeasured["verdict.step_time_s"].startswith("the baseline a ended")
    assert "no configuration was measured" in baseline_verdict(compare(comparison, [])).verdict.summary
