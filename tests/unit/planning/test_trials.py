"""What the trials are told, and how a budget shortens their windows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.planning import Slot, arm_trial, expected_s, parity_arms, parity_trial, window_within
from xttsbench.records.plan import Accelerator


def test_an_arm_is_told_what_it_needs(build) -> None:
    comparison = build.comparison("a", "b", configs={"b": {"x": 1}}, steps=99)
    spec = arm_trial(comparison, Slot(comparison.arms[1], build.emulated(5)), number=7, block=2, window_s=1.5, seed=3)
    assert (spec.trial_id, spec.block, spec.rung, spec.arm, spec.group) == ("007-b-emulated", 2, "arm", "b", "loaders")
    assert (spec.steps, spec.window_s, spec.seed, spec.emulated_ms) == (99, 1.5, 3 + 2, (5.0,))
    assert spec.kwargs == {"x": 1}  # a target of one's own keeps its step


def test_the_bundled_workload_leaves_its_step_to_an_emulated_accelerator(build) -> None:
    comparison = build.comparison("a", "b", configs={"b": {"loader": "packed"}}, bundled=True)
    slots = [Slot(comparison.arms[1], accelerator) for accelerator in (Accelerator(), build.emulated())]
    real, emulated = (arm_trial(comparison, slot, number=0, block=0, window_s=1, seed=0) for slot in slots)
    assert real.kwargs == {"loader": "packed", "seed": 0}
    assert emulated.kwargs == {"loader": "packed", "seed": 0, "with_step": False}


def test_arms_of_a_block_see_the_same_batches_and_each_block_others(build) -> None:
    comparison = build.comparison("a", "b", bundled=True)
    specs = [
        arm_trial(comparison, Slot(arm, Accelerator()), number=0, block=block, window_s=1, seed=2**31 - 2)
        for block in range(3)
        for arm in comparison.arms[:2]
    ]
    seeds = [spec.kwargs["seed"] for spec in specs]
    assert seeds == [spec.seed for spec in specs] == [2**31 - 2] * 2 + [2**31 - 1] * 2 + [0] * 2
    chosen = build.comparison("a", configs={"a": {"seed": 5}}, bundled=True)
    assert arm_trial(chosen, Slot(chosen.arms[0], Accelerator()), number=0, block=3, window_s=1, seed=0).kwargs == {
        "seed": 5
    }


def test_data_are_compared_in_order_and_without_a_step(build) -> None:
    configs = {"b": {"loader": "packed", "deterministic": False}}
    comparison = build.comparison("a", "b", configs=configs, bundled=True)
    arms, skipped = parity_arms(comparison)
    assert ([arm.id for arm in arms], skipped) == (["b"], {})
    spec = parity_trial(comparison, arms, number=0, block=4, seed=5)
    assert (spec.rung, spec.arm, spec.block, spec.seed) == ("parity", "a", 4, 5)
    assert spec.kwargs == {"with_step": False, "deterministic": True}
    assert spec.others == {"b": {"loader": "packed", "with_step": False, "deterministic": True}}
    assert (spec.same_data, spec.loss_steps) == ((), 0)


def test_losses_are_compared_where_a_step_is_another(build) -> None:
    configs = {"b": {"loader": "packed"}, "c": {"mode": "xla"}, "d": {"loader": "packed", "precision": "mixed_float16"}}
    comparison = build.comparison("a", *configs, configs=configs, bundled=True, loss_tolerance=0.05)
    spec = parity_trial(comparison, parity_arms(comparison)[0], number=0, block=0, seed=0)
    with_step = {arm: kwargs["with_step"] for arm, kwargs in spec.others.items()}
    assert with_step == {"b": False, "c": True, "d": True}
    assert spec.kwargs["with_step"] is True
    assert (spec.same_data, spec.loss_steps, spec.loss_tolerance) == (("c",), 3, 0.05)


@pytest.mark.parametrize("config", [{"recipe": "other"}, {"seed": 4}])
def test_another_training_is_compared_by_its_losses_too(build, config) -> None:
    comparison = build.comparison("a", "b", configs={"b": config}, bundled=True)
    spec = parity_trial(comparison, parity_arms(comparison)[0], number=0, block=0, seed=0)
    assert (spec.others["b"]["with_step"], spec.loss_steps, spec.same_data) == (True, 3, ())


def test_behind_emulated_accelerators_alone_no_step_runs(build) -> None:
    configs = {"b": {"mode": "xla", "loader": "packed"}, "c": {"mode": "eager"}}
    comparison = build.comparison("a", *configs, configs=configs, bundled=True, accelerators=(build.emulated(),))
    arms, skipped = parity_arms(comparison)
    assert [arm.id for arm in arms] == ["b"]
    assert "emulated accelerator" in skipped["c"]
    spec = parity_trial(comparison, arms, number=0, block=0, seed=0)
    assert (spec.kwargs["with_step"], spec.others["b"]["with_step"], spec.loss_steps) == (False, False, 0)


def test_all_arms_of_a_target_of_one_s_own_are_compared(build) -> None:
    comparison = build.comparison("a", "b", "c", configs={"c": {"mode": "xla"}})
    arms, skipped = parity_arms(comparison)
    assert ([arm.id for arm in arms], skipped) == (["b", "c"], {})
    spec = parity_trial(comparison, arms, number=0, block=0, seed=0)
    assert spec.others == {"b": {}, "c": {"mode": "xla"}}
    assert (spec.same_data, spec.loss_steps) == ((), 3)


@given(budget=st.floats(1, 4000), blocks=st.integers(1, 12), setup=st.floats(0, 10), warm=st.booleans())
def test_a_window_is_as_long_as_the_budget_allows(build, budget, blocks, setup, warm) -> None:
    comparison = build.comparison("a", "b", "c", accelerators=(Accelerator(), build.emulated()), window_s=8.0)
    window = window_within(comparison, budget, blocks=blocks, setup_s=setup, warm=warm)
    one = expected_s(comparison, window, setup_s=setup, warm=warm)
    assert 0.5 <= window <= 8
    if window > 2:  # shortened no further than needed: all blocks fit
        assert one + (blocks - 1) * expected_s(comparison, window, setup_s=setup) <= budget * 1.000001
    elif window > 0.5:
        assert one <= budget * 1.000001


def test_windows_are_kept_long_enough_before_blocks_are_dropped(build) -> None:
    comparison = build.comparison("a", "b", window_s=5.0)  # three trials with the baseline again
    assert window_within(comparison, 1000, blocks=6) == 5.0
    assert window_within(comparison, 100, blocks=6) == pytest.approx((100 - 36) / 18 - 1.5)  # all six fit
    assert window_within(comparison, 60, blocks=6) == 2.0  # and three fit
    assert window_within(comparison, 14, blocks=6) == pytest.approx(8 / 3 - 1.5)
    assert window_within(comparison, 2, blocks=6) == 0.5
