"""From grids to configurations: closed forms, hand-written examples, and what holds for any grid."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.errors import InvalidInputError
from xttsbench.scenario.grid import configurations, size
from xttsbench.scenario.settings import Space


def space(**fields: Any) -> Space:
    return Space.model_validate(fields)


def test_the_baseline_comes_first_and_the_others_keep_their_order() -> None:
    grid = {"a": [1, 2, 3], "b": [0, 1]}
    assert [*configurations(space(grid=grid, baseline="a=2,b=1"))] == [
        "a=2,b=1", "a=1,b=0", "a=1,b=1", "a=2,b=0", "a=3,b=0", "a=3,b=1",
    ]  # fmt: skip
    arms = [{"id": "new", "config": {"v": 2}}, {"id": "old"}]
    assert [*configurations(space(arms=arms, baseline="old"))] == ["old", "new"]
    with pytest.raises(InvalidInputError, match="No configuration is the baseline 'lost'"):
        configurations(space(arms=arms, baseline="lost"))


def test_without_arms_and_grid_there_is_the_base() -> None:
    assert configurations(space(base={"a": 1})) == {"baseline": {}}


def test_ids_say_the_configuration_as_yaml_has_it() -> None:
    assert [*configurations(space(grid={"cache": [True, False], "size": [None, 1e-4]}))] == [
        "cache=true,size=null", "cache=true,size=0.0001", "cache=false,size=null", "cache=false,size=0.0001",
    ]  # fmt: skip
    arms = [{"config": {"a": 1}}, {"id": "a=1"}]
    assert [*configurations(space(arms=arms))] == ["a=1+2", "a=1"]  # what is given keeps its id
    assert [*configurations(space(grid={"a": ["1", 1, "x y", "x  y"]}))] == ["a=1", "a=1+2", "a=x-y", "a=x-y+2"]


def test_ids_of_long_configurations_depend_on_them_alone() -> None:
    long = [f"{'x' * 70}{number}" for number in range(4)]
    found, fewer = ([*configurations(space(grid={"a": some}))] for some in (long, long[2:]))
    assert len(set(found)) == 4
    assert fewer == found[2:]
    assert all(len(name) == 60 for name in found)


def test_what_cannot_be_expanded_is_refused_here_too() -> None:
    with pytest.raises(InvalidInputError, match="makes 16000 configurations, and 10000 are the most"):
        configurations(space(grid={"a": [*range(400)], "b": [*range(40)]}))


plain = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["x", "y", "z", "a/b"])
columns = st.lists(plain, min_size=1, max_size=4, unique_by=repr)
grids = st.dictionaries(st.sampled_from("abcd"), columns, min_size=1, max_size=4)


@given(grids)
def test_the_product_has_as_many_as_it_should_and_each_once_by_the_same_id(grid: dict[str, Any]) -> None:
    written = space(grid=grid)
    found = configurations(written)
    assert len(found) == size(written) == math.prod(map(len, grid.values()))
    assert all(list(config) == [*grid] for config in found.values())
    assert len({repr(config) for config in found.values()}) == len(found)
    assert next(iter(found.values())) == {key: column[0] for key, column in grid.items()}
    again = configurations(Space.model_validate(written.model_dump(by_alias=True)))
    assert [*found.items()] == [*again.items()]
    assert all(1 <= len(name) <= 60 and "/" not in name for name in found)


@given(grids, st.data())
def test_any_arm_can_be_the_baseline(grid: dict[str, Any], data: Any) -> None:
    found = configurations(space(grid=grid))
    name = data.draw(st.sampled_from([*found]))
    by_id = configurations(space(grid=grid, baseline=name))
    assert next(iter(by_id)) == name
    assert by_id == found
    assert [other for other in by_id if other != name] == [other for other in found if other != name]
