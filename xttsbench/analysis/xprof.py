"""What XProf's tables say of a profile: its verdict on the input, the shares behind it, its advice; and ours beside it.

Pure. XProf calls a step input-bound from 5 % of waiting on (``op_stats_to_input_pipeline_analysis.cc``), and counts a
moment once, by the event that ranks highest in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from xttsbench.records.gpu_activity import XProfVerdict

TOOLS: Final = ("overview_page", "input_pipeline_analyzer")
"""XProf's tools that the verdict is read from."""
_ADVICE_CHARACTERS: Final = 300
_INPUT_BOUND: Final = 0.05
_CLOSE: Final = 0.05
"""Shares of a step that differ by less are the same."""


def read(texts: Mapping[str, str]) -> XProfVerdict:
    """The JSON of the two tools of :data:`TOOLS` as a verdict.

    Raises:
        ValueError, KeyError, TypeError: the tables are not those that are known.
    """
    overview, analyzer = (json.loads(texts[tool]) for tool in TOOLS)
    statement = _property(overview, "statement") or _property(analyzer, "input_conclusion")
    step_ms = float(_property(analyzer, "steptime_ms_average") or 0)
    input_ms = float(_property(analyzer, "infeed_time_ms_avg") or 0)
    says = answer(statement)
    return XProfVerdict(
        says=says,
        statement=statement,
        input_share=round(input_ms / step_ms, 4) if step_ms else None,
        step_s=step_ms / 1e3 or None,
        op=_costliest(analyzer),
        advice=_advice(analyzer) if says != "nothing" else "",
    )


def answer(statement: str) -> Literal["input", "not input", "perhaps input", "nothing"]:
    """XProf's sentence as one of four answers."""
    if "NOT input-bound" in statement:
        return "not input"
    if re.search(r"(HIGHLY|MODERATELY) input-bound", statement):
        return "input"
    return "perhaps input" if re.search(r"(POTENTIALLY|COULD be) input-bound", statement) else "nothing"


def difference(
    said: XProfVerdict, bottleneck: str, *, measured: float | None, profiled: float | None, slowed: float | None
) -> str | None:
    """Why XProf and the verdict differ on whether the input limits the step; ``None`` where they agree.

    Args:
        said: XProf's verdict.
        bottleneck: ours.
        measured: share of the step that waits for input, over all measured steps, without a profiler.
        profiled: the same in the profiled window, from the time inside ``next()``.
        slowed: time of a step of that window over that of a measured one.
    """
    if bottleneck == "inconclusive":
        return "there is nothing to hold against XProf's"
    if said.says == ("input" if bottleneck == "input" else "not input"):
        return None
    here = "" if profiled is None else f"; next() takes {profiled:.0%} of it"
    if said.says == "nothing":
        return "XProf found no step in the profile, and without one it says nothing"
    if said.says == "perhaps input":
        return (
            "XProf cannot tell: time in which the profile has no event, such as Python's own, may be the input to it"
            f"{here}"
        )
    if measured is not None and profiled is not None and abs(profiled - measured) > _CLOSE:
        times = f", where a step took {slowed:.2g} times as long" if slowed is not None and slowed > 1 + _CLOSE else ""
        return (
            f"XProf sees the {profiled:.0%} that the profiled steps wait{times}; over all steps measured without the "
            f"profiler it is {measured:.0%}"
        )
    if said.says == "input":
        share = said.input_share if said.input_share is not None else profiled
        of = "" if share is None else f", here {share:.0%}"
        return (
            f"XProf calls a step input-bound from {_INPUT_BOUND:.0%} of waiting on{of}; the verdict goes to what would "
            "gain most"
        )
    return (
        "XProf counts waiting only where no event of higher rank runs, such as the device's, and only inside "
        f"TensorFlow's own op{here}"
    )


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
    return " ".join(lines)[:_ADVICE_CHARACTERS]
