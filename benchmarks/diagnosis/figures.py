"""What all cases come to, and the goals beside it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from judging import quantile

SLOWER = 1.3  # how much faster the tuned version has to be for a case to count as faulty
GOALS: Mapping[str, Any] = {
    "right": "all",
    "wrongly_limiting": 0,
    "healthy_clean": "all",
    "line_found": "all",
    "seconds_max": 60.0,
    "residual_share_max": 0.03,
    "prediction_error_median": 0.10,
    "prediction_error_p90": 0.25,
    "tuned_prediction_error_median": 0.10,
    "tuned_prediction_error_p90": 0.25,
    "round_trip": "all",
    "slower": f"all, by {SLOWER}",
}


def figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts as ``[how many, of how many]``, and quantiles; ``None`` where nothing was measured.

    A round trip that cannot be judged, since the dataset differs from itself, counts for nothing, and so does a
    tuned prediction where the report has none with these fixes: ``tuned_predictions`` says how many there are, of the
    cases that fixes turn into the tuned one.
    """
    faulty = [row for row in rows if not row["healthy"]]
    healthy = [row for row in rows if row["healthy"]]
    profiled = [row["xprof"]["markers"] for row in rows if "xprof" in row]
    return {
        "right": [sum(row["right"] for row in rows), len(rows)],
        "bottleneck_right": [sum(bool(row.get("bottleneck_right")) for row in rows), len(rows)],
        "wrongly_limiting": sum(len(row["wrongly_limiting"]) for row in rows),
        "healthy_clean": [sum(row["right"] for row in healthy), len(healthy)],
        "line_found": _count(row.get("line_found") for row in faulty),
        "seconds_max": max((row["seconds"] for row in rows), default=None),
        "residual_share_max": quantile((row.get("residual_share") for row in rows), 1.0),
        **_errors(rows, "prediction_error"),
        **_errors(faulty, "tuned_prediction_error"),
        "tuned_predictions": _count(row.get("tuned_prediction_error") is not None for row in faulty if row["fixes"]),
        "round_trip": _count(row.get("round_trip") for row in rows),
        "tuned_is_the_same": _count(row.get("tuned_is_the_same") for row in faulty),
        "slower": [sum((row["tuned_over_plain"] or 0.0) >= SLOWER for row in faulty), len(faulty)],
        "xprof_right": [sum(bool(said["right"]) for said in profiled), len(profiled)],
        "xprof_right_otherwise": {how: _count(_right(rows, how)) for how in ("outside", "none", "fit")},
        "xprof_says_nothing": sum(said.get("says", "nothing") in ("nothing", "perhaps input") for said in profiled),
    }


def met(
    values: Mapping[str, Any], goals: Mapping[str, Any] = GOALS, at_least: Collection[str] = ()
) -> dict[str, bool | None]:
    """Whether each goal is met, most of them limits; ``None`` where there is nothing to judge."""
    found: dict[str, bool | None] = {}
    for name, goal in goals.items():
        value = values[name]
        if isinstance(value, list):
            found[name] = value[0] == value[1] if value[1] else None
        elif value is None:
            found[name] = None
        else:
            found[name] = value >= goal if name in at_least else value <= goal
    return found


def _errors(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, float | None]:
    values = [row.get(name) for row in rows]
    return {f"{name}_median": quantile(values, 0.5), f"{name}_p90": quantile(values, 0.9)}


def _right(rows: Sequence[Mapping[str, Any]], how: str) -> list[bool]:
    return [row["xprof"][how]["right"] for row in rows if how in row.get("xprof", {})]


def _count(values: Any) -> list[int]:
    known = [value for value in values if value is not None]
    return [sum(known), len(known)]
