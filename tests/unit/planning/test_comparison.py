"""From a scenario to its arms: listed, as a product, with ids that can be told apart."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.errors import InvalidInputError
from xttsbench.planning import (
    AGAIN,
    BUNDLED_COST,
    only_step_differs,
    other_batches,
    plan_comparison,
    plan_procedure,
)
from xttsbench.records.plan import Accelerator, Comparison, Procedure
from xttsbench.scenario.settings import Scenario
from xttsbench.targets.configuration import Configuration


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
    found = plan(grid={"prefetch": {"from": 0, "to": 3}}, skip=[{"prefetch": 1}], baseline={"prefetch": 2}).arms
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
