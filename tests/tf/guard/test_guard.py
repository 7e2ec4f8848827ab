"""No fix that changes the data of a generated pipeline is accepted, whatever was planted in it.

The first ones of the examples are run always, more of them with ``make test-all``; ``benchmarks/guard.py`` runs as many
as wanted and counts what was refused without need.
"""

from __future__ import annotations

import planted
import planted_classes
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from judged import POOL, elements, judged
from pipelines import Plan, plans

from xttsbench.pipeline.nodes import dataset_nodes
from xttsbench.pipeline.python.state import python_state
from xttsbench.pipeline.read import read_graph
from xttsbench.samedata.judge import judge

FEW = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
MANY = settings(FEW, max_examples=200)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


def check(plan, folder, pool=()):
    for found in judged(plan, folder, pool=pool):
        if found.truth == "changes":
            assert found.said.equivalent is not True, f"{plan} with {found.fix}: {found.said.sentence}"


@FEW
@given(plan=plans())
def test_no_fix_that_changes_the_data_is_accepted(plan, folder):
    check(plan, folder)


@pytest.mark.slow
@MANY
@given(plan=plans(), pool=st.integers(0, 5))
def test_no_fix_that_changes_the_data_is_accepted_of_two_hundred_pipelines(plan, pool, folder):
    check(plan, folder, POOL if pool == 0 else ())


@pytest.mark.parametrize("plant", [maker.__name__ for maker in (*planted.HARMLESS, *planted_classes.HARMLESS)])
def test_what_is_harmless_is_accepted(plant, folder):
    plan = Plan("range", ("map",), 1, plant, "numpy_function", "batch")
    found = list(judged(plan, folder))
    assert {"parallel-map:4", "prefetch", "thread-pool:8"} < {one.fix for one in found}
    assert all(one.truth == "harmless" for one in found)
    refused = {one.fix: one.said.sentence for one in found if one.said.equivalent is not True}
    assert not refused


@pytest.mark.parametrize("orderings", [("shuffle",), ("shuffle seeded", "repeat"), ("shuffle once",), ("repeat",)])
def test_a_cache_before_what_orders_the_elements_leaves_them_their_order(orderings, folder):
    for plant, accepted in (("pure", True), ("counter_list", False), ("noise_numpy", False)):
        plan = Plan("range", orderings, len(orderings), plant, "numpy_function", "batch")
        dataset = plan.build(folder)
        (op,) = (node.name for node in dataset_nodes(read_graph(dataset)) if node.op == "MapDataset")
        originals = [elements(plan, folder, seed=seed) for seed in (0, 0, 1)]
        said = judge(originals, elements(plan, folder, f"cache@{op}"))
        assert (said.equivalent is True) == accepted, said.sentence


@pytest.mark.parametrize("plant", [*planted.STATE, *planted_classes.STATE])
def test_state_is_read_from_the_code(plant):
    assert python_state(plant()).state is not None


@pytest.mark.parametrize("plant", [*planted.EPOCH, *planted_classes.EPOCH])
def test_what_others_change_is_read_from_the_code(plant):
    found = python_state(plant())
    assert (found.state, found.random) == (None, None)
    assert found.reads is not None


@pytest.mark.parametrize("plant", [*planted.RANDOM, *planted_classes.RANDOM])
def test_randomness_is_read_from_the_code(plant):
    found = python_state(plant())
    assert found.random is not None
    assert (found.state, found.reads) == (None, None)


def test_a_memo_of_what_was_drawn_is_state():
    assert "memo" in python_state(planted.memo_of_noise()).state


@pytest.mark.parametrize("plant", [*planted.HARMLESS, *planted_classes.HARMLESS])
def test_nothing_is_said_of_what_is_harmless(plant):
    found = python_state(plant())
    assert (found.state, found.random, found.reads) == (None, None, None)
