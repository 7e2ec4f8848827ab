"""A shuffle before the maps in front of it, in the user's source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xttsbench.fixes.batch_first.patch import maps_before
from xttsbench.targets.source.calls import Calls, attempt, place, rearranged
from xttsbench.targets.source.edits import Change, Found


def shuffle_first(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """The first shuffle right behind a map, before all maps in a row."""
    for one in calls.of_kind("shuffle"):
        maps = maps_before(calls, one)
        if maps:

            def edit() -> Sequence[Change]:
                return [rearranged(calls, (*maps, one), {other.name for other in maps})]  # noqa: B023 - called here

            by_hand = f"write the .shuffle(...) of {place(one)} before the .map(...) of {place(maps[0])}"
            return [attempt(edit, by_hand)]
    return [Found(why_not="no .shuffle(...) comes right behind a .map(...)")]
