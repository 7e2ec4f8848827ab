"""A comparison on a terminal. Only :class:`rich.text.Text` reaches rich, so brackets in names stay brackets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.cells import cell_len
from rich.console import RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table as RichTable
from rich.text import Text

from xttsbench.records.comparison_result import ComparisonReport
from xttsbench.reporting.palette import SEVERITY_COLORS
from xttsbench.reporting.rows import Table
from xttsbench.reporting.sections.compare import describe
from xttsbench.reporting.terminal import rendered

_STYLES: Final = {
    "FAIL": SEVERITY_COLORS["critical"],
    "INCONCLUSIVE": SEVERITY_COLORS["warning"],
    "NOT MEASURED": SEVERITY_COLORS["warning"],
    "NOT COMPARABLE": SEVERITY_COLORS["critical"],
    "faster": "bold",
    "slower": "bold",
}


def render(report: ComparisonReport, *, width: int, color: bool) -> str:
    """The comparison as text of ``width`` columns, ending in a newline; escapes only with ``color``."""
    return rendered(lambda columns: _blocks(report, columns), width=width, color=color)


def _blocks(report: ComparisonReport, width: int) -> Iterator[RenderableType]:
    said = describe(report)
    head = Text(said.summary, "bold")
    for side in said.sides:
        head.append(f"\n{side}", "not bold")
    yield Panel(head, title="compare", title_align="left", border_style="bold")
    for warning in said.warnings:
        yield Text.assemble(("warning  ", SEVERITY_COLORS["warning"]), warning)
    for table in (said.gates, said.effects):
        if table is not None:
            yield from _titled(table, width - 2)
    for sentence in said.remarks:
        yield Padding(Text(sentence), (0, 0, 0, 2))
    for table in (*said.figures, said.differences):
        if table is not None and table.rows:
            yield from _titled(table, width - 2)
    yield Text("\n" + "\n".join(said.notes), "dim")


def _titled(table: Table, width: int) -> Iterator[RenderableType]:
    """A table, or where its words do not fit side by side, a few lines for each row."""
    yield Text(f"\n{table.title}", "bold")
    words = [
        max(cell_len(word) for cell in column for word in (cell.split() or [""]))
        for column in zip(table.header, *table.rows, strict=True)
    ]
    if sum(words) + 2 * len(words) > width:
        for row in table.rows:
            told = zip(table.header[1:], row[1:], strict=True)
            lines = [": ".join(word for word in pair if word) for pair in told]
            yield Padding(Text("\n  ".join([row[0], *lines]), _STYLES.get(row[0], "")), (0, 0, 0, 2))
        return
    grid = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in table.header:
        grid.add_column(Text(name, "dim"), overflow="fold")
    for row in table.rows:
        grid.add_row(*(Text(cell, _STYLES.get(cell, "")) for cell in row))
    yield Padding(grid, (0, 0, 0, 2))
