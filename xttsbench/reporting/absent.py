"""What is said of a number that is not there: "not measured", with the reason that the record gives."""

from __future__ import annotations

import re
from typing import Final

from xttsbench.records.report import Report
from xttsbench.reporting.text import plain

NOT_MEASURED: Final = "not measured"


def missing(report: Report, path: str) -> str:
    """``not measured``, with the reason that the record gives for ``path`` or for what holds it."""
    known = {re.sub(r"\[(\d+)\]", r".\1", key): reason for key, reason in report.unmeasured.items()}
    steps = path.split(".")
    for length in range(len(steps), 0, -1):
        if reason := known.get(".".join(steps[:length])):
            return f"{NOT_MEASURED}: {plain(reason)}"
    return NOT_MEASURED
