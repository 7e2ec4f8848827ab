"""How often a fix that is worth nothing is called faster, and one that is worth something is found."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fixes.verification import accepted
from xttsbench.evidence import Evidence
from xttsbench.fixes.rounds import (
    ALONE,
    LEAST_BLOCKS,
    ORIGINAL,
    TOGETHER,
    arm_of,
    combine,
    comparison,
    guard_size,
    guard_trial,
    planned,
    slug,
)
from xttsbench.fixes.same_data import on_your_word
from xttsbench.planning import Job
from xttsbench.records.base import Estimate
from xttsbench.records.fix import FixSet, Semantics
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.records.plan import Accelerator
from xttsbench.records.trial import TrialRecord, TrialSpec

JOB = Job(target="m:f", kwargs={"a": 1}, emulated_ms=(5.0,), steps=100, window_s=2.0, seed=7)
DEVICE = Accelerator(kind="emulated", label="emulated accelerator, 5 ms a step", step_times_ms=(5.0,))
ONE = Estimate(estimate=0.01, low=0.01, high=0.01)


def _evidence(step_s: float, per_batch: float, batch: int) -> Evidence:
    source = PipelineOp(name="Range/_1", op="RangeDataset", elements_per_batch=per_batch)
    last = PipelineOp(
        name="Batch/_2", op="BatchDatasetV2", inputs=("Range/_1",), batch_size=batch, elements_per_batch=1
    )
    return Evidence(kind="dataset", has_step=False, emulated=True, pipeline=Pipeline(ops=(source, last)), wall_s=step_s)


def test_a_quick_pipeline_is_seen_for_some_hundred_samples() -> None:
    size = guard_size(_evidence(0.001, 8, 8))
    assert size.source_limit == 64 * 8 + 1
    assert size.batches >= 2 * 64


def test_a_slow_one_for_some_batches_at_least() -> None:
    size = guard_size(_evidence(3.0, 8, 8))
    assert size.source_limit == 4 * 8 + 1
    assert size.batches == 12


def test_without_costs_there_is_a_size_still() -> None:
    size = guard_size(Evidence(kind="dataset", has_step=False, emulated=False))
    assert size.source_limit >= 2
    assert size.batches >= 4


def test_the_guard_runs_the_original_with_two_seeds_and_a_fix_jittered() -> None:
    size = guard_size(_evidence(0.01, 8, 8))
    first, again, other = (guard_trial(JOB, n, size, block=0, arm=ORIGINAL, again=n) for n in range(3))
    fixed = guard_trial(JOB, 3, size, block=0, arm="cache@Map/_1", fix="cache@Map/_1")
    assert (first.seed, again.seed, other.seed, fixed.seed) == (7, 7, 8, 7)
    assert [spec.jitter for spec in (first, again, other, fixed)] == [False, False, False, True]
    assert len({spec.trial_id for spec in (first, again, other, fixed)}) == 4
    assert fixed.emulated_ms == ()
    assert "/" not in fixed.trial_id


def test_a_plan_is_read_back_from_its_trials() -> None:
    arms = [arm_of(JOB, "prefetch"), arm_of(JOB, "patched source", patched={"a.py": "b.py"})]
    made = comparison(JOB, DEVICE, TOGETHER, arms, window_s=1.0, trial_s=20.0)
    specs = [
        TrialSpec(
            trial_id=f"{block}-{arm.id}",
            block=block,
            kind="arm",
            target="m:f",
            kwargs=arm.kwargs,
            steps=100,
            window_s=1.0,
            emulated_ms=(5.0,),
            fix=arm.fix,
            patched=arm.patched,
            arm=arm.id,
            group=TOGETHER,
        )
        for block in range(3)
        for arm in made.arms
    ]
    trials = [TrialRecord(spec=spec, status="ok", started_utc="", duration_s=1.0) for spec in reversed(specs)]
    found = planned(trials, DEVICE)
    assert found.baseline.id == ORIGINAL
    assert {arm.id: arm for arm in found.arms} == {arm.id: arm for arm in made.arms}
    assert found.blocks == 3
    assert planned([], DEVICE) is None


def test_the_original_is_measured_twice_where_that_is_wanted() -> None:
    for twice, count in ((False, 2), (True, 3)):
        arms, given = [arm_of(JOB, "prefetch")], {"window_s": 1.0, "trial_s": 20.0}
        made = comparison(JOB, DEVICE, ALONE, arms, twice=twice, **given)
        assert (len(made.arms), made.blocks, made.fill_caches) == (count, LEAST_BLOCKS, True)


@pytest.mark.parametrize(
    ("names", "made"),
    [
        (["prefetch", "parallel-map:4"], "parallel-map:4 + prefetch"),
        (["parallel-map:32 + thread-pool:32", "parallel-map", "thread-pool:16"], "parallel-map:32 + thread-pool:32"),
        (["cache@A", "cache@B", "step:xla"], "cache@A + step:xla"),
        (["step:graph", "prefetch:4", "native"], "native + prefetch:4 + step:graph"),
    ],
)
def test_fixes_are_put_together_in_the_order_of_their_application(names: list[str], made: str) -> None:
    assert combine(names) == made


_PARTS = ["parallel-map:4", "parallel-map", "prefetch", "cache@A", "cache@B", "thread-pool:8", "native"]


@given(st.lists(st.sampled_from(_PARTS), min_size=1, max_size=6))
def test_together_has_every_kind_once(names: list[str]) -> None:
    parts = FixSet.parse(combine(names))
    assert sorted({fix.kind for fix in FixSet.of(names)}) == sorted(fix.kind for fix in parts)
    assert combine(parts.names) == str(parts)


def test_a_name_becomes_a_file_name() -> None:
    assert slug("cache@ParallelMap/_4 + thread-pool:32") == "cache-ParallelMap--4-thread-pool-32"


@pytest.mark.parametrize("machine", [{}, {"noise": 0.05, "burst": 0.02}])
def test_of_fixes_that_are_worth_nothing_none_is_accepted(machine) -> None:
    found = accepted({"prefetch": 1.0, "parallel-map": 1.0}, range(30), **machine)
    assert (found["prefetch"], found["parallel-map"]) == (0, 0)


def test_a_fix_that_is_worth_something_is_accepted_in_most_verifications_and_one_beside_it_that_is_not_in_few() -> None:
    found = accepted({"prefetch": 1.3, "parallel-map": 1.0}, range(30), noise=0.05)
    assert found["prefetch"] >= 0.9
    assert found["parallel-map"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(("worth", "low", "high"), [(1.0, 0.0, 0.02), (1.3, 0.8, 1.0)])
@pytest.mark.parametrize("machine", [{}, {"noise": 0.1}, {"noise": 0.05, "burst": 0.02}])
def test_of_four_hundred_verifications(worth, low, high, machine) -> None:
    found = accepted({"prefetch": worth}, range(1_000, 1_400), **machine)
    print(f"worth {worth}, {machine}: {found}")
    assert low <= found["prefetch"] <= high


def test_the_users_word_goes_into_each_guards_trial_and_beside_the_proof_that_rests_on_it() -> None:
    size = guard_size(Evidence(kind="dataset", has_step=False, emulated=False))
    trial = guard_trial(replace(JOB, assume_pure=("data.load",)), 3, size, block=0, arm="prefetch", fix="prefetch")
    assert trial.assume_pure == ("data.load",)
    same = Semantics(equivalent=True, how="identical", sentence="The same.")
    told = on_your_word(same, trial.assume_pure).sentence
    assert told == "The same; on your word, data.load depends on its arguments alone."
    assert on_your_word(same, ()) == same
    other = same.model_copy(update={"equivalent": False})
    assert on_your_word(other, trial.assume_pure) == other
