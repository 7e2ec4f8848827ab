"""From grids to configurations: closed forms, hand-written examples, and what holds for any grid."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.errors import InvalidInputError
from xttsbench.scenario.grid import baseline, combinations, configurations, meets, size, values
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
    found = values(space(), Range.model_validate(written))
    assert found == numbers
    assert [type(number) for number in found] == [type(number) for number in numbers]


@given(st.integers(-1000, 1000), st.integers(0, 1000), st.integers(1, 50))
def test_a_range_of_whole_numbers_is_pythons(first: int, length: int, step: int) -> None:
    written = Range.model_validate({"from": first, "to": first + length, "step": step})
    assert values(space(), written) == list(range(first, first + length + 1, step))


@given(st.decimals("0.01", "100", places=2), st.decimals("0.01", "10", places=2), st.integers(0, 60))
def test_a_range_of_decimals_ends_at_its_end(first: Any, step: Any, count: int) -> None:
    written = Range.model_validate({"from": float(first), "to": float(first + count * step), "step": float(step)})
    assert values(space(), written) == [float(first + number * step) for number in range(count + 1)]


def test_rows_of_zip_are_multiplied_with_the_grid() -> None:
    found = made(grid={"a": [1, 2]}, zip={"b": ["x", "y"], "c": {"from": 8, "to": 9}})
    rows = [("x", 8), ("y", 9)]
    assert found == [{"a": a, "b": b, "c": c} for a in (1, 2) for b, c in rows]
    assert made(zip={"b": [1, 2], "c": [3, 4]}) == [{"b": 1, "c": 3}, {"b": 2, "c": 4}]


def test_a_named_range_serves_several_keys() -> None:
    found = made(ranges={"few": [0, 2], "two": {"from": 1, "to": 2}}, grid={key: {"range": "few"} for key in "ab"})
    assert found == [{"a": a, "b": b} for a in (0, 2) for b in (0, 2)]
    with pytest.raises(InvalidInputError, match="No range is called 'many'; ranges has few"):
        made(ranges={"few": [1]}, grid={"a": {"range": "many"}})


@pytest.mark.parametrize(
    ("condition", "met"),
    [
        ({"loader": "packed"}, True),
        ({"loader": "files"}, False),
        ({"loader": ["files", "packed"]}, True),
        ({"workers": {"min": 2}}, True),
        ({"workers": {"min": 3}}, False),
        ({"workers": {"max": 2}}, True),
        ({"workers": {"min": 1, "max": 1.5}}, False),
        ({"loader": {"min": 0}}, False),  # text is no number
        ({"cache": {"min": 0}}, False),  # nor is a truth value
        ({"cache": True}, True),
        ({"cache": 1}, False),
        ({"size": None}, True),
        ({"size": [None, 3]}, True),
        ({"edges": [[1, 2]]}, True),
        ({"edges": [1, 2]}, False),  # one of the two
        ({"absent": None}, False),
        ({"loader": "packed", "workers": {"max": 1}}, False),  # all of its keys
    ],
)
def test_conditions(condition: dict[str, Any], met: bool) -> None:
    read = space(skip=[condition]).skip[0]
    arguments = {"loader": "packed", "workers": 2, "cache": True, "size": None, "edges": [1, 2]}
    assert meets(read, arguments) is met


def test_conditions_look_at_the_base_and_at_what_the_grid_puts_over_it() -> None:
    grid = {"a": [1, 2], "b": [1, 2]}
    assert len(made(base={"device": "cpu"}, grid=grid, skip=[{"device": "cpu", "a": 1}])) == 2
    assert len(made(base={"device": "gpu"}, grid=grid, skip=[{"device": "cpu", "a": 1}])) == 4
    assert len(made(base={"a": 1}, grid=grid, skip=[{"a": 1}])) == 2


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
    for fields, words in [
        (
            {"grid": {"a": {"from": 1, "to": 40}, "b": {"from": 1, "to": 40}}},
            "makes 1600 configurations, and 1024 are the most",
        ),
        ({"zip": {"a": [1, 2], "b": [1]}}, "advance together"),
        ({"grid": {"a": [1]}, "skip": [{"a": 1}]}, "skip leaves no combination"),
    ]:
        with pytest.raises(InvalidInputError, match=words):
            configurations(space(**fields))


plain = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["x", "y", "z", "a/b"])
columns = st.lists(plain, min_size=1, max_size=4, unique_by=repr)
grids = st.dictionaries(st.sampled_from("abcd"), columns, min_size=1, max_size=4)
rows = st.integers(1, 3).flatmap(
    lambda count: st.dictionaries(st.sampled_from("ef"), st.lists(plain, min_size=count, max_size=count), min_size=1)
)
bounds = st.integers(-9, 9).map(lambda least: {"min": least})
conditions = st.lists(
    st.dictionaries(st.sampled_from("abcdef"), plain | columns | bounds, min_size=1, max_size=2), max_size=3
)


@given(grids, st.none() | rows)
def test_the_product_has_as_many_as_it_should_and_each_once(grid: dict[str, Any], together: Any) -> None:
    made_of = space(grid=grid, zip=together)
    found = list(combinations(made_of))
    row_count = len(next(iter(together.values()))) if together else 1
    assert len(found) == size(made_of) == math.prod(map(len, grid.values())) * row_count
    assert all(list(config) == [*grid, *(together or {})] for config in found)
    if not together:
        assert len({repr(config) for config in found}) == len(found)
    assert found[0] == {key: column[0] for key, column in {**grid, **(together or {})}.items()}


@given(grids, conditions, conditions)
def test_skip_only_ever_takes_arms_away(grid: dict[str, Any], some: list[Any], more: list[Any]) -> None:
    def left(skip: list[Any]) -> list[str]:
        try:
            return [repr(config) for config in configurations(space(grid=grid, skip=skip)).values()]
        except InvalidInputError:
            return []

    everything, fewer, fewest = left([]), left(some), left(some + more)
    assert [config for config in everything if config in fewer] == fewer  # none is new, and the order stays
    assert [config for config in fewer if config in fewest] == fewest
    told = space(skip=some + more).skip
    assert fewest == [
        repr(config) for config in combinations(space(grid=grid)) if not any(meets(c, config) for c in told)
    ]


@given(grids, conditions)
def test_ids_are_unique_and_the_same_every_time(grid: dict[str, Any], skip: list[Any]) -> None:
    written = space(grid=grid, skip=skip)
    try:
        found = configurations(written)
    except InvalidInputError:
        return
    again = configurations(Space.model_validate(written.model_dump(by_alias=True)))
    assert [*found.items()] == [*again.items()]
    assert len(found) == len({repr(config) for config in found.values()})
    assert all(1 <= len(name) <= 60 and "/" not in name for name in found)


@given(grids, st.data())
def test_any_arm_can_be_the_baseline(grid: dict[str, Any], data: Any) -> None:
    found = configurations(space(grid=grid))
    name, config = data.draw(st.sampled_from([*found.items()]))
    by_id = configurations(space(grid=grid, baseline=name))
    assert next(iter(by_id)) == name == next(iter(configurations(space(grid=grid, baseline=config))))
    assert by_id == found
    assert [other for other in by_id if other != name] == [other for other in found if other != name]
