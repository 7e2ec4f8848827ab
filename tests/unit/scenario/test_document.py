"""docs/scenarios.md: every YAML block is a scenario, and every shipped scenario is told of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from xttsbench.planning import plan_comparison, plan_procedure
from xttsbench.records.plan import Accelerator, Procedure
from xttsbench.scenario.settings import Scenario
from xttsbench.shipped import available

TEXT = (Path(__file__).parents[3] / "docs" / "scenarios.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
ARMS = [2, 2 * 4 * 4 * 3, 4 * 4 * 5, 4, 10, 6, 2, 34]
"""Arms of each block, counted by hand."""


def test_there_are_as_many_blocks_as_are_counted() -> None:
    assert len(BLOCKS) == len(ARMS)
    assert TEXT.count("```yaml") == len(BLOCKS)


@pytest.mark.parametrize(("block", "arms"), [*zip(BLOCKS, ARMS, strict=True)])
def test_every_example_is_a_scenario(block: str, arms: int, load, tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(block if "name:" in block else f"name: example\ntarget: os:getcwd\n{block}")
    found: Scenario = load(path, target=lambda _: None, most_arms=1024)
    comparison = plan_comparison(found, [Accelerator()])
    assert sum(arm.role != "aa" for arm in comparison.arms) == arms


def test_the_defaults_that_it_gives_are_those(load, tmp_path: Path) -> None:
    head = "name: batch\ntarget: os:getcwd\n"
    (tmp_path / "bare.yaml").write_text(head)
    (tmp_path / "full.yaml").write_text(
        head + BLOCKS[0].partition("accelerator:")[1] + BLOCKS[0].partition("accelerator:")[2]
    )
    assert load(tmp_path / "full.yaml") == load(tmp_path / "bare.yaml")
    (tmp_path / "sweep.yaml").write_text(head + BLOCKS[-1])
    assert plan_procedure(load(tmp_path / "sweep.yaml")) == Procedure(cost=("prefetch", "workers"))


def test_every_shipped_scenario_is_in_its_table() -> None:
    assert sorted(re.findall(r"^\| `([a-z-]+)` \|", TEXT, flags=re.MULTILINE)) == available("scenarios")
