"""The table for people: a line a case, and under it what is missing or wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HEAD = (
    f"{'case':35} {'known':14} {'verdict':12} {'ok':>3} {'line':>4} {'s':>5} {'resid':>6} {'x':>5} {'err':>5} "
    f"{'fixed':>5} {'trip':>4} XProf"
)


def line(row: Mapping[str, Any]) -> str:
    """A row of the output as a line of the table, with notes below it."""

    def percent(name: str) -> str:
        return "" if row.get(name) is None else f"{row[name]:.0%}"

    def yes(value: bool | None) -> str:
        return {True: "yes", False: "NO", None: ""}[value]

    said = row.get("xprof", {}).get("markers", {})
    share = f" {said['input_share']:.0%}" if said.get("input_share") is not None else ""
    xprof = f"{said.get('says', 'failed')}{share}" if said else ""
    cells = (
        f"{row['case']:35} {row['known']:14} {row.get('bottleneck', 'failed'):12} {yes(row['right']):>3} "
        f"{yes(row.get('line_found')):>4} {row['seconds']:5.0f} {percent('residual_share'):>6} "
        f"{row['tuned_over_plain'] or '':>5} {percent('prediction_error'):>5} {percent('tuned_prediction_error'):>5} "
        f"{yes(row.get('round_trip')):>4} {xprof}"
    )
    notes = [f"missing {entry}" for entry in row.get("missing", ())]
    notes += [f"wrongly limiting: {rule}" for rule in row["wrongly_limiting"]]
    notes += [str(row["diagnosis_failed"])] if "diagnosis_failed" in row else []
    notes += row["problems"]
    return "\n".join([cells.rstrip(), *(f"    {note}" for note in notes)])
