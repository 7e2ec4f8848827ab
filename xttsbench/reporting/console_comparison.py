"""A comparison's table on a terminal: one line per arm where it fits, two where it does not, else a block per arm.

Nine columns do not fit every terminal. On a narrow one, long names fold, then the interval of the speed-up goes below
its estimate, then two columns are left to the pages, and at last each arm becomes a few lines of words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from xttsbench.reporting.absent import NOT_MEASURED
from xttsbench.reporting.palette import SEVERITY_COLORS
from xttsbench.reporting.sections.arms import Cell, Column, Comparison, Row

BLANK: Final = "–"
"""What stands in a cell that was not measured; a note says so."""
_GAP: Final = 2
_LAYOUTS: Final = tuple((fold, below) for below in (False, True) for fold in (30, 18, 14, 12))
"""Where a column of words folds, and whether the interval stands below its estimate; the first that fits is taken."""
_LEFT_OUT: Final = ("valid frames/s", "padding efficiency")
"""What is left to the pages where the terminal is too narrow."""
_AFTER_SEPARATOR: Final = re.compile(r"(?<=[\s,:;=+/])")
_STYLES: Final = {
    "baseline": "",
    "again": "dim",
    "faster": "bold",
    "slower": "",
    "ended": SEVERITY_COLORS["critical"],
    "plain": "",
}


def comparison(table: Comparison, width: int) -> Iterator[RenderableType]:
    """The table and its notes, for ``width`` columns."""
    notes = list(table.notes)
    if any(cell.value == NOT_MEASURED for row in table.rows for cell in row.cells):
        notes.insert(0, f'{BLANK} is not measured; the reasons stand under "Not measured".')
    short = _without(table, _LEFT_OUT)
    found = _fitting(table, width) or _fitting(short, width)
    if found is None:
        yield Group(*(_block(table.columns, row) for row in table.rows))
    else:
        yield found
        if len(found.columns) < len(table.columns):
            notes.append(f"A wider terminal, and the report's pages, also show: {', '.join(_LEFT_OUT)}.")
    yield Text("\n".join(notes), "dim")


def _fitting(table: Comparison, width: int) -> RichTable | None:
    """The table in the first layout that fits."""
    for fold, below in _LAYOUTS:
        widths = _widths(table, fold, below)
        if sum(widths) + _GAP * (len(widths) - 1) <= width:
            return _grid(table, widths, below)
    return None


def _without(table: Comparison, names: tuple[str, ...]) -> Comparison:
    kept = [index for index, column in enumerate(table.columns) if column.name not in names]
    rows = tuple(replace(row, cells=tuple(row.cells[index] for index in kept)) for row in table.rows)
    return replace(table, columns=tuple(table.columns[index] for index in kept), rows=rows)


def _cell(column: Column, cell: Cell, *, below: bool) -> str:
    """Of the intervals only that of the speed-up, which the result rests on; the pages have them all."""
    if cell.value == NOT_MEASURED:
        return BLANK
    if column.name != "speed-up" or not cell.bounds:
        return cell.value
    return ("\n" if below else " ").join((cell.value, cell.bounds.replace(" to ", "–")))


def _widths(table: Comparison, fold: int, below: bool) -> list[int]:
    """What each column takes if no number is folded."""
    widths = []
    for index, column in enumerate(table.columns):
        texts = [column.short, *(_cell(column, row.cells[index], below=below) for row in table.rows)]
        widest = max(cell_len(line) for text in texts for line in text.split("\n"))
        widths.append(widest if column.numeric else min(widest, max(fold, cell_len(column.short))))
    return widths


def _grid(table: Comparison, widths: list[int], below: bool) -> RichTable:
    grid = RichTable(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    for column, width in zip(table.columns, widths, strict=True):
        grid.add_column(
            Text(column.short, "dim"), justify="right" if column.numeric else "left", width=width, overflow="fold"
        )
    for row in table.rows:
        texts = (_cell(column, cell, below=below) for column, cell in zip(table.columns, row.cells, strict=True))
        grid.add_row(*(Text(_folded(*pair)) for pair in zip(texts, widths, strict=True)), style=_STYLES[row.tone])
    return grid


def _folded(text: str, width: int) -> str:
    """``text`` with line breaks after its separators where it is wider: ``loader=packed,`` over ``prefetch=2``."""
    lines = [""]
    for piece in _AFTER_SEPARATOR.split(text):
        if lines[-1] and cell_len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines) if len(lines) > 1 else text


def _block(columns: tuple[Column, ...], row: Row) -> RenderableType:
    """An arm in words: name and result, then the rest."""
    named = {column.name: cell for column, cell in zip(columns, row.cells, strict=True)}
    first = Text(f"{named.pop('configuration').value}: {named.pop('result').value}", _STYLES[row.tone] or "bold")
    rest = "; ".join(f"{name} {cell.text}" for name, cell in named.items() if cell.value != NOT_MEASURED)
    return Group(first, Padding(Text(rest or "nothing measured"), (0, 0, 0, 2)))
