"""The document of a report, built section by section; here what all of them need: numbers that are not there.

A number that was not measured is "not measured", with the reason that the report gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from xttsbench.records.base import Estimate
from xttsbench.records.report import Report
from xttsbench.reporting.document import NOT_MEASURED, Cell, Fact, Facts, Section, View

_TOGETHER: Final = 2
"""So many numbers of one record that share a reason for not being there stand in one line."""


def missing(report: Report, path: str) -> str:
    """``not measured``, with the reason that the record gives for ``path`` or for what holds it."""
    known = {re.sub(r"\[(\d+)\]", r".\1", key): reason for key, reason in report.unmeasured.items()}
    steps = path.split(".")
    for length in range(len(steps), 0, -1):
        if reason := known.get(".".join(steps[:length])):
            return f"{NOT_MEASURED}: {reason}"
    return NOT_MEASURED


def cell(estimate: Estimate | None, bounds: Callable[[Estimate], tuple[str, str]]) -> Cell:
    """A table's cell; the reasons for what was not measured stand in a list of their own, or the table would burst."""
    return Cell(NOT_MEASURED) if estimate is None else Cell(*bounds(estimate))


def unmeasured(report: Report) -> tuple[Section, ...]:
    """What was not measured and why; entries of a list, and fields of one record, share a line and a reason."""
    entries = dict.fromkeys((re.sub(r"[.\[]\d+\]?", ".*", path), reason) for path, reason in report.unmeasured.items())
    fields: dict[tuple[str, str], list[str]] = {}
    for path, reason in entries:
        fields.setdefault((path.rpartition(".")[0], reason), []).append(path)
    facts = []
    for (record, reason), paths in fields.items():
        names = [path.removeprefix(f"{record}.") for path in paths]
        together = [f"{record}: {', '.join(names)}"] if record and len(names) >= _TOGETHER else paths
        facts += [Fact(name, reason) for name in together]
    found = Facts(tuple(facts), ("what", "why"))
    return (Section("Not measured", (found,), view=View.FULL),) if facts else ()
