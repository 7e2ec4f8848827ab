"""The order of the trials: complete blocks, random from the seed, balanced for two arms."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xttsbench.errors import InvalidInputError
from xttsbench.planning import (
    AGAIN,
    BUNDLED_COST,
    Slot,
    arm_trial,
    block_order,
    divide,
    expected_s,
    only_step_differs,
    other_batches,
    parity_arms,
    parity_trial,
    plan_comparison,
    plan_procedure,
    window_within,
)
from xttsbench.records.plan import Accelerator, Comparison, Procedure
from xttsbench.scenario.settings import Scenario
from xttsbench.targets.configuration import Configuration


def names(comparison, block, seed):
    return [(slot.accelerator.label, slot.arm.id) for slot in block_order(comparison, block, seed)]


@settings(max_examples=60)
@given(arms=st.integers(1, 6), devices=st.integers(1, 3), block=st.integers(0, 99), seed=st.integers(0, 2**31 - 1))
def test_every_block_holds_every_arm_once_on_every_accelerator(build, arms, devices, block, seed) -> None:
    accelerators = (Accelerator(), build.emulated(5), build.emulated(10))[:devices]
    comparison = build.comparison(*"abcdef"[:arms], accelerators=accelerators)
    found = names(comparison, block, seed)
    assert sorted(found) == sorted((a.label, arm.id) for a in accelerators for arm in comparison.arms)
    # The arms of one accelerator follow one another: its label changes as often as there are further ones.
    assert sum(one[0] != other[0] for one, other in pairwise(found)) == devices - 1
    assert names(comparison, block, seed) == found


def test_blocks_and_seeds_have_orders_of_their_own(build) -> None:
    comparison = build.comparison(*"abcdef")
    assert len({tuple(names(comparison, block, 0)) for block in range(20)}) == 20
    assert names(comparison, 3, 1) != names(comparison, 3, 2)


def test_each_arm_comes_to_each_place_as_often(build) -> None:
    comparison = build.comparison("a", "b", "c", again=False)
    places = Counter((place, arm) for block in range(900) for place, (_, arm) in enumerate(names(comparison, block, 7)))
    assert len(places) == 9
    assert min(places.values()) > 250  # 300 each; six standard deviations are 85
    assert max(places.values()) < 350


@pytest.mark.parametrize("again", [False, True])
def test_two_arms_are_balanced_in_pairs_of_blocks(build, again) -> None:
    comparison = build.comparison("a", "b", again=again, accelerators=(Accelerator(), build.emulated()))
    orders = [names(comparison, block, 3) for block in range(40)]
    for first, second in zip(orders[::2], orders[1::2], strict=True):
        assert second == first[::-1]
    assert len({tuple(order) for order in orders[::2]}) > 2  # and each pair is drawn anew


def test_an_arm_is_told_what_it_needs(build) -> None:
    comparison = build.comparison("a", "b", configs={"b": {"x": 1}}, steps=99)
    spec = arm_trial(comparison, Slot(comparison.arms[1], build.emulated(5)), number=7, block=2, window_s=1.5, seed=3)
    assert (spec.trial_id, spec.block, spec.kind, spec.arm, spec.group) == ("007-b-emulated", 2, "arm", "b", "loaders")
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
    assert (spec.kind, spec.arm, spec.block, spec.seed) == ("parity", "a", 4, 5)
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


def scenario(**fields: Any) -> Scenario:
    return Scenario.model_validate({"name": "mine", "workload": "xtts"} | fields)


def plan(*accelerators: Accelerator, **fields: Any) -> Comparison:
    return plan_comparison(scenario(**fields), accelerators or (Accelerator(),))


def test_the_first_arm_is_the_baseline_and_the_base_is_below_all() -> None:
    arms = [{"id": "a", "config": {"x": 1}}, {"id": "b", "config": {"y": 2}}]
    found = plan(arms=arms, base={"x": 0, "z": 9}, data="d").arms
    assert [(arm.id, arm.role) for arm in found] == [("a", "baseline"), ("b", "candidate"), ("a:again", "aa")]
    assert found[0].config == {"x": 1}
    assert found[0].kwargs == {"x": 1, "z": 9, "data": "d"}
    assert found[1].kwargs == {"x": 0, "y": 2, "z": 9, "data": "d"}
    assert found[2].kwargs == found[0].kwargs


def test_one_block_has_no_second_baseline() -> None:
    assert [arm.role for arm in plan(arms=[{"id": "a"}], blocks=1).arms] == ["baseline"]


def test_without_arms_the_base_alone_is_measured() -> None:
    assert [arm.id for arm in plan(base={"x": 1}).arms] == ["baseline", "baseline:again"]


def test_a_grid_is_a_product_whose_first_arm_is_the_first_of_each() -> None:
    found = plan(grid={"a": [1, 2], "b": ["x", "y", "z"]}).arms
    assert [arm.id for arm in found[:-1]] == [f"a={a},b={b}" for a in (1, 2) for b in "xyz"]
    assert found[0].role == "baseline"
    assert found[4].kwargs == {"a": 2, "b": "y"}


def test_a_named_baseline_is_first_and_is_the_one_that_is_run_again() -> None:
    found = plan(grid={"prefetch": [0, 2, 3]}, baseline="prefetch=2").arms
    assert [(arm.id, arm.role) for arm in found] == [
        ("prefetch=2", "baseline"),
        ("prefetch=0", "candidate"),
        ("prefetch=3", "candidate"),
        ("prefetch=2:again", "aa"),
    ]
    assert found[3].kwargs == found[0].kwargs == {"prefetch": 2}


def test_tolerances_reach_the_comparison() -> None:
    assert (plan().margin, plan().loss_tolerance) == (0.02, 1e-3)
    assert (plan(margin=0.1).margin, plan(loss_tolerance=0.05).loss_tolerance) == (0.1, 0.05)


def test_a_sweep_is_the_procedures_unless_the_scenario_says_otherwise() -> None:
    own = {"workload": None, "target": "os:getcwd"}
    assert plan_procedure(scenario(**own)) == Procedure()
    told = {"blocks": 12, "cost": ["b", "a"]}
    expected = Procedure(blocks=12, cost=("b", "a"))
    assert plan_procedure(scenario(sweep=told, base={"a": 1, "b": 2}, **own)) == expected


def test_the_bundled_workload_has_a_cost_of_its_own_unless_the_scenario_says_otherwise() -> None:
    assert plan_procedure(scenario()).cost == BUNDLED_COST
    assert plan_procedure(scenario(sweep={"blocks": 4})).cost == BUNDLED_COST
    assert plan_procedure(scenario(sweep={"cost": []})).cost == ()
    assert set(BUNDLED_COST) <= set(Configuration.model_fields)


def test_arms_without_an_id_are_named_by_their_configuration() -> None:
    configs: list[dict[str, Any]] = [{}, {"path": "a/b c"}, {"path": "a/b  c"}, {"lr": 1e-4, "n": [1, 2]}]
    found = plan(arms=[{"config": config} for config in configs]).arms
    assert [arm.id for arm in found[:-1]] == ["baseline", "path=a-b-c", "path=a-b-c+2", "lr=0.0001,n=-1,-2-"]


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.text(max_size=70), max_size=2), min_size=1, max_size=8))
def test_ids_are_never_alike_and_never_a_path(configs: list[dict[str, str]]) -> None:
    found = [arm.id for arm in plan(arms=[{"id": "path"}, *({"config": config} for config in configs)]).arms]
    assert len(set(found)) == len(found)
    assert all(len(name.removesuffix(AGAIN)) <= 60 and "/" not in name and name.isprintable() for name in found)


def test_what_only_the_step_has_leaves_the_data_alone() -> None:
    arms = [{"id": "a", "config": {"mode": "graph"}}, {"id": "b", "config": {"mode": "xla"}}, {"id": "c"}]
    found = plan(arms=[*arms, {"id": "d", "config": {"mode": "xla", "loader": "packed"}}])
    assert [only_step_differs(found, arm) for arm in found.arms] == [False, True, True, False, False]
    own = plan(workload=None, target="os:getcwd", arms=arms)
    assert not any(only_step_differs(own, arm) for arm in own.arms)  # a mode of somebody else may be anything


def test_other_batches_are_told_from_other_data() -> None:
    grid = {"batch_size": [16, 32], "loader": ["packed", "tf_cache"]}
    assert [other_batches(plan(grid=grid), arm) for arm in plan(grid=grid).arms] == [False, False, True, True, False]
    own = plan(workload=None, target="os:getcwd", grid=grid)
    assert not any(other_batches(own, arm) for arm in own.arms)


def test_arms_that_an_emulated_accelerator_cannot_tell_apart_are_refused(build) -> None:
    arms = [{"id": "a", "config": {"mode": "graph"}}, {"id": "b", "config": {"mode": "xla"}}]
    with pytest.raises(InvalidInputError, match=r"b differ from the baseline only in mode .* 10 ms a step"):
        plan(Accelerator(), build.emulated(), arms=arms)
    assert plan(arms=arms)
    with pytest.raises(InvalidInputError, match="'emulated accelerator, 10 ms a step' is there twice"):
        plan(build.emulated(), build.emulated())


def _parts(build, candidates: int, devices: int, rounds=(3, 3, 3), **how: Any) -> list[tuple[int, int, str]]:
    whole = build.comparison(*"abcdefghijklmnop"[: candidates + 1], blocks=6)
    parts = divide(whole, whole, 5, rounds, devices, **how)
    for part in parts:
        assert part.comparison.arms[0] == whole.baseline  # each has what it is compared with
        assert part.comparison.arms[-1].role == "aa"
    return [(part.block, part.rounds, "".join(arm.id for arm in part.comparison.arms[1:-1])) for part in parts]


def test_one_device_measures_all_configurations_in_one_part(build) -> None:
    assert _parts(build, 9, 1, apart=True) == [(5, 3, "bcdefghij")]


def test_many_configurations_are_shared_out_and_few_are_measured_in_several_processes_at_a_time(build) -> None:
    assert _parts(build, 8, 2, apart=True) == [(5, 3, "bdfh"), (8, 3, "cegi")]
    assert _parts(build, 3, 3, apart=True) == [(5, 3, "bcd"), (8, 3, "bcd"), (11, 3, "bcd")]
    assert _parts(build, 8, 4, (3, 2), apart=True) == [(5, 3, "bdfh"), (8, 3, "cegi"), (11, 2, "bdfh"), (13, 2, "cegi")]
    assert _parts(build, 8, 2) == [(5, 3, "bcdefghi"), (8, 3, "bcdefghi")]


def test_what_has_to_be_beaten_is_in_every_part(build) -> None:
    assert _parts(build, 9, 2, apart=True, beside=("c",)) == [(5, 3, "bcegi"), (8, 3, "cdfhj")]


@given(devices=st.integers(2, 9), candidates=st.integers(1, 15), rounds=st.integers(1, 12))
def test_no_two_trials_of_parts_have_one_number(build, devices: int, candidates: int, rounds: int) -> None:
    whole = build.comparison(*"abcdefghijklmnop"[: candidates + 1], blocks=6)
    first = divide(whole, whole, 0, [rounds] * devices, devices, apart=True)
    then = max(part.block + part.rounds for part in first)
    numbers = [
        part.first + number
        for part in (*first, *divide(whole, whole, then, [rounds], devices))
        for number in range(len(part.comparison.arms) * part.rounds)
    ]
    assert len({*numbers}) == len(numbers)
