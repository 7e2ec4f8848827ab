"""From what a scenario writes to the configurations that it means: ranges, products, rows of ``zip``, conditions.

Pure. Nothing is expanded before it is counted, so that a grid of a million million combinations is refused at once.
"""

from __future__ import annotations

import itertools
import math
import re
import zlib
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from xttsbench.errors import InvalidInputError
from xttsbench.scenario.settings import MOST_SWEEP_ARMS, Bounds, NamedRange, Range, Space

_LONGEST_ID: Final = 60
_WORDS: Final = {True: "true", False: "false", None: "null"}


def configurations(space: Space) -> dict[str, dict[str, Any]]:
    """Id -> configuration on top of the base, the baseline first, the others in the order of the file.

    A grid varies its last key fastest, and the rows of ``zip`` faster still.

    Raises:
        InvalidInputError: there are more than :data:`MOST_SWEEP_ARMS` before ``skip`` or none after it, a range or a
            baseline is not there, or the lists of ``zip`` differ in length.
    """
    found: dict[str, dict[str, Any]] = {}
    if space.grid or space.zip:
        for config in combinations(space):
            if not skipped(space, config):
                found[_free(_id(config), found)] = config
        if not found:
            raise InvalidInputError("skip leaves no combination of the grid.")
    else:
        given = {arm.id for arm in space.arms or () if arm.id is not None}
        for arm in space.arms or ():
            found[arm.id or _free(_id(arm.config), {*given, *found})] = dict(arm.config)
    found = found or {"baseline": {}}
    first = baseline(space, found)
    if first is None:
        raise InvalidInputError(
            f"No configuration is the baseline {space.baseline!r}; the first configurations are {list(found)[:5]}."
        )
    return {first: found[first]} | found


def size(space: Space) -> int:
    """Number of combinations of the grid and ``zip`` before ``skip``, without making them.

    A range counts as no more than one value too many for a sweep.
    """
    lengths = [len(values(space, written)) for written in (space.grid or {}).values()]
    together = [len(values(space, written)) for written in (space.zip or {}).values()]
    return math.prod(lengths + together[:1])


def combinations(space: Space) -> Iterator[dict[str, Any]]:
    """The product of the grid and the rows of ``zip``, ``skip`` not applied.

    Raises:
        InvalidInputError: there are too many, or the lists of ``zip`` differ in length.
    """
    if size(space) > MOST_SWEEP_ARMS:
        raise InvalidInputError(
            f"The grid makes {size(space)} configurations, and {MOST_SWEEP_ARMS} are the most of a sweep."
        )
    grid = {key: values(space, written) for key, written in (space.grid or {}).items()}
    together = {key: values(space, written) for key, written in (space.zip or {}).items()}
    if len({len(column) for column in together.values()}) > 1:
        raise InvalidInputError("The keys of zip advance together; give each as many values.")
    rows = [dict(zip(together, row, strict=True)) for row in zip(*together.values(), strict=True)] or [{}]
    for chosen in itertools.product(*grid.values()):
        for row in rows:
            yield dict(zip(grid, chosen, strict=True)) | row


def values(space: Space, written: list[Any] | Range | NamedRange) -> list[Any]:
    """The values of a key: a list as it is, or the numbers of a range, one more than a sweep may have at most.

    Raises:
        InvalidInputError: no range has that name.
    """
    if isinstance(written, NamedRange):
        if written.range not in space.ranges:
            raise InvalidInputError(f"No range is called {written.range!r}; ranges has {', '.join(space.ranges)}.")
        written = space.ranges[written.range]
    return list(itertools.islice(_numbers(written), MOST_SWEEP_ARMS + 1)) if isinstance(written, Range) else written


def _numbers(span: Range) -> Iterator[int | float]:
    """Decimal, since three times 0.1 is 0.3 to whoever writes it; whole where the first and the change are."""
    by = span.factor if span.factor is not None else 1 if span.step is None else span.step
    whole = isinstance(span.first, int) and isinstance(by, int)
    number, last, change = (Decimal(str(written)) for written in (span.first, span.last, by))
    while number <= last:
        yield int(number) if whole else float(number)
        number = number + change if span.factor is None else number * change


def skipped(space: Space, config: Mapping[str, Any]) -> bool:
    """Whether a combination meets one of the conditions under which it is left out."""
    return any(meets(condition, space.base | dict(config)) for condition in space.skip)


def meets(condition: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    """Whether all of a condition's keys are there with a value that it names."""
    return all(key in arguments and _is_wanted(arguments[key], wanted) for key, wanted in condition.items())


def _is_wanted(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Bounds):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return (wanted.min is None or value >= wanted.min) and (wanted.max is None or value <= wanted.max)
    return among(value, wanted) if isinstance(wanted, list) else among(value, [wanted])


def among(value: Any, known: Collection[Any]) -> bool:
    """Whether a value is one of those; ``true`` is not 1."""
    return any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in known)


def baseline(space: Space, found: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The id of the baseline among these configurations, or ``None`` where the scenario names none of them."""
    wanted = space.baseline
    if wanted is None:
        return next(iter(found))
    if isinstance(wanted, str):
        return wanted if wanted in found else None
    exactly = {key: [value] for key, value in wanted.items()}
    return next((name for name, config in found.items() if meets(exactly, space.base | dict(config))), None)


def _id(config: Mapping[str, Any]) -> str:
    """``loader=packed,prefetch=2``; what is not a plain character becomes a hyphen, and a long end a check sum."""
    text = ",".join(f"{key}={_shown(value)}" for key, value in config.items()) or "baseline"
    name = re.sub(r"[^A-Za-z0-9_.,=+-]+", "-", text)
    return name if len(name) <= _LONGEST_ID else f"{name[: _LONGEST_ID - 9]}+{zlib.crc32(text.encode()):08x}"


def _shown(value: Any) -> str:
    return _WORDS[value] if value is None or isinstance(value, bool) else str(value)


def _free(name: str, taken: Collection[str]) -> str:
    numbered = (f"{name[: _LONGEST_ID - 5]}+{number}" for number in itertools.count(2))
    return next(candidate for candidate in itertools.chain([name], numbered) if candidate not in taken)
