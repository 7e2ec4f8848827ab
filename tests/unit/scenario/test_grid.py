"""From grids to configurations: closed forms, hand-written examples, and what holds for any grid."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.errors import InvalidInputError
from xttsbench.scenario.grid import baseline, configurations, meets, size, values
from xttsbench.scenario.settings import Range, Space


def space(**fields: Any) -> Space:
    return Space.model_validate(fields)


def made(**fields: Any) -> list[dict[str, Any]]:
    return list(configurations(space(**fields)).values())


@pytest.mark.parametrize(
    ("written", "numbers"),
    [
        ({"from": 1, "to": 4}, [1, 2, 3, 4]),
        ({"from": 1, "to": 8, "step": 3}, [1, 4, 7]),
        ({"from": 1, "to": 64, "factor": 2}, [1, 2, 4, 8, 16, 32, 64]),
        ({"from": 3, "to": 3}, [3]),
        ({"from": -1, "to": 1}, [-1, 0, 1]),
        ({"from": 0.1, "to": 0.5, "step": 0.1}, [0.1, 0.2, 0.3, 0.4, 0.5]),  # 0.1 + 0.1 + 0.1 is above 0.3 in floats
        ({"from": 1e-5, "to": 1e-2, "factor": 10}, [1e-5, 1e-4, 1e-3, 1e-2]),
        ({"from": 2, "to": 5, "factor": 1.5}, [2.0, 3.0, 4.5]),
        ({"from": 1, "to": 2, "step": 0.5}, [1.0, 1.5, 2.0]),
    ],
)
def test_ranges(written: dict[str, float], numbers: list[float]) -> None:
    found = values(Range.model_validate(written))
    assert found == numbers
    assert [type(number) for number in found] == [type(number) for number in numbers]


@given(st.integers(-1000, 1000), st.integers(0, 1000), st.integers(1, 50))
def test_a_range_of_whole_numbers_is_pythons(first: int, length: int, step: int) -> None:
    written = Range.model_validate({"from": first, "to": first + length, "step": step})
    assert values(written) == list(range(first, first + length + 1, step))


@given(st.decimals("0.01", "100", places=2), st.decimals("0.01", "10", places=2), st.integers(0, 60))
def test_a_range_of_decimals_ends_at_its_end(first: Any, step: Any, count: int) -> None:
    written = Range.model_validate({"from": float(first), "to": float(first + count * step), "step": float(step)})
    assert values(written) == [float(first + number * step) for number in range(count + 1)]


@pytest.mark.parametrize(
    ("wanted", "met"),
    [
        ({"loader": "packed"}, True),
        ({"loader": "files"}, False),
        ({"cache": True}, True),
        ({"cache": 1}, False),  # true is not 1
        ({"size": None}, True),
        ({"edges": [1, 2]}, True),
        ({"absent": None}, False),
        ({"loader": "packed", "workers": 1}, False),  # all of its keys
    ],
)
def test_a_configuration_is_named_by_some_of_its_values(wanted: dict[str, Any], met: bool) -> None:
    assert meets({"loader": "packed", "workers": 2, "cache": True, "size": None, "edges": [1, 2]}, wanted) is met


def test_the_baseline_comes_first_and_the_others_keep_their_order() -> None:
    grid = {"a": [1, 2, 3], "b": [0, 1]}
    assert [*configurations(space(grid=grid, baseline={"a": 2, "b": 1}))] == [
        "a=2,b=1", "a=1,b=0", "a=1,b=1", "a=2,b=0", "a=3,b=0", "a=3,b=1",
    ]  # fmt: skip
    assert next(iter(configurations(space(grid=grid, baseline={"a": 3})))) == "a=3,b=0"  # the first that fits
    assert next(iter(configurations(space(grid=grid, baseline="a=2,b=0")))) == "a=2,b=0"
    assert next(iter(configurations(space(base={"c": 5}, grid=grid, baseline={"c": 5, "a": 2})))) == "a=2,b=0"
    arms = [{"id": "new", "config": {"v": 2}}, {"id": "old"}]
    assert [*configurations(space(arms=arms, baseline="old"))] == ["old", "new"]
    with pytest.raises(InvalidInputError, match="No configuration is the baseline 'lost'"):
        configurations(space(arms=arms, baseline="lost"))
    assert baseline(space(arms=arms, baseline={"v": True}), {"a": {"v": 1}}) is None  # true is not 1


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
    with pytest.raises(InvalidInputError, match="makes 1600 configurations, and 1024 are the most"):
        made(grid={"a": {"from": 1, "to": 40}, "b": {"from": 1, "to": 40}})


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
    name, config = data.draw(st.sampled_from([*found.items()]))
    by_id = configurations(space(grid=grid, baseline=name))
    assert next(iter(by_id)) == name == next(iter(configurations(space(grid=grid, baseline=config))))
    assert by_id == found
    assert [other for other in by_id if other != name] == [other for other in found if other != name]
