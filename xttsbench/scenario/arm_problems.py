"""What is wrong with the arms of a scenario although each of its values may be: what only their expansion shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from xttsbench.scenario.grid import among, baseline, combinations, configurations, meets, size, skipped, values
from xttsbench.scenario.problems import meant, shown
from xttsbench.scenario.space import MOST_ARMS, MOST_SWEEP_ARMS, Bounds, NamedRange, Range, Space
from xttsbench.scenario.yaml_file import KeyPath, Problem

ArgumentCheck = Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]]
"""Takes the keyword arguments of one arm, and returns what is wrong: each key with a sentence."""


def unchecked(arguments: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """The :data:`ArgumentCheck` of a target that nothing is known about: everything is right."""
    return ()


def of_the_arms(
    space: Space, *, cost: Sequence[str] = (), arguments: ArgumentCheck = unchecked, most: int = MOST_ARMS
) -> Iterator[Problem]:
    """The problems of ranges, lengths, numbers, conditions, the baseline, and the arguments of each arm.

    Args:
        space: what is measured, each of its values valid.
        cost: keys of ``sweep.cost``.
        arguments: checks those of each arm.
        most: arms at most.
    """
    found = list(_of_the_axes(space))
    yield from found
    if found:  # what these make cannot be told
        return
    together = {**(space.grid or {}), **(space.zip or {})}
    where = "grid" if space.grid else "zip"
    if size(space) > MOST_SWEEP_ARMS:
        yield (where,), f"it makes {_about(size(space))} arms, and {MOST_SWEEP_ARMS} are the most that a sweep takes"
        return
    keys = {*space.base, *together, *(key for arm in space.arms or () for key in arm.config)}
    if together:  # without a grid no condition means anything
        yield from _of_the_conditions(space, sorted(keys))
    for index, key in enumerate(cost):
        if key not in keys:
            yield ("sweep", "cost", index), f"no arm sets {key!r}{meant(key, sorted(keys))}"
        elif key in cost[:index]:
            yield ("sweep", "cost", index), f"{key!r} is there already"
    if together and all(skipped(space, config) for config in combinations(space)):
        yield ("skip",), f"it leaves none of the {size(space)} combinations"
        return
    named = configurations(space.model_copy(update={"baseline": None}))
    if len(named) > most:
        remedy = f"; leave some out with skip, or search them with sweep, which takes {MOST_SWEEP_ARMS}"
        place = where if together else "arms"
        yield (place,), f"it makes {len(named)} arms, and {most} are the most that one run measures{remedy}"
    yield from _of_the_baseline(space, named, sorted(keys))
    yield from _of_the_arguments(space, named, arguments)


def _of_the_axes(space: Space) -> Iterator[Problem]:
    """Each key's values by themselves, and the keys of ``zip`` beside one another."""
    lengths: dict[str, int] = {}
    for where, axes in (("grid", space.grid or {}), ("zip", space.zip or {})):
        for key, written in axes.items():
            if isinstance(written, NamedRange) and written.range not in space.ranges:
                yield (where, key, "range"), f"no range is called {written.range!r}{meant(written.range, space.ranges)}"
                continue
            column = values(space, written)
            if len(column) > MOST_SWEEP_ARMS:
                yield (where, key), f"it has more than {MOST_SWEEP_ARMS} values"
            elif where == "grid" and not isinstance(written, Range) and _twice(column):
                yield (where, key), "a value is there twice"
            if where == "zip":
                lengths[key] = len(column)
            if where == "zip" and key in (space.grid or {}):
                yield (where, key), "it is a key of the grid already"
    first = next(iter(lengths), "")
    for key, length in lengths.items():
        if length != lengths[first]:
            yield ("zip", key), f"it has {length} values, and {first} has {lengths[first]}; they advance together"


def _twice(column: Sequence[Any]) -> bool:
    return any(among(value, column[:index]) for index, value in enumerate(column))


def _of_the_conditions(space: Space, keys: Sequence[str]) -> Iterator[Problem]:
    """Conditions on keys that nothing sets, and on values that a key of the grid never has."""
    axes = {**(space.grid or {}), **(space.zip or {})}
    for index, condition in enumerate(space.skip):
        for key, wanted in condition.items():
            place: KeyPath = ("skip", index, key)
            if key not in keys:
                yield place, f"neither base nor grid has the key{meant(key, keys)}"
            elif key in axes and not isinstance(wanted, Bounds):
                column = values(space, axes[key])
                listed = wanted if isinstance(wanted, list) else [wanted]
                missing = [value for value in listed if not among(value, column)]
                if missing:
                    yield place, f"{shown(missing[0])} is no value of {key}{meant(missing[0], _texts(column))}"


def _of_the_baseline(space: Space, named: Mapping[str, Mapping[str, Any]], keys: Sequence[str]) -> Iterator[Problem]:
    wanted = space.baseline
    if wanted is None or baseline(space, named) is not None:
        return
    if isinstance(wanted, str):
        yield ("baseline",), f"no arm has the id {wanted!r}{meant(wanted, list(named)[:12])}"
        return
    for key, value in wanted.items():
        taken = [arm[key] for config in named.values() if key in (arm := space.base | dict(config))]
        if key not in keys:
            yield ("baseline", key), f"no arm sets it{meant(key, keys)}"
        elif not among(value, taken):
            yield ("baseline", key), f"no arm has {shown(value)}{meant(value, _texts(taken))}"
    if all(
        any(meets({key: [value]}, space.base | dict(arm)) for arm in named.values()) for key, value in wanted.items()
    ):
        yield ("baseline",), "no arm has all of these values together"


def _of_the_arguments(space: Space, named: Mapping[str, Mapping[str, Any]], check: ArgumentCheck) -> Iterator[Problem]:
    """What the target says to each arm's arguments, once for each place in the file."""
    told: set[KeyPath] = set()
    for index, (name, config) in enumerate(named.items()):
        arguments = space.base | dict(config)
        for key, sentence in check(arguments):
            alone = key not in arguments or any(other == key for other, _ in check({key: arguments[key]}))
            place = _place(space, index, config, key, alone=alone)
            if place in told:
                continue
            told.add(place)
            hint = "" if alone or space.arms or not config else f" (in {name}; a condition of skip can leave it out)"
            yield place, sentence.rstrip(".") + hint


def _place(space: Space, index: int, config: Mapping[str, Any], key: str, *, alone: bool) -> KeyPath:
    """Where an argument was written: in the arm, else in the grid, else in the base.

    A value that is wrong by itself has its place in the list of the grid; one that is wrong beside another has not.
    """
    if key not in config:
        return ("base", key)
    if space.arms:
        return ("arms", index, "config", key)
    where, axes = ("grid", space.grid) if key in (space.grid or {}) else ("zip", space.zip)
    written = (axes or {})[key]
    if alone and isinstance(written, list):
        return (where, key, next(at for at, value in enumerate(written) if among(config[key], [value])))
    return (where, key)


def _texts(column: Iterable[Any]) -> list[str]:
    """The first of the values, in words and each once."""
    return list(dict.fromkeys(str(value) for value in column))[:12]


def _about(number: int) -> str:
    return str(number) if number < 10**9 else f"at least 10^{len(str(number)) - 1}"
