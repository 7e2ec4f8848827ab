"""A document on a terminal: the answer on one screen; in larger views below what stands behind it, so that it is seen.

Only :class:`rich.text.Text` objects reach rich, never markup strings, so brackets in a user's names stay brackets. A
table takes one line a row where it fits; else its words fold, then intervals go below their estimates, then the columns
that can be spared are left out, and at last each row becomes a few lines of words. Numbers are never broken.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from io import StringIO
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from xttsbench.reporting import document as doc
from xttsbench.reporting.step_bar import Bars
from xttsbench.reporting.words import PART_COLORS, PART_GLYPHS, SEVERITY_COLORS

MINIMUM_WIDTH: Final = 40
"""A narrower terminal gets lines of this width, which it wraps itself."""
BLANK: Final = "–"
"""Text of a cell that was not measured, where a table has blanks for them; a note says so."""
_GAP: Final = 2
_NARROWEST_COLUMN, _COMFORTABLE_COLUMN = 12, 24
"""To what a column of words may shrink, and to what it shrinks before intervals go below their estimates."""
_AFTER_SEPARATOR: Final = re.compile(r"(?<=[\s,:;=+/])")
_ROW_STYLES: Final = {"again": "dim", "faster": "bold", "ended": SEVERITY_COLORS["critical"]}
_CELL_STYLES: Final = {"strong": "bold"} | SEVERITY_COLORS
_BAR_CELLS: Final = 8
_WIDE: Final = 100  # From this width on a tree has room for bars beside the percentages
_LONG_LINE: Final = 70  # Columns from which a line is as long as those who count them expect
_FULL, _EMPTY = "█", "·"
_NARROWEST_TREE: Final = 40
_COST_CELLS: Final = len(doc.NOT_MEASURED)
_INDENT: Final = (0, 0, 0, 2)
MOST_LINES: Final = 25
"""Most lines of a screen; a narrow one has more."""
_WARNING: Final = "warning  "
_SENTENCE_END: Final = re.compile(r"[.;!?](?=\s)")
_TONES: Final = {"": "", "soft": "dim", "strong": "bold", "refused": SEVERITY_COLORS["critical"]}


def render(document: doc.Document, *, width: int, color: bool, view: doc.View = doc.View.SUMMARY) -> str:
    """The document as text, ending in a newline.

    Escapes are written only where the terminal shows colours.
    """
    details = document.shown(view) if view is not doc.View.SUMMARY else ()
    rule = (doc.Paragraph(""), doc.Paragraph("─" * max(width, MINIMUM_WIDTH), "soft")) if details else ()
    shown: tuple[doc.Block, ...] | None = document.shown(doc.View.SUMMARY)
    screen = ""
    while shown is not None:
        screen = _rendered(shown, width, color=color)
        fits = screen.count("\n") <= MOST_LINES or width < _LONG_LINE
        shown = None if fits else _tighter(shown)
    return _rendered((*details, *rule), width, color=color) + screen


def _rendered(blocks: Iterable[doc.Block], width: int, *, color: bool) -> str:
    target = StringIO()
    console = Console(
        file=target,
        width=max(width, MINIMUM_WIDTH),
        force_terminal=color,
        color_system="truecolor" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    for block in blocks:
        for made in _section(block, console.width) if isinstance(block, doc.Section) else _block(block, console.width):
            console.print(made)
    return "".join(f"{line.rstrip()}\n" for line in target.getvalue().splitlines())


def _tighter(blocks: Sequence[doc.Block]) -> tuple[doc.Block, ...] | None:
    """Blocks of a screen with a row less of a table, else a line less of one of the longest texts.

    The headline is the last to lose one; ``None`` where there is neither.
    """
    for at, block in enumerate(blocks):
        if not isinstance(block, doc.Section):
            continue
        for table in (one for one in block.blocks if isinstance(one, doc.Table) and one.spare and one.rows):
            left = (table.fewer() if one is table else one for one in block.blocks)
            kept = replace(block, blocks=tuple(one for one in left if one is not None))
            return (*blocks[:at], *((kept,) if kept.blocks else ()), *blocks[at + 1 :])
    most = max(map(_most_lines, blocks), default=0)
    at = max((at for at, block in enumerate(blocks) if _most_lines(block) == most), default=0)
    return (*blocks[:at], _less(blocks[at], most), *blocks[at + 1 :]) if most > 1 else None


def _most_lines(block: Any) -> int:
    inside = (*getattr(block, "blocks", ()), *getattr(block, "facts", ()), *getattr(block, "below", ()))
    return max(
        [getattr(block, "lines", 0) if not isinstance(block, doc.Code | doc.Lines) else 0, *map(_most_lines, inside)]
    )


def _less(block: Any, most: int) -> Any:
    """A block with a line less of its first text that may have so many."""
    for name in ("blocks", "facts", "below"):
        held = getattr(block, name, ())
        if (at := next((at for at, one in enumerate(held) if _most_lines(one) == most), None)) is not None:
            return replace(block, **{name: (*held[:at], _less(held[at], most), *held[at + 1 :])})
    return replace(block, lines=most - 1)


def _section(section: doc.Section, width: int) -> Iterator[RenderableType]:
    yield Text(f"\n{section.title}", "bold") if section.title else Text()
    for index, block in enumerate(section.blocks):
        if isinstance(block, doc.Section):
            yield from _section(block, width)
            continue
        if index and getattr(block, "tone", "") != "soft":
            yield Text()
        yield from (Padding(made, _INDENT) for made in _block(block, width - 2))


def _block(block: doc.Block, width: int) -> Iterable[RenderableType]:
    match block:
        case doc.Headline():
            return _headline(block, width)
        case doc.Callout():
            text = _first_lines(Text(block.text), block.lines, width - len(_WARNING))
            return [_hanging(_WARNING, SEVERITY_COLORS["warning"], text)]
        case doc.Paragraph():
            return [_first_lines(Text(block.text, _TONES[block.tone]), block.lines, width)]
        case doc.Lines():
            return [Text("\n".join(block.lines), _TONES[block.tone])]
        case doc.Facts():
            return _facts(block, width)
        case doc.Code():
            return _code(block)
        case doc.Table():
            return table_lines(block, width)
        case Bars():
            return _bars(block, width)
        case doc.Tree():
            return (Text(line, overflow="fold") for line in tree_lines(block, width))
        case doc.Finding():
            return [_finding(block)]
    raise TypeError(f"no way to show a {type(block).__name__} on a terminal")


def _headline(said: doc.Headline, width: int) -> Iterator[Text]:
    above = f"{said.kind}  {said.subject}".strip()
    for line in (above,) if cell_len(above) <= width else (said.kind, said.subject):
        if line:
            yield _first_lines(Text(line, "dim"), 1, width)
    text = Text.assemble((said.word.upper(), "bold reverse"), "  " if said.word else "", (said.sentence, "bold"))
    yield _first_lines(text, said.lines, width)
    for sentence in said.below:
        yield _first_lines(Text(sentence.text, _TONES[sentence.tone]), sentence.lines, width)


def _first_lines(text: Text, most: int, width: int) -> Text:
    """The first ``most`` lines (0: all), to the end of a sentence; where they are short, two or three times as many.

    A sentence that would take with it more than half of the lines is cut.
    """
    if not most:
        return text
    wide = Console(width=width, color_system=None)
    lines = text.wrap(wide, width)
    allowed = most * (1 if width >= _LONG_LINE else 2 if 2 * width >= _LONG_LINE else 3)
    if len(lines) <= allowed:
        return Text("\n").join(lines)
    ends = [found.end() for found in _SENTENCE_END.finditer(text.plain)]
    whole = (Text.assemble(text[:end], " …").wrap(wide, width) for end in reversed(ends))
    kept = next((one for one in whole if len(one) <= allowed), ())
    if 2 * len(kept) >= allowed:
        return Text("\n").join(kept)
    last = lines[allowed - 1]
    last.rstrip()
    last.truncate(width - 1)
    return Text("\n").join([*lines[: allowed - 1], Text.assemble(last, "…")])


def _hanging(label: str, style: str, text: Text) -> RichTable:
    grid = RichTable.grid()
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(label, style), text)
    return grid


def _facts(said: doc.Facts, width: int) -> Iterator[RenderableType]:
    if said.lead:
        yield Text(said.lead)
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    grid.add_column(overflow="fold", max_width=width // 2 + 9)
    grid.add_column(overflow="fold")
    room = width - max((cell_len(fact.label) for fact in said.facts), default=0) - _GAP * 2
    for fact in said.facts:
        grid.add_row(Text(fact.label, "dim"), _first_lines(Text(fact.value), fact.lines, room))
    yield Padding(grid, _INDENT if said.lead else 0)


def _code(code: doc.Code) -> Iterator[RenderableType]:
    if code.lead:
        yield Text(code.lead)
    yield Text("\n".join(f"    {line}" for line in code.lines[: code.shown]))
    if code.shown is not None and (more := len(code.lines) - code.shown) > 0:
        yield Text(f"    ... {more} more lines {code.rest}", "dim")


def _bars(bars: Bars, width: int) -> Iterator[RenderableType]:
    yield Text.assemble(*((PART_GLYPHS[name] * count, PART_COLORS[name]) for name, count in bars.cells(width)))
    if bars.compact:
        parts = ((PART_GLYPHS[part.name], part.label, part.percent, PART_COLORS[part.name]) for part in bars.largest)
        words = [Text.assemble((glyph, color), f" {label} {percent}") for glyph, label, percent, color in parts]
        yield _first_lines(Text("   ").join(words), 2, width)
        return
    legend = RichTable.grid(padding=(0, 2, 0, 0))
    for justify in ("left", "left", "right", "right"):
        legend.add_column(justify=justify)
    for part in bars.visible:
        glyphs = Text(PART_GLYPHS[part.name] * 2, PART_COLORS[part.name])
        legend.add_row(glyphs, Text(part.label), Text(part.time), Text(part.percent))
    yield legend
    if bars.nothing:
        yield Text(bars.nothing, "dim")


def _finding(finding: doc.Finding) -> RichTable:
    body = Text.assemble((finding.severity.upper(), SEVERITY_COLORS[finding.severity]))
    if finding.bottleneck:
        body.append(f"  {finding.bottleneck}", "bold")
    body.append(f"  {finding.title}", "bold" if finding.bottleneck else "")
    body.append(f"  [{finding.rule}]\n", "dim")
    if finding.where:
        body.append(f"{finding.where}\n", "underline" if finding.bottleneck else "")
    if finding.evidence.facts:
        body.append("; ".join(f"{fact.label} {fact.value}" for fact in finding.evidence.facts) + "\n", "dim")
    for line in finding.remedy.lines:
        body.append(f"{line}\n")
    for line in finding.patch.lines:
        body.append(f"    {line}\n")
    if finding.gain:
        body.append(f"speed-up: {finding.gain}\n", "bold")
    body.rstrip()
    return _hanging(f"{finding.number:>2}. ", "", body)


def table_lines(table: doc.Table, width: int) -> Iterator[RenderableType]:
    """The table in the first layout that fits ``width`` columns, and what has to be said of the layout."""
    spared = [column.name for column in table.columns if column.optional]
    layouts = ((table, False), (table, True), (_without_optional(table), False), (_without_optional(table), True))
    for made, below in layouts:
        if (widths := _widths(made, width, below=below)) is not None:
            yield _grid(made, widths, below=below)
            break
    else:
        made = table
        yield Group(*(_in_words(table.columns, row) for row in table.rows))
    if table.blanks and any(cell.value == doc.NOT_MEASURED for row in table.rows for cell in row.cells):
        yield Text(f'{BLANK} is not measured; the reasons stand under "Not measured".', "dim")
    if len(made.columns) < len(table.columns):
        yield Text(f"A wider terminal, and the report's pages, also show: {', '.join(spared)}.", "dim")


def _without_optional(table: doc.Table) -> doc.Table:
    kept = [index for index, column in enumerate(table.columns) if not column.optional]
    rows = tuple(replace(row, cells=tuple(row.cells[index] for index in kept)) for row in table.rows)
    return replace(table, columns=tuple(table.columns[index] for index in kept), rows=rows)


def _text(table: doc.Table, column: doc.Column, cell: doc.Cell, *, below: bool) -> str:
    if table.blanks and cell.value == doc.NOT_MEASURED:
        return BLANK
    if not cell.bounds or not column.interval:
        return cell.value
    bounds = cell.bounds.replace(" to ", "–") if table.blanks else f"({cell.bounds})"
    return f"{cell.value}{chr(10) if below else ' '}{bounds}"


def _widths(table: doc.Table, width: int, *, below: bool) -> list[int] | None:
    """Widths of the columns: the widest of the words shrink until all fit; ``None`` where they cannot."""
    narrowest = _NARROWEST_COLUMN if below or table.blanks else _COMFORTABLE_COLUMN
    widths, floors = [], []
    for index, column in enumerate(table.columns):
        cells = [row.cells[index] for row in table.rows]
        lines = [line for cell in cells for line in _text(table, column, cell, below=below).split("\n")]
        head = max(map(cell_len, column.short.split("\n")))
        widest = max([head, *map(cell_len, lines)])
        whole = column.numeric or any(cell.bounds for cell in cells)
        widths.append(widest)
        floors.append(widest if whole else min(widest, max(narrowest, head)))
    room = width - _GAP * (len(widths) - 1)
    while sum(widths) > room:
        can = [index for index, floor in enumerate(floors) if widths[index] > floor]
        if not can:
            return None
        widths[max(can, key=widths.__getitem__)] -= 1
    return widths


def _grid(table: doc.Table, widths: list[int], *, below: bool) -> RichTable:
    made = RichTable(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    for column, width in zip(table.columns, widths, strict=True):
        justify = "right" if column.numeric else "left"
        made.add_column(Text(column.short, "dim"), justify=justify, width=width, overflow="fold")  # type: ignore[arg-type]
    for row in table.rows:
        texts = []
        for column, cell, width in zip(table.columns, row.cells, widths, strict=True):
            text = _text(table, column, cell, below=below)
            made_text = Text(text if table.short else _folded(text, width), _CELL_STYLES.get(cell.tone, ""))
            if table.short:
                made_text.truncate(width, overflow="ellipsis")
            texts.append(made_text)
        made.add_row(*texts, style=_ROW_STYLES.get(row.tone, ""))
    return made


def _folded(text: str, width: int) -> str:
    """``text`` with line breaks after its separators where it is wider: ``loader=packed,`` over ``prefetch=2``."""
    lines = []
    for line in text.split("\n"):
        lines.append("")
        for piece in _AFTER_SEPARATOR.split(line):
            if lines[-1] and cell_len((lines[-1] + piece).rstrip()) > width:
                lines.append("")
            lines[-1] += piece
    return "\n".join(lines)


def _in_words(columns: tuple[doc.Column, ...], row: doc.Row) -> RenderableType:
    """A row as its name and what leads, then the rest."""
    cells = list(zip(columns, row.cells, strict=True))
    first = [row.cells[0].value, *(cell.value for column, cell in cells[1:] if column.leads)]
    rest = [
        f"{column.name} {cell.text}".strip()
        for column, cell in cells[1:]
        if not column.leads and cell.value not in ("", doc.NOT_MEASURED)
    ]
    style = _ROW_STYLES.get(row.tone, "bold")
    return Group(Text(": ".join(first), style), Padding(Text("; ".join(rest) or "nothing measured"), (0, 0, 0, _GAP)))


def tree_lines(tree: doc.Tree, width: int) -> Iterator[str]:
    """One line a node with its notes below; no line is longer than ``width`` columns (40 at least)."""
    width = max(width, _NARROWEST_TREE)
    first = min(max((len(node.lead + node.cells[0]) for node in tree.nodes), default=0), max(12, width // 2 - 4))
    shares = any(node.share is not None for node in tree.nodes)
    bar_cells = _BAR_CELLS if width >= _WIDE else 0
    for node in tree.nodes:
        label, cost, percent, kind, place, notes = node.cells
        cells = [_cut(node.lead + label, first).ljust(first), cost.rjust(_COST_CELLS)]
        if shares:
            full = round(min(1.0, node.share or 0.0) * bar_cells)
            bar = " " * bar_cells if node.share is None else _FULL * full + _EMPTY * (bar_cells - full)
            cells.append(bar + percent.rjust(8))
        yield from _fitted([*cells, place, *([kind] if kind else [])], width, node.below)
        indent = node.below + "    "
        if len(indent) < width // 2:
            yield from textwrap.wrap(notes, width, initial_indent=indent, subsequent_indent=indent)


def _fitted(cells: list[str], width: int, below: str) -> Iterator[str]:
    """The cells on one line, or those that do not fit on lines of their own below."""
    current = ""
    for cell in cells:
        longer = f"{current}  {cell}" if current else cell
        if current and len(longer) > width:
            if not cell.strip():
                continue
            yield current.rstrip()
            longer = f"{below}    {cell.strip()}"
        current = _cut(longer, width)
    yield current.rstrip()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
