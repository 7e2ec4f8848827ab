"""A document in GitHub-flavoured Markdown, with its plots by relative path: ``report.md``, or a comment.

Names and messages come from outside, so each is escaped; what must be copied verbatim (commands, patches) stands in a
fence that is longer than any run of backticks in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from xttsbench.reporting import document as doc
from xttsbench.reporting.step_bar import Bars
from xttsbench.reporting.words import PART_GLYPHS

_SPECIAL: Final = re.compile(r"([\\`*\[\]|#~!$]|(?<![^\W_])_|_(?![^\W_]))")
"""Characters that Markdown or its extensions may act on; an underscore inside a word is inert and stays readable."""
_BLOCK_START: Final = re.compile(r"^(\d*)([-+=.)])(?=[-+=\s]|$)")
"""A line that would begin a list, a heading or a rule: ``1. x``, ``- x``, ``---``."""
_LINK: Final = re.compile(r"\b(https?|ftp|mailto|www)([:.])", re.IGNORECASE)
_BAR_CELLS: Final = 60


def render(
    document: doc.Document, *, plots: Collection[str] | None = None, view: doc.View = doc.View.FULL, level: int = 1
) -> str:
    """The document, ending in a newline.

    The answer comes first, then the rest, each section of it folded away. Of the plots those that are named were drawn,
    all for ``None``; the first heading has a level of 1 for a page, more for a comment.
    """
    answer, rest = document.shown(doc.View.SUMMARY), document.shown(view, figures=plots)
    blocks = (*answer, *_folds(rest)) if answer else rest
    lines = (line for block in blocks for line in _block(block, level))
    return "\n".join(lines).rstrip("\n") + "\n"


def _folds(blocks: Iterable[doc.Block]) -> Iterator[doc.Fold]:
    """Each section folded away, with what stands below it without a title; first what belongs to none."""
    title, inside = "The verdict in full", list[doc.Block]()
    for block in blocks:
        if isinstance(block, doc.Section) and block.title:
            yield doc.Fold(title, tuple(inside))
            title, inside = block.title, list(block.blocks)
        elif isinstance(block, doc.Section):
            inside += block.blocks
        else:
            inside += block.below if isinstance(block, doc.Headline) else [block]
    yield doc.Fold(title, tuple(inside))


def escape(text: str) -> str:
    """``text`` (one line) so that Markdown shows it as it is, in a paragraph or in a table's cell."""
    text = _SPECIAL.sub(r"\\\1", _entities(text))
    text = _LINK.sub(lambda found: f"{found[1]}&#{ord(found[2])};", text)
    return _BLOCK_START.sub(r"\1\\\2", text)


def _entities(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _block(block: doc.Block, level: int) -> Iterable[str]:
    match block:
        case doc.Headline():
            return _headline(block, level)
        case doc.Callout():
            return (f"> **Warning:** {escape(block.text)}", "")
        case doc.Paragraph():
            return _paragraph(block)
        case doc.Lines():
            return ("  \n".join(escape(line.strip()) for line in block.lines), "")
        case doc.Facts():
            return _facts(block)
        case doc.Code():
            return _code(block)
        case doc.Table():
            return _table(block)
        case Bars():
            return _bars(block)
        case doc.Tree():
            return _table(block.table)
        case doc.Figure():
            return (f"![{escape(block.caption)}](plots/{block.name}.png)", "")
        case doc.Finding():
            return _finding(block, level + 1)
        case doc.Section():
            return _section(block, level + 1)
    raise TypeError(f"no way to write a {type(block).__name__} in Markdown")


def _section(section: doc.Section, level: int) -> Iterator[str]:
    folds = isinstance(section, doc.Fold)
    if folds and not section.blocks:
        return
    if folds:
        yield from (f"<details><summary>{_entities(section.title)}</summary>", "")
    elif section.title:
        yield from (f"{'#' * level} {escape(section.title)}", "")
    for block in section.blocks:
        yield from _block(block, level)
    if folds:
        yield from ("</details>", "")


def _headline(said: doc.Headline, level: int) -> Iterator[str]:
    yield f"{'#' * level} {escape(': '.join(word for word in (said.word.upper(), said.sentence) if word))}"
    yield ""
    for sentence in said.below:
        text = sentence.text if sentence.text.endswith(".") else f"{sentence.text}."
        yield from _paragraph(doc.Paragraph(text, sentence.tone))
    if said.kind and said.lines:
        yield from (f"<sub>{escape(f'{said.kind} · {said.subject}'.rstrip(' ·'))}</sub>", "")


def _paragraph(said: doc.Paragraph) -> tuple[str, ...]:
    return (f"> **{escape(said.text)}**" if said.tone == "refused" else escape(said.text), "")


def _facts(said: doc.Facts) -> Iterator[str]:
    if said.lead:
        yield from (escape(said.lead), "")
    if said.header is not None:
        yield from _table(doc.table(said.header, [(fact.label, fact.value) for fact in said.facts]))
        return
    yield from (f"- **{escape(fact.label.capitalize())}:** {escape(fact.value)}" for fact in said.facts)
    yield ""


def _code(code: doc.Code) -> Iterator[str]:
    if code.lead:
        yield from (escape(code.lead), "")
    longest = max((len(run) for line in code.lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (f"{fence}{code.language}", *code.lines, fence, "")


def _table(table: doc.Table) -> Iterator[str]:
    yield _row([column.name for column in table.columns])
    yield f"|{'|'.join('---:' if column.numeric else '---' for column in table.columns)}|"
    for row in table.rows:
        yield _row([cell.text for cell in row.cells])
    yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(escape, cells))} |"


def _bars(bars: Bars) -> Iterator[str]:
    bar = "".join(PART_GLYPHS[name] * count for name, count in bars.cells(_BAR_CELLS))
    legend = [f"{PART_GLYPHS[part.name]} {part.label} {part.percent}" for part in bars.largest]
    yield from _code(doc.Code((bar, "   ".join(legend)) if bars.compact else (bar,)))
    if bars.compact:
        return
    rows = [(PART_GLYPHS[part.name], part.label, part.time, part.percent) for part in bars.visible]
    yield from _table(doc.table(("", "part", "mean per step", "share"), rows))
    if bars.nothing:
        yield from (bars.nothing, "")


def _finding(finding: doc.Finding, level: int) -> Iterator[str]:
    limiting = f", **{finding.bottleneck}**" if finding.bottleneck else ""
    yield from (f"{'#' * level} {finding.number}. {escape(finding.title)}", "")
    yield from (f"{finding.severity}{limiting}, rule {escape(finding.rule)}", "")
    if finding.where:
        yield from (f"At {escape(finding.where)}", "")
    if finding.evidence.facts:
        yield from _facts(finding.evidence)
    if finding.remedy.lines:
        yield from _block(finding.remedy, level)
    if finding.patch.lines:
        yield from _code(finding.patch)
    if finding.gain:
        yield from (f"Speed-up: {escape(finding.gain)}", "")
