"""The journal: a line for each case that is done, so that a run that was ended can go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

JOURNAL = "cases.jsonl"


def keep(out: Path, row: Mapping[str, Any]) -> None:
    """Add a case."""
    with (out / JOURNAL).open("a", encoding="utf-8") as journal:
        journal.write(json.dumps(row, ensure_ascii=False) + "\n")


def kept(out: Path) -> dict[str, dict[str, Any]]:
    """The cases that are done: the last line of each, unless that one failed. A line that was torn is none."""
    found: dict[str, dict[str, Any]] = {}
    path = out / JOURNAL
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            row = json.loads(text)
        except ValueError:
            continue
        found[row["case"]] = row
    return {name: row for name, row in found.items() if "failed" not in row}
