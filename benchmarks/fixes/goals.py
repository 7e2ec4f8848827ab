"""What all cases come to, beside the goals, and which cases miss them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from faulty import PROCESSOR_BOUND
from figures import met as goals_met
from judging import quantile

OF_TUNED, OF_AUTOTUNE = 0.95, 1.0
"""What ours has to reach, of the hand-tuned version's speed and of AUTOTUNE's."""
MARGIN = 0.02
"""The smallest difference that matters, as everywhere in the toolkit: no slower than AUTOTUNE is within it."""
GOALS: Mapping[str, Any] = {
    "ours_over_tuned": f"all, {OF_TUNED:.0%}",
    "ours_over_autotune": f"all, {OF_AUTOTUNE:.0%} (within {MARGIN:.0%})",
    "prediction_error_median": 0.08,
    "prediction_error_p90": 0.25,
    "seconds_max": 120.0,
    "same_data": "all",
    "processor_bound_speedup": 47.0,
}
_AT_LEAST = frozenset({"processor_bound_speedup"})
SCORED_WITHIN = 0.10
"""The goals of predictions are judged on rows whose achieved speed-up has an interval within this share of it: where
what was achieved is less sure than that, the error is as much the measurement's."""
_LEAST = {"ours / hand-tuned": OF_TUNED, "ours / autotune": OF_AUTOTUNE - MARGIN}

Row = Mapping[str, Any]


def ratio_of(row: Row, name: str) -> float | None:
    """A ratio of the session's arms, ``None`` where it was not measured."""
    found = row.get("ratios", {}).get(name)
    return found["estimate"] if found else None


def reaches(row: Row, name: str) -> bool:
    """Whether a case reaches the goal of a ratio; what was not measured does not."""
    found = ratio_of(row, name)
    return found is not None and found >= _LEAST[name]


def prediction_error(row: Row) -> float | None:
    """Of the predicted speed-up of the accepted fixes, relative to what they gave in the session."""
    predicted, achieved = row.get("predicted"), ratio_of(row, "ours / original")
    if not row.get("fixes") or predicted is None or achieved is None:
        return None
    return abs(predicted - achieved) / achieved


def scored_error(row: Row) -> float | None:
    """The error of a prediction whose achieved speed-up is sure enough to judge it by; one process's is not."""
    achieved = row.get("ratios", {}).get("ours / original")
    if not achieved or achieved["blocks"] < 2:
        return None
    least, most = ((1 + sign * SCORED_WITHIN) * achieved["estimate"] for sign in (-1, 1))
    return prediction_error(row) if least <= achieved["low"] and achieved["high"] <= most else None


def figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Counts as ``[how many, of how many]``, geometric means, and quantiles; ``None`` where nothing was measured."""
    errors, scored = [prediction_error(row) for row in rows], [scored_error(row) for row in rows]
    tried = [_relative(one) for row in rows for one in row.get("tried", ())]
    reachable = [row for row in rows if row["reachable"]]
    own = next((row for row in rows if row["case"] == PROCESSOR_BOUND.name), None)
    judged = [row["data"]["same"] for row in rows if row.get("data")]
    return {
        "accepted": [sum(bool(row.get("fixes")) for row in rows), len(rows)],
        "ours_over_tuned": _reaching(rows, "ours / hand-tuned"),
        "ours_over_tuned_where_reachable": _reaching(reachable, "ours / hand-tuned"),
        "ours_over_autotune": _reaching(rows, "ours / autotune"),
        **{
            f"{name.replace(' / ', '_over_').replace('hand-tuned', 'tuned')}_mean": _mean(
                ratio_of(row, name) for row in rows
            )
            for name in ("ours / original", "ours / hand-tuned", "ours / autotune")
        },
        "prediction_error_median": quantile(scored, 0.5),
        "prediction_error_p90": quantile(scored, 0.9),
        "predictions_scored": [sum(error is not None for error in found) for found in (scored, errors)],
        "prediction_error_of_all_rows_median": quantile(errors, 0.5),
        "prediction_error_of_all_rows_p90": quantile(errors, 0.9),
        "predictions": [sum(error is not None for error in errors), sum(bool(row.get("fixes")) for row in rows)],
        "prediction_error_of_each_fix_median": quantile(tried, 0.5),
        "prediction_error_of_each_fix_p90": quantile(tried, 0.9),
        "seconds_max": max((row["seconds"] for row in rows if row.get("seconds") is not None), default=None),
        "same_data": [sum(same is True for same in judged), len(judged)],
        "processor_bound_speedup": ratio_of(own, "ours / original") if own else None,
        "failed": sum("failed" in row for row in rows),
    }


def met(values: Mapping[str, Any]) -> dict[str, bool | None]:
    """Whether each goal is met; ``None`` where there is nothing to judge."""
    return goals_met(values, GOALS, at_least=_AT_LEAST)


def misses(rows: Sequence[Row]) -> list[str]:
    """A sentence for each goal that cases miss, and one for those that no rewrite reaches."""
    said = []
    for name, words in (
        ("ours / hand-tuned", f"Below {OF_TUNED:.0%} of the hand-tuned version"),
        ("ours / autotune", "Slower than AUTOTUNE with default options"),
    ):
        below = [row for row in rows if not reaches(row, name)]
        if not below:
            continue
        said.append(f"{words}: {', '.join(_with_figure(row, name) for row in below)}.")
        if name == "ours / hand-tuned":
            other = [row["case"] for row in below if not row["reachable"]]
            left = [row["case"] for row in below if row["reachable"]]
            said.append(
                f"Of these the hand-tuned version is another function, no rewrite: {', '.join(other) or 'none'}."
            )
            said.append(f"Left to explain: {', '.join(left) or 'none'}.")
    wrong = [row["case"] for row in rows if row.get("data") and row["data"]["same"] is not True]
    slow = [row["case"] for row in rows if (row.get("seconds") or 0.0) > GOALS["seconds_max"]]
    off = [row["case"] for row in rows if (prediction_error(row) or 0.0) > GOALS["prediction_error_p90"]]
    for words, names in (
        ("Other data, or not known to be the same", wrong),
        (f"Over {GOALS['seconds_max']:g} s", slow),
        (f"Predicted worse than within {GOALS['prediction_error_p90']:.0%}", off),
        ("Failed", [row["case"] for row in rows if "failed" in row]),
    ):
        said += [f"{words}: {', '.join(names)}."] if names else []
    return said


def _with_figure(row: Row, name: str) -> str:
    found = row.get("ratios", {}).get(name)
    if not found:
        return f"{row['case']} (not measured)"
    unsure = found["high"] is None or found["high"] >= _LEAST[name]
    return f"{row['case']} ({found['estimate']:.2f}{', not beyond doubt' if unsure else ''})"


def _relative(one: Mapping[str, Any]) -> float | None:
    predicted, achieved = one.get("predicted"), one.get("verified")
    return abs(predicted - achieved) / achieved if predicted is not None and achieved else None


def _reaching(rows: Sequence[Row], name: str) -> list[int]:
    return [sum(reaches(row, name) for row in rows), len(rows)]


def _mean(values: Iterable[float | None]) -> float | None:
    logs = [math.log(value) for value in values if value]
    return math.exp(sum(logs) / len(logs)) if logs else None
