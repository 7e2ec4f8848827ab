from __future__ import annotations

import re

import numpy as np
import pytest

from tests.unit.findings.made import only, silent
from xttsbench.analysis.variation import explain
from xttsbench.findings.variation import SIDES, drift, length_variance, stragglers
from xttsbench.findings.variation import oscillation as oscillation_rule
from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.records.report import Oscillation
from xttsbench.records.trial import Batches, StackLine

PERIODIC = Oscillation(period_steps=10.0, period_s=1.0, variance_share=0.8, p_value=0.001)


def stalls(every: int = 10, steps: int = 100) -> np.ndarray:
    return (np.arange(steps) % every == every - 1).astype(float)


@pytest.mark.parametrize(
    ("columns", "side", "limited_by"),
    [
        ({"wait_s": 0.001 + 0.2 * stalls(), "step_s": 0.01, "calls_s": 0.01}, "input", "input"),
        ({"wait_s": 0.001, "step_s": 0.01 + 0.2 * stalls(), "calls_s": 0.01}, "host", "host"),
        ({"wait_s": 0.001, "step_s": 0.01 + 0.2 * stalls(), "calls_s": 0.01 + 0.2 * stalls()}, "step", None),
    ],
)
def test_the_side_that_has_the_period_is_named(evidence, build, columns, side: str, limited_by) -> None:
    steps = build.steps(**columns)
    found = only(oscillation_rule, evidence(side if limited_by else "compute", steps=steps, oscillation=PERIODIC))
    assert found.evidence["side"] == side
    assert f"every 10.0 steps; {SIDES[side]} has the period" in found.title
    assert found.severity == "warning"
    assert found.limiting is (limited_by is not None)
    assert (found.predicted_speedup is not None) is found.limiting
    other = only(oscillation_rule, evidence("dispatch", steps=steps, oscillation=PERIODIC))
    assert not other.limiting


def test_a_bare_dataset_has_only_its_input_side(evidence, build) -> None:
    steps = build.steps(wait_s=0.001 + 0.2 * stalls())
    assert only(oscillation_rule, evidence("input", has_step=False, steps=steps, oscillation=PERIODIC)).limiting


@pytest.mark.parametrize(("height", "severity"), [(0.2, "warning"), (0.005, "info"), (0.001, None)])
def test_a_period_of_no_consequence_is_not_told(evidence, build, height: float, severity) -> None:
    steps = build.steps(wait_s=0.001, step_s=0.01 + height * stalls(), calls_s=0.01)
    found = list(oscillation_rule(evidence("compute", steps=steps, oscillation=PERIODIC)))
    assert [f.severity for f in found] == ([severity] if severity else [])


@pytest.mark.parametrize(
    "oscillation", [Oscillation(), Oscillation(period_steps=10.0), PERIODIC.model_copy(update={"variance_share": 0.05})]
)
def test_no_period_no_finding(evidence, build, oscillation) -> None:
    steps = build.steps(wait_s=0.001 + 0.2 * stalls())
    assert silent(oscillation_rule, evidence("input", steps=steps, oscillation=oscillation))
    assert silent(oscillation_rule, evidence("input", oscillation=PERIODIC))


def straggling(build, *, in_wait: bool, height: float = 0.5):
    late = np.zeros(100)
    late[[20, 70]] = height
    steps = build.steps(wait_s=0.01 + late * in_wait, step_s=0.09 + late * (not in_wait))
    return {"steps": steps, "explanation": explain(steps.wall_s, steps.batch_elements)}


def test_stragglers_of_the_input(evidence, build) -> None:
    found = only(stragglers, evidence("input", **straggling(build, in_wait=True)))
    assert (found.limiting, found.severity) == (True, "warning")
    assert found.title == "2 of 100 steps are far slower: 9% of all time is what they take beyond a median step"
    assert found.evidence["first_steps"] == "20, 70"
    assert found.evidence["own_wait_share"] == pytest.approx(1.02 / 1.2)
    first, second = found.evidence["first_steps"].split(", ")[:2]
    assert f"elements of those batches, first of all {first} and {second}." in found.remedy


def test_stragglers_beside_a_wait_in_every_step_are_not_what_to_mend_first(evidence, build) -> None:
    late = np.zeros(100)
    late[[20, 70]] = 0.5
    steps = build.steps(wait_s=0.08 + late, step_s=0.02)
    found = only(stragglers, evidence("input", steps=steps, explanation=explain(steps.wall_s, steps.batch_elements)))
    assert (found.limiting, found.evidence["stragglers"]) == (False, 2)


def test_stragglers_of_the_step(evidence, build) -> None:
    found = only(stragglers, evidence("input", **straggling(build, in_wait=False)))
    assert not found.limiting
    assert "what the step does" in found.remedy


def test_a_straggler_that_costs_little_is_not_told(evidence, build) -> None:
    assert silent(stragglers, evidence("input", **straggling(build, in_wait=True, height=0.2)))
    assert silent(stragglers, evidence("input", **straggling(build, in_wait=True, height=0.0)))
    assert silent(stragglers, evidence("input"))


def test_length_that_explains_the_variation_is_no_fault(evidence, build) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(100, 1000, 200)
    wall = 1e-4 * lengths + 0.002 * rng.standard_normal(200) + 0.01
    found = only(length_variance, evidence("compute", explanation=explain(wall, lengths)))
    assert (found.severity, found.limiting) == ("info", False)
    assert found.evidence["slope_s_per_element"] == pytest.approx(1e-4, rel=0.05)
    assert found.evidence["variance_share"] > 0.95
    assert found.remedy.startswith("Not a fault")


def test_length_that_does_not(evidence, build) -> None:
    rng = np.random.default_rng(0)
    lengths, wall = rng.integers(100, 1000, 200), 0.1 + 0.01 * rng.standard_normal(200)
    assert silent(length_variance, evidence("compute", explanation=explain(wall, lengths)))
    weak = wall + 1e-5 * lengths
    assert explain(weak, lengths).length.p_value < 0.01
    assert silent(length_variance, evidence("compute", explanation=explain(weak, lengths))), "half is the bar"
    assert silent(length_variance, evidence("compute", explanation=explain(wall, np.full(200, 5))))
    assert silent(length_variance, evidence("compute"))


WAITING = {"wait_s": 0.001, "step_s": 0.05 + 0.05 * stalls(), "calls_s": 0.05}


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({"gc_s": 0.05 * stalls()}, "Python's garbage collection"),
        ({"sync_s": 0.05 * stalls(), "syncs": stalls()}, "fetching values from the device"),
        ({"batch_elements": 800 + 100 * stalls()}, "the length of the batches"),
        ({"epoch": np.arange(100) // 10}, "the epoch: a pass over the data set has as many steps"),
    ],
)
def test_what_shares_the_period_is_named(evidence, build, columns, name: str) -> None:
    steps = build.steps(**(WAITING | columns))
    found = only(oscillation_rule, evidence("host", steps=steps, oscillation=PERIODIC))
    assert name in found.title
    assert name in found.evidence["same_period"]


@pytest.mark.parametrize(
    "columns",
    [
        {"gc_s": 0.0001 * stalls()},  # it has the period, and no part in it
        {"gc_s": 0.05 * (np.arange(100) % 7 == 0)},
        {"batch_elements": 800 + np.random.default_rng(0).integers(0, 100, 100)},
        {"epoch": np.arange(100) // 25},
    ],
)
def test_what_does_not_share_the_period_is_not(evidence, build, columns) -> None:
    steps = build.steps(**(WAITING | columns))
    found = only(oscillation_rule, evidence("host", steps=steps, oscillation=PERIODIC))
    assert found.evidence.get("same_period") is None
    assert found.title.endswith(" has the period")


def line_of(share: float, kind: str = "python") -> StackLine:
    return StackLine(file="loop.py", line=42, function="log", kind=kind, share=0.3, steps_share=share)


def test_the_line_that_is_seen_as_seldom_is_the_place(evidence, build) -> None:
    anatomy = build.compiled(lines=(line_of(1.0), line_of(0.1)))
    found = only(
        oscillation_rule, evidence("host", steps=build.steps(**WAITING), oscillation=PERIODIC, anatomy=anatomy)
    )
    assert found.location == Location(file="loop.py", line=42)
    assert "log (loop.py:42), seen in every 10th step" in found.title
    often = build.compiled(lines=(line_of(0.5), line_of(0.1, kind="function"), line_of(0.0)))
    found = only(oscillation_rule, evidence("host", steps=build.steps(**WAITING), oscillation=PERIODIC, anatomy=often))
    assert found.location == Location()


def test_a_buffer_of_the_periods_size_is_named(evidence, build) -> None:
    steps = build.steps(wait_s=0.001 + 0.2 * stalls(), step_s=0.01)
    op = PipelineOp(name="s", op="ShuffleDatasetV3", buffer_size=80, elements_per_batch=8.0)
    given = {"steps": steps, "oscillation": PERIODIC}
    found = only(oscillation_rule, evidence("input", pipeline=Pipeline(ops=(op,)), **given))
    assert "80 elements are 10.0 batches" in found.title
    other = op.model_copy(update={"buffer_size": 500})
    found = only(oscillation_rule, evidence("input", pipeline=Pipeline(ops=(other,)), **given))
    assert "same_period" not in found.evidence


def slow_at(build, places, **columns):
    late = np.zeros(100)
    late[list(places)] = 0.5
    if (epoch := columns.get("epoch")) is not None:
        columns = {"batch": np.arange(100) - np.searchsorted(epoch, epoch)} | columns
    steps = build.steps(wait_s=0.01 + late, step_s=0.09, **columns)
    return {"steps": steps, "explanation": explain(steps.wall_s, steps.batch_elements)}


def test_stragglers_at_the_beginning_of_epochs(evidence, build) -> None:
    given = slow_at(build, (25, 50, 75), epoch=np.arange(100) // 25)
    found = only(stragglers, evidence("input", **given))
    assert "they begin an epoch" in found.title
    assert found.evidence["same_batch_of_epochs"] == "0"
    assert found.remedy.startswith("Write .repeat() at the end of the dataset")
    assert found.remedy.endswith("no line can be named.")


def test_epochs_are_told_by_the_numbers_of_their_batches_where_others_drew_some_between(evidence, build) -> None:
    batch = (np.arange(100) + 7 * (np.arange(100) // 20)) % 25  # seven are drawn elsewhere after each 20 steps
    epoch = (np.arange(100) + 7 * (np.arange(100) // 20)) // 25
    slow = np.flatnonzero(batch == 0)[1:]
    given = slow_at(build, slow, epoch=epoch, batch=batch)
    found = only(stragglers, evidence("input", **given))
    assert "they begin an epoch" in found.title
    assert found.evidence["same_batch_of_epochs"] == "0"
    assert found.evidence["first_steps"] == ", ".join(f"batch 0 of epoch {number}" for number in epoch[slow])
    rate = found.evidence["excess_s_per_step"] / found.evidence["mean_of_these_s"]
    assert found.evidence["excess_share"] == pytest.approx(rate)
    elsewhere = slow_at(build, np.flatnonzero(np.diff(epoch) > 0) + 1, epoch=epoch, batch=np.full(100, 3))
    assert "epoch" not in only(stragglers, evidence("input", **elsewhere)).title, "it lies behind its beginning"


def test_an_iterator_over_all_epochs_is_advised_with_the_line_to_edit(evidence, build) -> None:
    given = slow_at(build, (25, 50, 75), epoch=np.arange(100) // 25)
    at = Location(file="data.py", line=31)
    ops = (PipelineOp(name="m", op="MapDataset"), PipelineOp(name="p", op="PrefetchDataset", location=at))
    found = only(stragglers, evidence("input", pipeline=Pipeline(ops=ops), **given))
    assert found.remedy.startswith("Write .repeat() before .prefetch(...) (data.py:31), make one iterator")
    assert (found.location.line, found.location.op) == (31, None), "the op itself takes no time"
    found = only(stragglers, evidence("input", pipeline=Pipeline(ops=ops[:1]), **given))
    assert found.remedy.startswith("Write .repeat() behind m, make one iterator")


def test_what_is_advised_at_the_beginning_of_epochs_is_not_done_already(evidence, build) -> None:
    given = slow_at(build, (25, 50, 75), epoch=np.arange(100) // 25)
    counted = Pipeline(ops=(PipelineOp(name="r", op="RepeatDataset", cardinality=25),))
    remedy = only(stragglers, evidence("input", pipeline=counted, **given)).remedy
    assert remedy.startswith("Leave out the count of repeat()")
    late = np.where(np.arange(100) == 25, 2.0, 0.0)
    steps = build.steps(wait_s=0.01 + late, step_s=0.09, epoch=np.arange(100) // 25)
    once = {"steps": steps, "explanation": explain(steps.wall_s, steps.batch_elements)}
    assert "it begins an epoch" in only(stragglers, evidence("input", **once)).title


def test_steps_that_do_not_wait_at_the_beginning_of_epochs_are_the_loop_s(evidence, build) -> None:
    late = np.zeros(100)
    late[[25, 50, 75]] = 0.5
    steps = build.steps(wait_s=0.01, step_s=0.09 + late, epoch=np.arange(100) // 25)
    found = only(stragglers, evidence("input", steps=steps, explanation=explain(steps.wall_s, steps.batch_elements)))
    assert found.remedy == "Look at what the loop does between two epochs: validation, checkpoints, callbacks."


def test_the_same_place_behind_a_shuffle_has_other_elements_each_time(evidence, build) -> None:
    given = slow_at(build, (32, 57, 82), epoch=np.arange(100) // 25)
    shuffled = Pipeline(ops=(PipelineOp(name="s", op="ShuffleDatasetV3", random=True),))
    found = only(stragglers, evidence("input", pipeline=shuffled, **given))
    assert "again and again" not in found.remedy


def test_an_epoch_s_period_is_told_once(evidence, build) -> None:
    ops = (PipelineOp(name="m", op="MapDataset", cardinality=80, elements_per_batch=8.0),)
    steps = build.steps(**(WAITING | {"epoch": np.arange(100) // 10}))
    found = only(oscillation_rule, evidence("host", steps=steps, oscillation=PERIODIC, pipeline=Pipeline(ops=ops)))
    assert "the length of m" not in found.evidence["same_period"]


def test_the_same_batch_of_each_epoch(evidence, build) -> None:
    found = only(stragglers, evidence("input", **slow_at(build, (32, 57, 82), epoch=np.arange(100) // 25)))
    assert found.evidence["same_batch_of_epochs"] == "7"
    assert "Batch 7 of an epoch" in found.remedy
    assert found.evidence.get("in_common") is None
    anywhere = only(stragglers, evidence("input", **slow_at(build, (32, 58, 90), epoch=np.arange(100) // 25)))
    assert anywhere.evidence.get("same_batch_of_epochs") is None


def test_the_shape_behind_the_stragglers(evidence, build) -> None:
    shapes = np.zeros(100)
    shapes[[20, 70]] = 1
    batches = Batches(cached=1, bytes=1, shapes=("(8, 64)", "(8, 900)"))
    found = only(stragglers, evidence("input", batches=batches, **slow_at(build, (20, 70), shape_id=shapes)))
    assert "their batches have the shape (8, 900)" in found.title
    garbage = np.zeros(100)
    garbage[[20, 70]] = 0.4
    found = only(stragglers, evidence("input", **slow_at(build, (20, 70), gc_s=garbage)))
    assert "Python collects garbage in them" in found.title


def drifting(build, change: float, *, side: str = "step", n: int = 240, seed: int = 0, **columns):
    rng = np.random.default_rng(seed)
    ramp = 0.1 * np.linspace(0, change, n)
    given = {"wait_s": 0.01 + ramp * (side == "input"), "step_s": 0.09 + ramp * (side != "input")}
    given["calls_s"] = 0.09 + ramp * (side == "step")
    given["step_s"] = given["step_s"] + 0.002 * np.abs(rng.standard_normal(n))
    return build.steps(**(given | columns))


@pytest.mark.parametrize("side", ["input", "step", "host"])
def test_steps_that_become_slower(evidence, build, side: str) -> None:
    found = only(drift, evidence("compute", steps=drifting(build, 0.2, side=side)))
    assert (found.rule, found.severity, found.limiting) == ("drift", "warning", False)
    assert found.evidence["change"] == pytest.approx(0.18, abs=0.03)
    assert found.evidence["side"] == side
    assert re.search(
        rf"^step times rose by 1\d% of the median step over 240 steps; most of it is {SIDES[side]}", found.title
    )


def test_steps_that_become_faster_are_still_warming_up(evidence, build) -> None:
    found = only(drift, evidence("compute", steps=drifting(build, -0.2)))
    assert found.severity == "info"
    assert "warming up" in found.remedy


@pytest.mark.parametrize(("change", "n"), [(0.0, 240), (0.03, 240), (0.3, 30)])
def test_steps_that_do_not_drift(evidence, build, change: float, n: int) -> None:
    assert silent(drift, evidence("compute", steps=drifting(build, change, n=n)))
    assert silent(drift, evidence("compute"))


def test_batches_that_become_longer_are_not_a_drift(evidence, build) -> None:
    lengths = np.linspace(800, 1600, 240).astype(int)
    rng = np.random.default_rng(0)
    steps = build.steps(wait_s=0.001, step_s=1e-4 * lengths + 0.001 * rng.random(240), batch_elements=lengths)
    assert silent(drift, evidence("compute", steps=steps))


def test_another_process_that_does_not_drift_points_to_the_machine(evidence, build) -> None:
    ladder = [build.ladder(steps=240), build.ladder(steps=240, block=1)]
    found = only(drift, evidence("compute", steps=drifting(build, 0.2), ladder=ladder))
    assert found.severity == "info"
    assert "not in another" in found.title
    assert "it is the machine" in found.remedy


def test_noise_that_remembers_is_rarely_a_drift(evidence, build) -> None:
    rng = np.random.default_rng(11)
    alarms = 0
    for _ in range(60):
        noise = np.zeros(240)
        for n in range(1, 240):
            noise[n] = 0.8 * noise[n - 1] + 0.01 * rng.standard_normal()
        steps = build.steps(wait_s=0.01, step_s=0.09 + np.clip(noise, -0.08, None))
        alarms += not silent(drift, evidence("compute", steps=steps))
    assert alarms <= 4
