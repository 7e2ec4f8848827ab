"""Problems of a scenario, in words: single values, keys that exclude one another, and its arms once expanded."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from xttsbench.errors import XttsbenchError
from xttsbench.scenario.grid import among, configurations, size
from xttsbench.scenario.settings import (
    BUNDLED,
    MOST_ARMS,
    MOST_SWEEP_ARMS,
    LimitSettings,
    Scenario,
    Settings,
    Space,
    SweepSettings,
    VariantSettings,
)

KeyPath = tuple[str | int, ...]
Problem = tuple[KeyPath, str]
"""A place in the file and what is wrong there."""
Check = Callable[[str], object]
"""Raises an error of ours where a text cannot be used."""

_EXPECTED: Final = {
    "int_type": "a whole number is expected",
    "float_type": "a number is expected",
    "string_type": "text is expected",
    "bool_type": "true or false is expected",
    "list_type": "a list is expected",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "keys with values are expected"),
    "string_pattern_mismatch": "letters, digits and . , = + - _ are expected",
    "too_short": "it is empty",
}
_BELOW: Final[dict[str, type[Settings]]] = {
    "arms": VariantSettings,
    "limits": LimitSettings,
    "sweep": SweepSettings,
}
"""Models of nested keys, by the first part of their path."""


def of_types(error: ValidationError, content: Mapping[str, Any]) -> Iterator[Problem]:
    """The problems of single values."""
    for found in error.errors():
        read = tuple(found["loc"])
        # Pydantic's own mark: that a key is meant and not its value.
        place: KeyPath = tuple(part for part in read if not (isinstance(part, str) and part[:1] == "["))
        if place[:1] == ("accelerator",) and isinstance(content.get("accelerator"), str):
            place = place[:1]
        yield place, sentence(found, _BELOW.get(str(read[0]), Scenario) if len(read) > 1 else Scenario)


def sentence(found: ErrorDetails, model: type[Settings]) -> str:
    """Sentence on a wrong value of a model's field, with the likely intent where that can be guessed."""
    kind = found["type"]
    if kind == "missing":
        return "it is missing"
    if kind == "extra_forbidden":
        return f"unknown key{meant(found['loc'][-1], model.model_fields)}"
    if kind == "literal_error":
        known = re.findall(r"'([^']*)'", found["ctx"]["expected"])
        return f"{shown(found['input'])} is not known here{meant(found['input'], known)}"
    message = _EXPECTED.get(kind) or found["msg"].removeprefix("Value error, ")
    said = message[:1].lower() + message[1:]
    return said if kind in ("value_error", "too_short") else f"{said}, got {shown(found['input'])}"


def meant(written: object, known: Collection[str]) -> str:
    """``; did you mean 'prefetch'?``, or what is known where nothing is near."""
    near = difflib.get_close_matches(str(written)[:60], known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known) or 'none'}"


def shown(value: object) -> str:
    """A value in quotes, cut where it is long."""
    try:
        return repr(str(value)[:60])
    except ValueError:  # Python writes no whole number of thousands of digits
        return "a number of thousands of digits"


def of_the_whole(content: Mapping[str, Any], *, target: Check, accelerator: Check) -> Iterator[Problem]:
    """The problems that no single value has: keys that exclude one another, names that are taken.

    The content may be anything.
    """
    named, bundled = content.get("target"), content.get("workload") is not None or content.get("target") == BUNDLED
    if named is not None and content.get("workload") is not None:
        yield ("workload",), "give a target or the workload, not both"
    if named is None and content.get("workload") is None:
        yield ("target",), "it is missing; name what to measure, module:callable, or write workload: xtts"
    if isinstance(named, str):
        yield from _checked(("target",), named, target)
    if content.get("data") is not None and not bundled:
        yield ("data",), "it is for the bundled workload; a target of your own gets its data through base"
    yield from _accelerators(content.get("accelerator"), accelerator)
    if "grid" in content and "arms" in content:
        yield ("grid",), "give 'arms' or 'grid', not both"
    for key in ("arms", "grid"):
        if key in content and not content[key] and content[key] is not False:
            yield (key,), "it is empty; leave the key out to measure the base alone"
    yield from _same_ids(content.get("arms"))


def _checked(place: KeyPath, text: str, check: Check) -> Iterator[Problem]:
    try:
        check(text)
    except XttsbenchError as error:
        yield place, str(error).removeprefix("--accelerator ").rstrip(".")


def _accelerators(value: object, check: Check) -> Iterator[Problem]:
    texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    for index, text in enumerate(texts):
        place: KeyPath = ("accelerator",) if isinstance(value, str) else ("accelerator", index)
        if isinstance(text, str):
            yield from _checked(place, text, check)
            if text in texts[:index]:
                yield place, f"{text!r} is there already"


def _same_ids(arms: object) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for index, arm in enumerate(arms if isinstance(arms, list) else []):
        name = arm.get("id") if isinstance(arm, dict) else None
        if not isinstance(name, str):
            continue
        if name in seen:
            yield ("arms", index, "id"), f"{name!r} is the id of configuration {seen[name]} already"
        seen.setdefault(name, index)


ArgumentCheck = Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]]
"""Takes the keyword arguments of one configuration, and returns what is wrong: each key with a sentence."""


def unchecked(arguments: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """The :data:`ArgumentCheck` of a target that nothing is known about: everything is right."""
    return ()


def of_the_arms(
    space: Space, *, cost: Sequence[str] = (), arguments: ArgumentCheck = unchecked, most: int = MOST_ARMS
) -> Iterator[Problem]:
    """The problems of values, numbers, the baseline, and the arguments of each configuration."""
    grid = space.grid or {}
    for key, column in grid.items():
        if any(among(value, column[:index]) for index, value in enumerate(column)):
            yield ("grid", key), "a value is there twice"
            return
    if size(space) > MOST_SWEEP_ARMS:
        made = f"it makes {_about(size(space))} configurations"
        yield ("grid",), f"{made}, and {MOST_SWEEP_ARMS} are the most that a sweep takes"
        return
    keys = {*space.base, *grid, *(key for arm in space.arms or () for key in arm.config)}
    for index, key in enumerate(cost):
        if key not in keys:
            yield ("sweep", "cost", index), f"no configuration sets {key!r}{meant(key, sorted(keys))}"
        elif key in cost[:index]:
            yield ("sweep", "cost", index), f"{key!r} is there already"
    named = configurations(space.model_copy(update={"baseline": None}))
    if space.baseline is not None and space.baseline not in named:
        hint = meant(space.baseline, list(named)[:12])
        yield ("baseline",), f"no configuration has the id {space.baseline!r}{hint}"
    if len(named) > most:
        remedy = f"; leave some out, or search them with sweep, which takes {MOST_SWEEP_ARMS}"
        yield (
            ("grid" if grid else "arms",),
            f"it makes {len(named)} configurations, and {most} are the most that one run measures{remedy}",
        )
    yield from _of_the_arguments(space, named, arguments)


def _of_the_arguments(space: Space, named: Mapping[str, Mapping[str, Any]], check: ArgumentCheck) -> Iterator[Problem]:
    """Problems that the target has with each configuration's arguments, once for each place in the file."""
    told: set[KeyPath] = set()
    for index, (name, config) in enumerate(named.items()):
        arguments = space.base | dict(config)
        for key, sentence in check(arguments):
            alone = key not in arguments or any(other == key for other, _ in check({key: arguments[key]}))
            place = _place(space, index, config, key, alone=alone)
            if place in told:
                continue
            told.add(place)
            hint = "" if alone or space.arms or not config else f" (in {name})"
            yield place, sentence.rstrip(".") + hint


def _place(space: Space, index: int, config: Mapping[str, Any], key: str, *, alone: bool) -> KeyPath:
    """Path of an argument's value in the file: in the configuration, else in the grid, else in the base.

    A value that is wrong by itself has its place in the list of the grid; one that is wrong beside another has not.
    """
    if key not in config:
        return ("base", key)
    if space.arms:
        return ("arms", index, "config", key)
    if not alone:
        return ("grid", key)
    return ("grid", key, next(at for at, value in enumerate((space.grid or {})[key]) if among(config[key], [value])))


def _about(number: int) -> str:
    return str(number) if number < 10**9 else f"at least 10^{len(str(number)) - 1}"
