"""A comparison in GitHub-flavoured Markdown, for a pull request: the answer first, the rest folded away."""

from __future__ import annotations

from collections.abc import Iterator

from xttsbench.records.comparison_result import ComparisonReport
from xttsbench.reporting.markdown import escape
from xttsbench.reporting.rows import Table
from xttsbench.reporting.sections.compare import describe


def serialize(report: ComparisonReport) -> str:
    """The whole comment, ending in a newline; texts from outside are escaped."""
    return "\n".join(_lines(report)).rstrip("\n") + "\n"


def _lines(report: ComparisonReport) -> Iterator[str]:
    said = describe(report)
    yield from (f"### {escape(said.summary)}", "")
    for warning in said.warnings:
        yield from (f"> **Warning:** {escape(warning)}", "")
    if said.gates is not None:
        yield from _table(said.gates)
    yield from _table(said.effects)
    for sentence in said.remarks:
        yield from (f"- {escape(sentence)}",)
    yield from ("", *(f"{escape(side)}  " for side in said.sides), "")
    yield from (f"{escape(note)}  " for note in said.notes)
    yield from ("", "<details><summary>Other figures, and what differs</summary>", "")
    for table in said.figures:
        yield from _titled(table)
    if said.differences is not None:
        yield from _titled(said.differences)
    yield "</details>"


def _titled(table: Table) -> Iterator[str]:
    yield from (f"**{escape(table.title)}**", "")
    yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(map(escape, table.header))} |"
    yield f"|{'|'.join(['---'] * len(table.header))}|"
    for row in table.rows:
        yield f"| {' | '.join(map(escape, row))} |"
    yield ""
