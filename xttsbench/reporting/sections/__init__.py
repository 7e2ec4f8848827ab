"""The document of a report, built section by section; here what all of them need: numbers that are not there.

A number that was not measured is "not measured", with the reason that the report gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from xttsbench.records.base import Estimate, Record
from xttsbench.records.pipeline import Pipeline
from xttsbench.records.report import Report
from xttsbench.reporting.document import NOT_MEASURED, Cell, Fact, Facts, Section, View
from xttsbench.reporting.words import configuration, missed

Kind = TypeVar("Kind", bound=Record)


def read_as(kind: type[Kind], part: Mapping[str, Any] | None) -> Kind | None:
    """A part of the report as its record; ``None`` where there is none, or another version wrote it.

    What such a part says is in ``report.json``.
    """
    try:
        return kind.model_validate(part, strict=False) if part else None
    except ValidationError:
        return None


def pipeline_of(report: Report) -> Pipeline | None:
    """The pipeline of the report, as far as :func:`read_as` can read it."""
    return read_as(Pipeline, report.pipeline)


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
    """What a reader would miss, and why it was not measured; what shares the reason shares the line."""
    missing_by: dict[tuple[str, str], dict[str, None]] = {}
    for path, reason in report.unmeasured.items():
        plain_path = re.sub(r"\[(\d+)\]", r".\1", path)
        what = missed(re.sub(r"\.\d+", ".*", plain_path))
        number = re.match(r"arms\.(\d+)\.", plain_path)
        arm = report.arms[int(number[1])] if number and int(number[1]) < len(report.arms) else None
        if what is None or (arm is not None and not (arm.group or arm.status != "ok")):
            continue
        named = (configuration(arm.id), arm.accelerator) if arm is not None else ()
        subject = ", ".join(filter(None, named))
        missing_by.setdefault((subject, reason), {})[what] = None
    facts = []
    for (subject, reason), names in missing_by.items():
        label = ", ".join(names)
        facts.append(Fact(f"{subject}: {label}" if subject else label, reason))
    found = Facts(tuple(facts), ("what", "why"))
    return (Section("Not measured", (found,), view=View.FULL),) if facts else ()
