"""The picture of the README: what a stored run prints on a terminal of 100 columns, as SVG; ``make docs`` draws it.

::

    python docs/picture.py reports/reference/tutorial/faster docs/images/verdict.svg
"""

from __future__ import annotations

import re
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from xttsbench.records.report import Report
from xttsbench.reporting.console import render
from xttsbench.reporting.sections.report import report_document

WIDTH = 100


def picture(run: Path) -> str:
    """The console's rendering of a run's report, with the command that made it."""
    report = Report.model_validate_json((run / "report.json").read_bytes())
    directory = report.command.partition("--out ")[2].split(" ")[0] or str(run)
    text = render(report_document(report, directory), width=WIDTH, color=True)
    console = Console(width=WIDTH, record=True, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(text), soft_wrap=True)
    made = console.export_svg(title=report.command, unique_id="verdict")
    # Fonts from the network are not asked for: whoever looks has a fixed-width font.
    return re.sub(r"@font-face \{.*?\}\s*", "", made, flags=re.DOTALL).replace("Fira Code,", "ui-monospace, Menlo,")


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(picture(Path(sys.argv[1])), encoding="utf-8")
