"""A report as a document: blocks of plain words in the order in which a reader wants them, before any markup.

It is built once (:mod:`xttsbench.reporting.sections`) and shown by visitors: :mod:`~xttsbench.reporting.console`,
:mod:`~xttsbench.reporting.markdown` and :mod:`~xttsbench.reporting.page`. Each block says from which view on it is
shown. Whatever text goes into a block loses its control characters here, so a builder quotes names and messages as
they come, and a visitor escapes for its own markup alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Final, Literal

from xttsbench.records.report import Severity
from xttsbench.reporting.words import plain, plain_lines

NOT_MEASURED: Final = "not measured"
Tone = Literal["", "soft", "strong", "refused"]


class View(IntEnum):
    """Level of detail."""

    SUMMARY = 1  # The answer on one screen: what limits the step, by how much, what to do, what that gives
    DETAILED = 2  # What stands behind it: findings, fixes, experiments, the pipeline
    FULL = 3  # Everything, for who wants to check; on pages with the plots


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Base of whatever holds text: control characters and terminal escapes are gone, line breaks become spaces."""

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, _clean(getattr(self, each.name)))


@dataclass(frozen=True, slots=True)
class Block(Cleaned):
    """A part of a document, shown from ``view`` on."""

    view: View = field(default=View.DETAILED, kw_only=True)


@dataclass(frozen=True, slots=True)
class Fact(Cleaned):
    """A label and its value, of which a terminal shows so many ``lines`` at most (0: all)."""

    label: str
    value: str
    lines: int = 0


@dataclass(frozen=True, slots=True)
class Paragraph(Block):
    """A sentence or a few; a ``soft`` one belongs to what stands before it.

    A terminal shows so many ``lines`` of it at most (0: all).
    """

    text: str
    tone: Tone = ""
    lines: int = 0


@dataclass(frozen=True, slots=True)
class Headline(Block):
    """The first thing that is read: ``word`` (the bottleneck; empty in a comparison), sentence, what qualifies it.

    Above it stands what was measured: ``kind`` and ``subject``. A terminal shows so many ``lines`` of the sentence at
    most (0: all). ``name`` is the bottleneck as the records have it, which has a colour.
    """

    kind: str
    subject: str
    word: str
    sentence: str
    below: tuple[Paragraph, ...] = ()
    lines: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class Callout(Block):
    """A warning about the report as a whole, of which a terminal shows so many ``lines`` at most (0: all)."""

    text: str
    lines: int = 0


@dataclass(frozen=True, slots=True)
class Lines(Block):
    """Lines that stay lines, with their indentation, such as notes below a table."""

    lines: tuple[str, ...]
    tone: Tone = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", _lines(self.lines))


@dataclass(frozen=True, slots=True)
class Facts(Block):
    """Key figures: labels with values; without ``header`` they read as sentences. ``lead`` introduces them.

    ``soft`` ones belong to what stands before them.
    """

    facts: tuple[Fact, ...]
    header: tuple[str, str] | None = None
    lead: str = ""
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Code(Block):
    """Lines to be copied as they are; ``lead`` introduces them.

    A terminal shows the first ``shown`` of them, and says with ``rest`` where the others are.
    """

    lines: tuple[str, ...]
    language: str = ""
    lead: str = ""
    shown: int | None = None
    rest: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", _lines(self.lines))


@dataclass(frozen=True, slots=True)
class Cell(Cleaned):
    """A value with its interval, both as text; ``share`` (0..1) may be drawn as a bar."""

    value: str
    bounds: str = ""
    share: float | None = None
    tone: Literal["", "strong", "warning", "critical"] = ""

    @property
    def text(self) -> str:
        """Both in one line."""
        return f"{self.value} ({self.bounds})" if self.bounds else self.value


@dataclass(frozen=True, slots=True)
class Column(Cleaned):
    """A column's head.

    Attributes:
        short: for terminals; may have two lines.
        numeric: numbers, which stand under one another and are never broken.
        interval: whether a terminal shows the intervals of its cells.
        optional: whether a narrow terminal leaves it out.
        leads: whether it comes first where a terminal has room for lines of words only.
    """

    name: str
    short: str = ""
    numeric: bool = False
    interval: bool = True
    optional: bool = False
    leads: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", plain(self.name))
        object.__setattr__(self, "short", self.short or self.name)


@dataclass(frozen=True, slots=True)
class Row(Cleaned):
    """A row of a table; ``tone``: ``baseline``, ``again``, ``faster``, ``slower``, ``ended``, ``plain`` or nothing."""

    cells: tuple[Cell, ...]
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Table(Block):
    """Every row is as long as ``columns``.

    A terminal has hardly room for one with ``blanks``: a dash stands for what was not measured. If it is ``short``,
    words that are too long for their column are cut there, and not folded. Of a ``spare`` one a screen shows as many
    rows as it has room for, one at least.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    blanks: bool = False
    short: bool = False
    spare: bool = False
    hidden: int = 0

    def fewer(self) -> Table | None:
        """The table without its last row, which its head tells of; ``None`` where it has one row alone."""
        if len(self.rows) < 2:
            return None
        first = self.columns[0]
        hidden = self.hidden + 1
        head = Column(first.name.partition(" (")[0] + f" ({hidden} more with -v)", optional=first.optional)
        return replace(self, columns=(head, *self.columns[1:]), rows=self.rows[:-1], hidden=hidden)


@dataclass(frozen=True, slots=True)
class Node(Cleaned):
    """A line of a tree: what is drawn before its cells (``lead``) and goes on below it, and its share of the whole."""

    lead: str
    below: str
    depth: int
    cells: tuple[str, ...]
    share: float | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", tuple(map(plain, self.cells)))  # the drawing keeps its blanks


@dataclass(frozen=True, slots=True)
class Tree(Block):
    """Nodes from the root on: label, cost, share of it, what kind of work it is, place, notes."""

    header: tuple[str, ...]
    nodes: tuple[Node, ...]

    @property
    def table(self) -> Table:
        """For pages: how deep a node lies is shown by marks before it."""
        return table(self.header, [("› " * node.depth + node.cells[0], *node.cells[1:]) for node in self.nodes])


@dataclass(frozen=True, slots=True)
class Figure(Block):
    """A plot of that name.

    ``table`` has its data, on a page, where no table beside it has them.
    """

    name: str
    caption: str
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class Finding(Block):
    """Something that a rule saw; ``gain`` is what the remedy is worth, as far as it is known.

    ``bottleneck`` is its mark, with its place among those that limit the step; empty where it does not.
    """

    number: int
    severity: Severity
    bottleneck: str
    title: str
    rule: str
    where: str
    evidence: Facts
    remedy: Lines
    patch: Code
    gain: str


@dataclass(frozen=True, slots=True)
class Section(Block):
    """Blocks under a heading; it is not there where none of them is shown."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Fold(Section):
    """A section that pages fold away."""


@dataclass(frozen=True, slots=True)
class Document:
    """Report as blocks in order: everything (``blocks``), and the answer alone (``summary``), which is shown whole."""

    blocks: tuple[Block, ...]
    summary: tuple[Block, ...] = ()

    @property
    def headline(self) -> Headline:
        """The first block."""
        return next(block for block in self.blocks if isinstance(block, Headline))

    @property
    def line(self) -> str:
        """The answer in one line."""
        said = next((block for block in self.summary if isinstance(block, Headline)), self.headline)
        return ": ".join(word for word in (said.word.upper(), said.sentence) if word)

    def shown(self, view: View, *, figures: Collection[str] | None = ()) -> tuple[Block, ...]:
        """The blocks of a view, in order; sections without a block are left out.

        Of the plots those that are named are there; ``None`` is for all.
        """
        if view is View.SUMMARY:
            return tuple(_shown(self.summary, View.FULL, figures))
        return tuple(_shown(self.blocks, view, figures))


def numeric(*names: str) -> tuple[Column, ...]:
    """Columns of numbers."""
    return tuple(Column(name, numeric=True) for name in names)


def table(header: Iterable[str | Column], rows: Iterable[Sequence[object]], *, view: View = View.DETAILED) -> Table:
    """A table from cells and words; a column that is given as a string is one of words."""
    columns = tuple(Column(one) if isinstance(one, str) else one for one in header)
    made = (tuple(one if isinstance(one, Cell) else Cell(str(one)) for one in row) for row in rows)
    return Table(columns, tuple(map(Row, made)), view=view)


def folded(title: str, header: Iterable[str], rows: Sequence[Sequence[object]]) -> Fold:
    """A table of the full view; without rows an empty section, which is not shown."""
    return Fold(title, (table(header, rows, view=View.FULL),) if rows else ())


def _shown(blocks: Iterable[Block], view: View, figures: Collection[str] | None) -> Iterable[Block]:
    for block in blocks:
        if block.view > view or (isinstance(block, Figure) and figures is not None and block.name not in figures):
            continue
        if isinstance(block, Lines) and not block.lines:
            continue
        if not isinstance(block, Section):
            yield block
        elif inner := tuple(_shown(block.blocks, view, figures)):
            yield replace(block, blocks=inner)


def _lines(lines: tuple[str, ...]) -> tuple[str, ...]:
    return plain_lines("\n".join(lines)) if any(line.strip() for line in lines) else ()


def _clean(value: object) -> object:
    if isinstance(value, str):
        return plain(value)
    return tuple(map(_clean, value)) if isinstance(value, tuple) else value
