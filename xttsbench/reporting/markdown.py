"""``report.md``: the report in GitHub-flavoured Markdown, with the plots beside it by relative path.

Names and messages come from outside, so each is escaped; what must be copied verbatim (commands, patches) stands in a
fence that is longer than any run of backticks in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from xttsbench.records.report import Report
from xttsbench.reporting.bar import cells, visible
from xttsbench.reporting.captions import CAPTIONS, TRAINING, captions, names
from xttsbench.reporting.palette import PART_GLYPHS
from xttsbench.reporting.rows import Line, Table
from xttsbench.reporting.sections.arms import Comparison
from xttsbench.reporting.sections.fixes import TITLE as FIXES
from xttsbench.reporting.sections.fixes import FixesText
from xttsbench.reporting.sections.report import Contents, FindingText, describe

_SPECIAL: Final = re.compile(r"([\\`*\[\]|#~!$]|(?<![^\W_])_|_(?![^\W_]))")
"""What Markdown or its extensions may act on; an underscore inside a word does nothing and stays readable."""
_BLOCK_START: Final = re.compile(r"^(\d*)([-+=.)])(?=[-+=\s]|$)")
"""A line that would begin a list, a heading or a rule: ``1. x``, ``- x``, ``---``."""
_LINK: Final = re.compile(r"\b(https?|ftp|mailto|www)([:.])", re.IGNORECASE)
_BAR_CELLS: Final = 60


def serialize(report: Report, *, plots: Collection[str] | None = None) -> str:
    """The whole of ``report.md``, ending in a newline; ``plots`` are the names of those that were drawn, or all."""
    named = captions(report)
    drawn = {name: text for name, text in named.items() if plots is None or name in plots}
    return "\n".join(_lines(describe(report), drawn)).rstrip("\n") + "\n"


def escape(text: str) -> str:
    """``text`` (one line) so that Markdown shows it as it is, in a paragraph or in a table's cell."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _SPECIAL.sub(r"\\\1", text)
    text = _LINK.sub(lambda found: f"{found[1]}&#{ord(found[2])};", text)
    return _BLOCK_START.sub(r"\1\\\2", text)


def _lines(said: Contents, plots: Mapping[str, str]) -> Iterator[str]:
    yield f"# {escape(': '.join(word for word in (said.bottleneck.upper(), said.summary) if word))}"
    yield ""
    for sentence in said.below:
        text = escape(sentence if sentence.endswith(".") else f"{sentence}.")
        yield from (f"> **{text}**" if sentence.startswith("REFUSED") else text, "")
    for warning in said.warnings:
        yield from (f"> **Warning:** {escape(warning)}", "")
    for table in said.comparisons:
        yield from _comparison(table, plots)
    if said.comparisons and said.aa:
        yield from (escape(said.aa), "")
    if said.baseline:
        yield from (f"## {escape(said.baseline)}", "")
    if said.numbers:
        yield from _pairs(("number", "estimate (95 % interval)"), said.numbers)
    if said.parts_note:
        yield from ("## Where the time of a step goes", "")
    if said.parts:
        bar = "".join(PART_GLYPHS[name] * count for name, count in cells(said.parts, _BAR_CELLS))
        yield from _fence([bar])
        rows = [(PART_GLYPHS[part.name], part.name, part.time, part.percent) for part in visible(said.parts)]
        yield from _table(("", "part", "mean per step", "share"), rows)
        if nothing := [part.name for part in said.parts if part not in visible(said.parts)]:
            yield from (f"Nothing in: {', '.join(nothing)}.", "")
    if said.parts_note:
        yield from (escape(said.parts_note), "")
    for plain_table in (said.ladder, said.arms):
        if plain_table is not None:
            yield from _titled(plain_table)
    if said.aa and not said.comparisons:
        yield from (escape(said.aa), "")
    if said.fixes is not None:
        yield from _fixes(said.fixes)
    if said.findings or said.bottleneck:
        yield from ("## Findings", "")
    for index, finding in enumerate(said.findings, start=1):
        yield from _finding(index, finding)
    if said.bottleneck and not said.findings:
        yield from ("None.", "")
    if said.in_time:
        yield from ("## In time", "")
    for line in said.in_time:
        yield from (f"{line.label.capitalize()}: {escape(line.value)}.", "")
    if said.oscillation:
        yield from _pairs(("oscillation", "value"), said.oscillation)
    if said.unmeasured:
        yield from ("## Not measured", "")
        yield from _pairs(("what", "why"), said.unmeasured)
    of_target = [name for name in plots if name in (TRAINING, *CAPTIONS)]
    if of_target:
        yield from ("## Plots of the baseline" if said.baseline else "## Plots", "")
    yield from _images(of_target, plots)
    for detail in said.details:
        yield from _titled(detail)
    yield from ("## How it was made", "")
    yield from _fence([said.command])
    yield f"{escape(said.kind)} at {escape(said.created_utc)}"


def _comparison(table: Comparison, plots: Mapping[str, str]) -> Iterator[str]:
    """The table of a group with its plots; the row of the fastest and of the baseline need no markup to be found."""
    yield from (f"## {escape(table.title)}", "")
    yield from _table(
        [column.name for column in table.columns],
        [[cell.text for cell in row.cells] for row in table.rows],
        align=["---:" if column.numeric else "---" for column in table.columns],
    )
    for note in table.notes:
        yield from (escape(note), "")
    yield from _images([name for name in names(table.slug) if name in plots], plots)


def _images(chosen: Sequence[str], captions: Mapping[str, str]) -> Iterator[str]:
    for name in chosen:
        yield from (f"![{escape(captions[name])}](plots/{name}.png)", "")


def _fixes(fixes: FixesText) -> Iterator[str]:
    yield from (f"## {FIXES}", "", escape(fixes.proposal), "")
    if fixes.table is not None:
        yield from _table(fixes.table.header, fixes.table.rows)
    if fixes.patched:
        yield from (escape(fixes.patched), "")
    if fixes.patch:
        yield from _fence(fixes.patch, "diff")
    if fixes.by_hand:
        yield from _pairs(("by hand", "what to write"), fixes.by_hand)
    if fixes.call:
        yield from ("Without editing the source:", "")
        yield from _fence(fixes.call, "python")
    if fixes.not_verified:
        yield from _pairs(("not verified", "why"), fixes.not_verified)


def _finding(index: int, finding: FindingText) -> Iterator[str]:
    limiting = ", **LIMITING**" if finding.limiting else ""
    yield from (f"### {index}. {escape(finding.title)}", "")
    yield from (f"{finding.severity}{limiting}, rule {escape(finding.rule)}", "")
    if finding.where:
        yield from (f"At {escape(finding.where)}", "")
    if finding.evidence:
        yield from _pairs(("evidence", "value"), finding.evidence)
    if finding.remedy:
        yield from ("  \n".join(escape(line.strip()) for line in finding.remedy), "")
    if finding.patch:
        yield from _fence(finding.patch)
    if finding.gain:
        yield from (f"Speed-up: {escape(finding.gain)}", "")


def _titled(table: Table) -> Iterator[str]:
    yield from (f"## {escape(table.title)}", "")
    yield from _table(table.header, table.rows)


def _pairs(header: tuple[str, str], lines: Sequence[Line]) -> Iterator[str]:
    yield from _table(header, [(line.label, line.value) for line in lines])


def _table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, align: Sequence[str] | None = None
) -> Iterator[str]:
    yield f"| {' | '.join(map(escape, header))} |"
    yield f"|{'|'.join(align or ['---'] * len(header))}|"
    for row in rows:
        yield f"| {' | '.join(map(escape, row))} |"
    yield ""


def _fence(lines: Sequence[str], language: str = "") -> Iterator[str]:
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (f"{fence}{language}", *lines, fence, "")
