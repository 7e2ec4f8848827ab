"""The results for people, as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from goals import GOALS, misses, prediction_error, ratio_of

_HEAD = (
    "case", "original steps/s", "ours", "hand-tuned", "AUTOTUNE", "ours / hand-tuned", "ours / AUTOTUNE", "predicted",
    "achieved", "error", "data", "s of optimize", "fixes",
)  # fmt: skip


def markdown(result: Mapping[str, Any]) -> str:
    """The whole page: table, goals, and which cases miss them."""
    rows, values = result["results"], result["value"]
    lines = [
        "# Fixes, beside the original, the hand-tuned version and AUTOTUNE",
        "",
        f"{len(rows)} cases on {result['cpus']} processors, {result['blocks']} processes of each version beside those "
        f"of the others, turns of {result['window_s']:g} s, {result['budget_s']:g} s for each `xttsbench optimize`. "
        "Intervals are 95 %.",
        *(["", "**Provisional: others used the processors meanwhile.**"] if result["provisional"] else []),
        "",
        *table(rows),
        "",
        "| goal | asked | found | met |",
        "|---|---|---|---|",
        *(
            f"| {name} | {goal} | {_value(values[name])} | {_yes(result['goals_met'][name])} |"
            for name, goal in GOALS.items()
        ),
        "",
        *(f"- {name}: {_value(value)}" for name, value in values.items() if name not in GOALS),
        "",
        *(f"- {sentence}" for sentence in misses(rows)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A head and a line for each case."""
    return [f"| {' | '.join(_HEAD)} |", "|" + "---|" * len(_HEAD), *map(line, rows)]


def line(row: Mapping[str, Any]) -> str:
    """One case."""
    per_s, ratios = row.get("steps_per_s", {}), row.get("ratios", {})
    name = row["case"] if row["reachable"] else f"{row['case']} *"
    error = prediction_error(row)
    achieved = ratios.get("ours / original") if row.get("fixes") else None
    cells = (
        name,
        *(_number(per_s.get(arm)) for arm in ("original", "ours", "hand-tuned", "autotune")),
        _interval(ratios.get("ours / hand-tuned")),
        _interval(ratios.get("ours / autotune")),
        _number(row.get("predicted")),
        _interval(achieved),
        "" if error is None else f"{error:.0%}",
        _data(row),
        _number(row.get("seconds")),
        _fixes(row),
    )
    return "| " + " | ".join(cells) + " |"


def short(row: Mapping[str, Any]) -> str:
    """One case on the terminal, when it is done."""
    if "failed" in row:
        return f"{row['case']}: failed: {row['failed']}"
    said = {name: ratio_of(row, f"ours / {name}") for name in ("original", "hand-tuned", "autotune")}
    figures = ", ".join(f"{_number(value) or '-'} x {name}" for name, value in said.items())
    return f"{row['case']}: {figures}, {_data(row) or 'no data compared'}, {_fixes(row)}"


def _data(row: Mapping[str, Any]) -> str:
    found = row.get("data")
    if not found:
        return ""
    words = f"{found['how']} ({found['elements']})" if "elements" in found else found["how"]
    return words if found["same"] is True else f"**{words}**"


def _fixes(row: Mapping[str, Any]) -> str:
    if "failed" in row:
        return f"failed: {row['failed']}".replace("|", "/").replace("\n", " ")
    return row.get("fixes") or "none accepted"


def _interval(found: Mapping[str, Any] | None) -> str:
    if not found:
        return ""
    alone = ", one process" if found["blocks"] < 2 else ""
    return f"{_number(found['estimate'])} ({_number(found['low'])} to {_number(found['high'])}{alone})"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"{value[0]} of {value[1]}"
    return "not measured" if value is None else f"{value:.3g}"


def _yes(value: bool | None) -> str:
    return {True: "yes", False: "NO", None: "not measured"}[value]
