"""The report on a terminal: the verdict in the first lines, then what a reader asks next, in at most two screens.

Only :class:`rich.text.Text` objects reach rich, never markup strings, so brackets in a user's names stay brackets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table as RichTable
from rich.text import Text

from xttsbench.records.report import Report
from xttsbench.reporting.bar import cells, visible
from xttsbench.reporting.console_comparison import comparison
from xttsbench.reporting.palette import PART_COLORS, PART_GLYPHS, SEVERITY_COLORS
from xttsbench.reporting.rows import Line, Table
from xttsbench.reporting.sections.fixes import TITLE as FIXES
from xttsbench.reporting.sections.fixes import FixesText
from xttsbench.reporting.sections.pipeline import tree
from xttsbench.reporting.sections.report import Contents, FindingText, Part, describe
from xttsbench.reporting.terminal import rendered

_INDENT = (0, 0, 0, 2)
_PATCH_LINES = 40
"""Of a diff, on a terminal; the file has all of it."""


def render(report: Report, *, width: int, color: bool) -> str:
    """The report as text for a terminal of ``width`` columns, ending in a newline; escapes only with ``color``."""
    return rendered(lambda columns: _blocks(describe(report), columns), width=width, color=color)


def _blocks(said: Contents, width: int) -> Iterator[RenderableType]:
    yield _headline(said)
    for warning in said.warnings:
        yield _hanging("warning  ", SEVERITY_COLORS["warning"], Text(warning))
    for table in said.comparisons:
        yield _heading(table.title)
        yield from (Padding(block, _INDENT) for block in comparison(table, width - 2))
    if said.comparisons and said.aa:
        yield Padding(Text(f"\n{said.aa}"), _INDENT)
    if said.numbers:
        yield _heading(said.baseline) if said.baseline else Text()
        yield _lines(said.numbers, width)
    if said.parts_note:
        yield _heading("Where the time of a step goes (mean)")
    if said.parts:
        yield from (Padding(block, _INDENT) for block in _attribution(said.parts, width - 2))
    if said.parts_note:
        yield Padding(Text(said.parts_note, "dim"), _INDENT)
    if said.step:
        yield Padding(Text(f"\n{said.step}"), _INDENT)
    if said.pipeline is not None:
        yield _heading("Pipeline, its end first, time per batch")
        yield from (Padding(Text(line, overflow="fold"), _INDENT) for line in tree(said.pipeline, width - 2))
    for plain_table in (said.predictions, said.ladder, said.arms):
        if plain_table is not None:
            yield _heading(plain_table.title)
            yield Padding(_table(plain_table, width - 2), _INDENT)
    if said.aa and not said.comparisons:
        yield Padding(Text(said.aa, "dim"), _INDENT)
    if said.fixes is not None:
        yield _heading(FIXES)
        yield from (Padding(block, _INDENT) for block in _fixes(said.fixes, width - 2))
    if said.findings or said.bottleneck:
        yield _heading("Findings")
    for index, finding in enumerate(said.findings, start=1):
        if index > 1:
            yield Text()
        yield Padding(_finding(index, finding), _INDENT)
    if said.bottleneck and not said.findings:
        yield Padding(Text("None."), _INDENT)
    if said.in_time:
        yield _heading("In time")
        yield _lines(said.in_time, width)
    if said.unmeasured:
        yield _heading("Not measured")
        yield _lines(said.unmeasured, width)


def _headline(said: Contents) -> Panel:
    text = Text.assemble((said.bottleneck.upper(), "bold"), "  " if said.bottleneck else "")
    text.append(said.summary, "" if said.bottleneck else "bold")
    for sentence in said.below:
        style = "dim" if said.bottleneck else SEVERITY_COLORS["critical"] if sentence.startswith("REFUSED") else ""
        text.append(f"\n{sentence}", style)
    title = Text(f"{said.kind} {said.subject}".strip())
    title.truncate(60, overflow="ellipsis")
    return Panel(text, title=title, title_align="left", border_style="bold")


def _heading(text: str) -> Text:
    return Text(f"\n{text}", "bold")


def _hanging(label: str, style: str, text: Text) -> RichTable:
    """A label with the text beside it, wrapped under itself."""
    grid = RichTable.grid()
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(label, style), text)
    return grid


def _lines(rows: Sequence[Line], width: int) -> Padding:
    room = width // 2 + 8
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    grid.add_column(overflow="fold", max_width=room)
    grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(Text(row.label), Text(row.value))
    return Padding(grid, _INDENT)


def _attribution(parts: tuple[Part, ...], width: int) -> Iterator[RenderableType]:
    """One stacked bar over the width, and its legend; parts that are nothing are named on a line of their own."""
    bar = Text()
    for name, count in cells(parts, width):
        bar.append(PART_GLYPHS[name] * count, PART_COLORS[name])
    yield bar
    legend = RichTable.grid(padding=(0, 2, 0, 0))
    for justify in ("left", "left", "right", "right"):
        legend.add_column(justify=justify)
    for part in visible(parts):
        legend.add_row(
            Text(PART_GLYPHS[part.name] * 2, PART_COLORS[part.name]), part.name, part.time, Text(part.percent)
        )
    yield legend
    nothing = [part.name for part in parts if part not in visible(parts)]
    if nothing:
        yield Text(f"Nothing in: {', '.join(nothing)}.", "dim")


def _table(table: Table, width: int) -> RichTable:
    """Columns side by side; intervals go below their estimates where the width is short."""
    columns = zip(table.header, *table.rows, strict=True)
    narrow = sum(2 + max(map(cell_len, column)) for column in columns) > width
    grid = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in table.header:
        grid.add_column(Text(name, "dim"), overflow="fold")
    for row in table.rows:
        grid.add_row(*(Text(cell.replace(" (", "\n(") if narrow else cell) for cell in row))
    return grid


def _fixes(fixes: FixesText, width: int) -> Iterator[RenderableType]:
    """What is proposed and how to apply it, then what else was tried, then what was not."""
    yield Text(fixes.proposal)
    if fixes.table is not None:
        yield Text()
        yield _table(fixes.table, width)
    if fixes.patched:
        yield Text(f"\n{fixes.patched}")
    if fixes.patch:
        yield Text("".join(f"\n    {line}" for line in fixes.patch[:_PATCH_LINES]))
    if len(fixes.patch) > _PATCH_LINES:
        yield Text(f"    ... {len(fixes.patch) - _PATCH_LINES} more lines in the run's patch.diff", "dim")
    for line in fixes.by_hand:
        yield Text(f"\nBy hand, {line.label}: {line.value}")
    if fixes.call:
        yield Text("\nWithout editing the source:" + "".join(f"\n    {line}" for line in fixes.call))
    if fixes.not_verified:
        yield Text("\nNot verified:")
    for line in fixes.not_verified:
        yield _hanging(f"  {line.label}: ", "", Text(line.value))


def _finding(index: int, finding: FindingText) -> RichTable:
    body = Text.assemble((finding.severity.upper(), SEVERITY_COLORS[finding.severity]))
    if finding.limiting:
        body.append("  LIMITING", "bold")
    body.append(f"  {finding.title}", "bold" if finding.limiting else "")
    body.append(f"  [{finding.rule}]\n", "dim")
    if finding.where:
        body.append(f"{finding.where}\n", "underline" if finding.limiting else "")
    if finding.evidence:
        body.append("; ".join(f"{line.label} {line.value}" for line in finding.evidence) + "\n", "dim")
    for line in finding.remedy:
        body.append(f"{line}\n")
    if finding.patch:
        body.append("".join(f"    {line}\n" for line in finding.patch))
    if finding.gain:
        body.append(f"speed-up: {finding.gain}\n", "bold")
    body.rstrip()
    return _hanging(f"{index:>2}. ", "", body)
