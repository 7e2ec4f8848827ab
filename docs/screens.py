"""The screens on hand-written pages: what stored runs print on a terminal of 100 columns.

A block of code behind the comment ``<!-- screen: RUN -->`` is the screen of that run, and behind
``<!-- screen: RUN, VIEW, HEADING -->`` one section of what ``-v`` or ``-vv`` prints. ``make docs`` writes them and a
test fails where a stored one is old::

    python docs/screens.py
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from xttsbench.records.report import Report
from xttsbench.records.watch import SUMMARY_FILE, WatchSummary
from xttsbench.reporting.console import render
from xttsbench.reporting.document import Document, View
from xttsbench.reporting.sections.brief import watch_document
from xttsbench.reporting.sections.report import report_document

ROOT: Final = Path(__file__).parents[1]
WIDTH: Final = 100
_VIEWS: Final = {"-v": View.DETAILED, "-vv": View.FULL}
_MARK: Final = re.compile(
    r"^<!-- screen: (?P<run>\S+?)(?:, (?P<view>-v+), (?P<heading>[^>]+?))? -->\n+```text\n.*?^```$",
    re.MULTILINE | re.DOTALL,
)


def screen(run: str, view: str | None = None, heading: str | None = None) -> str:
    """Lines that a run of ``reports/reference`` prints, or those of one section of a larger view.

    Raises:
        ValueError: there is no such section.
    """
    shown = _VIEWS[view] if view else View.SUMMARY
    text = render(_document(ROOT / "reports" / "reference" / run), width=WIDTH, color=False, view=shown)
    if heading is None:
        return text.strip("\n") + "\n"
    found = re.search(rf"^{re.escape(heading)}.*?(?=\n\n\S|\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"{run}, {view}: no section begins with {heading!r}")
    return found[0].strip("\n") + "\n"


def _document(run: Path) -> Document:
    """The document of a run; of a watched one that of its summary."""
    if (watched := run / SUMMARY_FILE).exists():
        summary = WatchSummary.model_validate_json(watched.read_bytes())
        return watch_document(summary, f"reports/{run.name}")
    report = Report.model_validate_json((run / "report.json").read_bytes())
    return report_document(report, report.command.partition("--out ")[2].split(" ")[0] or f"reports/{run.name}")


def page(text: str) -> str:
    """The text of a page with all of its screens made anew."""

    def made(found: re.Match[str]) -> str:
        mark = found[0].partition("\n")[0]
        return f"{mark}\n\n```text\n{screen(found['run'], found['view'], found['heading'])}```"

    return _MARK.sub(made, text)


def written() -> dict[Path, str]:
    """Every page that has such a screen, and what is in it."""
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.md"))}
    return {path: page(text) for path, text in pages.items() if "<!-- screen: " in text}


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
