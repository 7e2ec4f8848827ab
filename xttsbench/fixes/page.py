"""The table of fixes in docs/fixes.md, written from the registry (``make docs``)."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from xttsbench.fixes.registry import SPECS

_TABLE: Final = re.compile(r"^\| fix \|.*?(?=\n\n)", re.MULTILINE | re.DOTALL)


def table() -> str:
    """A row for each fix, in the order in which fixes are applied; Markdown."""
    rows = (
        f"| `{one.usage}` | {one.does} | {', '.join(f'`{rule}`' for rule in one.mends)} |" for one in SPECS.values()
    )
    return "\n".join(("| fix | what it does | findings that it mends |", "|---|---|---|", *rows))


def page(text: str) -> str:
    """The page with its table written anew."""
    return _TABLE.sub(lambda _: table(), text, count=1)


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(page(file.read_text(encoding="utf-8")), encoding="utf-8")
