"""The rules of Chrome's trace-event format, as its description has them, for whatever an export writes."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from typing import Any

METADATA = {
    "process_name": "name",
    "process_labels": "labels",
    "process_sort_index": "sort_index",
    "thread_name": "name",
    "thread_sort_index": "sort_index",
}
ROUNDING_US = 0.002
"""Two nanoseconds: each end is a nanosecond's integer, divided by a thousand."""


def problems(text: str) -> list[str]:
    """What breaks the format; an empty list where nothing does."""
    trace = json.loads(text, parse_constant=lambda word: f"<{word}>")
    found = [f"no such unit: {trace['displayTimeUnit']}"] * (trace.get("displayTimeUnit") not in ("ms", "ns"))
    tracks = defaultdict(list)
    for event in trace["traceEvents"]:
        found += [f"{what}: {event}" for what in _wrong(event)]
        if event.get("ph") == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["dur"], event["name"]))
    named = {event["pid"] for event in trace["traceEvents"] if event["name"] == "process_name"}
    found += [f"a process without a name: {pid}" for pid in {event["pid"] for event in trace["traceEvents"]} - named]
    for track, slices in tracks.items():
        found += [f"{track}: {said}" for said in _not_nested(slices)]
    return found


def _wrong(event: dict[str, Any]) -> list[str]:
    wrong = []
    if not isinstance(event.get("pid"), int) or not isinstance(event.get("tid"), int):
        wrong.append("pid and tid are numbers")
    if not isinstance(event.get("name"), str) or not event["name"]:
        wrong.append("a name is text")
    phase, arguments = event.get("ph"), event.get("args")
    if not isinstance(arguments, dict):
        wrong.append("args is an object")
    elif phase == "M":
        if METADATA.get(event["name"]) not in arguments or len(arguments) != 1:
            wrong.append("metadata that nobody knows")
    elif phase == "C":
        if not arguments or not all(_is_number(value) for value in arguments.values()):
            wrong.append("a counter counts numbers")
    elif phase == "X":
        if not _is_number(event.get("dur")) or event["dur"] < 0:
            wrong.append("a slice lasts")
    else:
        wrong.append("a phase that nobody writes here")
    if phase != "M" and (not _is_number(event.get("ts")) or event["ts"] < 0):
        wrong.append("a time is a number of microseconds")
    return wrong


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _not_nested(slices: list[tuple[float, float, str]]) -> list[str]:
    """Slices of one track that overlap in part: each lies within another or beside it."""
    found, open_until = [], []
    for start, lasts, name in sorted(slices, key=lambda one: (one[0], -one[1])):
        while open_until and open_until[-1][0] <= start + ROUNDING_US:
            open_until.pop()
        if open_until and start + lasts > open_until[-1][0] + ROUNDING_US:
            found.append(f"{name} from {start} for {lasts} leaves {open_until[-1]}")
        open_until.append((start + lasts, name))
    return found
