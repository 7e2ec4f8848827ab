"""What the tables of XProf say: its verdict on the input, the shares behind it, and its advice. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

TOOLS = ("overview_page", "input_pipeline_analyzer")
ADVICE_CHARACTERS = 300


def read(texts: Mapping[str, str]) -> dict[str, Any]:
    """The JSON of the two tools of :data:`TOOLS` as a few fields.

    Returns:
        ``says`` is ``input``, ``not input``, ``perhaps input`` (XProf's POTENTIALLY, of time that it calls "All
        Others"), or ``nothing`` (no step time, or no statement); ``statement`` is its sentence; ``input_share`` is
        its input time over its step time, ``None`` without a step time; ``op`` is the input op with the most time of
        its own; ``advice`` what it proposes.
    """
    overview, analyzer = (json.loads(texts[tool]) for tool in TOOLS)
    statement = _property(overview, "statement") or _property(analyzer, "input_conclusion")
    step_ms = float(_property(analyzer, "steptime_ms_average") or 0)
    input_ms = float(_property(analyzer, "infeed_time_ms_avg") or 0)
    says = verdict(statement)
    return {
        "says": says,
        "statement": statement,
        "input_share": round(input_ms / step_ms, 4) if step_ms else None,
        "step_ms": step_ms or None,
        "op": _costliest(analyzer),
        "advice": _advice(analyzer) if says != "nothing" else "",
    }


def verdict(statement: str) -> str:
    """XProf's sentence as one of four answers."""
    if "NOT input-bound" in statement:
        return "not input"
    if re.search(r"(HIGHLY|MODERATELY) input-bound", statement):
        return "input"
    return "perhaps input" if "POTENTIALLY input-bound" in statement else "nothing"


def right(says: str, *, input_bound: bool) -> bool:
    """Whether the answer is the truth; a perhaps and a silence are not an answer."""
    return says == ("input" if input_bound else "not input")


def _property(tables: list[dict[str, Any]], name: str) -> str:
    return next((str(table["p"][name]) for table in tables if table.get("p", {}).get(name)), "")


def _table(tables: list[dict[str, Any]], column: str) -> list[dict[str, Any]]:
    """Rows of the table that has such a column, by the columns' names."""
    for table in tables:
        names = [entry.get("id") for entry in table.get("cols", [])]
        if column in names:
            return [dict(zip(names, [cell.get("v") for cell in row["c"]], strict=False)) for row in table["rows"]]
    return []


def _costliest(analyzer: list[dict[str, Any]]) -> str | None:
    rows = _table(analyzer, "opName")
    return str(max(rows, key=lambda row: float(row["selfTimeInMs"] or 0))["opName"]) if rows else None


def _advice(analyzer: list[dict[str, Any]]) -> str:
    lines = [re.sub(r"<[^>]+>", "", str(row["link"])) for row in _table(analyzer, "link")]
    return " ".join(lines)[:ADVICE_CHARACTERS]
