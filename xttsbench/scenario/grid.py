"""From what a scenario writes to the configurations that it means: the product of a grid.

Pure. Nothing is expanded before it is counted, so that a grid of a million million combinations is refused at once.
"""

from __future__ import annotations

import itertools
import math
import re
import zlib
from collections.abc import Collection, Mapping
from typing import Any, Final

from xttsbench.errors import InvalidInputError
from xttsbench.scenario.settings import MOST_SWEEP_ARMS, Space

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
        for chosen in itertools.product(*space.grid.values()):
            config = dict(zip(space.grid, chosen, strict=True))
            found[_free(_id(config), found)] = config
    else:
        given = {arm.id for arm in space.arms or () if arm.id is not None}
        for arm in space.arms or ():
            found[arm.id or _free(_id(arm.config), {*given, *found})] = dict(arm.config)
    found = found or {"baseline": {}}
    first = next(iter(found)) if space.baseline is None else space.baseline
    if first not in found:
        raise InvalidInputError(
            f"No configuration is the baseline {space.baseline!r}; the first configurations are {list(found)[:5]}."
        )
    return {first: found[first]} | found


def size(space: Space) -> int:
    """Number of combinations of the grid, without making them."""
    return math.prod(map(len, (space.grid or {}).values()))


def among(value: Any, known: Collection[Any]) -> bool:
    """Whether a value is one of those; ``true`` is not 1."""
    return any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in known)


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
