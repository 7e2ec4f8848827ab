"""From what a scenario writes to the configurations that it means: ranges and their product.

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
from xttsbench.scenario.settings import MOST_SWEEP_ARMS, Range, Space

_LONGEST_ID: Final = 60
_WORDS: Final = {True: "true", False: "false", None: "null"}


def configurations(space: Space) -> dict[str, dict[str, Any]]:
    """Id -> configuration on top of the base, the baseline first, the others in the order of the file.

    A grid varies its last key fastest.

    Raises:
        InvalidInputError: there are more than :data:`MOST_SWEEP_ARMS`, or none is the baseline.
    """
    found: dict[str, dict[str, Any]] = {}
    if space.grid:
        if size(space) > MOST_SWEEP_ARMS:
            raise InvalidInputError(
                f"The grid makes {size(space)} configurations, and {MOST_SWEEP_ARMS} are the most of a sweep."
            )
        for chosen in itertools.product(*map(values, space.grid.values())):
            config = dict(zip(space.grid, chosen, strict=True))
            found[_free(_id(config), found)] = config
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
    """Number of combinations of the grid, without making them.

    A range counts as no more than one value too many for a sweep.
    """
    return math.prod(len(values(written)) for written in (space.grid or {}).values())


def values(written: list[Any] | Range) -> list[Any]:
    """The values of a key: a list as it is, or the numbers of a range, one more than a sweep may have at most."""
    return list(itertools.islice(_numbers(written), MOST_SWEEP_ARMS + 1)) if isinstance(written, Range) else written


def _numbers(span: Range) -> Iterator[int | float]:
    """Decimal, since three times 0.1 is 0.3 to whoever writes it; whole where the first and the change are."""
    by = span.factor if span.factor is not None else 1 if span.step is None else span.step
    whole = isinstance(span.first, int) and isinstance(by, int)
    number, last, change = (Decimal(str(written)) for written in (span.first, span.last, by))
    while number <= last:
        yield int(number) if whole else float(number)
        number = number + change if span.factor is None else number * change


def meets(config: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a configuration has all of these values."""
    return all(key in config and among(config[key], [value]) for key, value in wanted.items())


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
    return next((name for name, config in found.items() if meets(space.base | dict(config), wanted)), None)


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
