"""Whether every link of the documentation leads somewhere: files, and headings in them; `make check` runs it.

Addresses on the web are not asked for, so that it takes a fraction of a second and needs no network.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[1]
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_MARKUP = re.compile(r"[^\w\- ]")


def pages(root: Path) -> list[Path]:
    """The Markdown that people read: at the top, of the documentation, and of the reference reports."""
    return sorted([*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("reports/reference/*.md")])


def broken(root: Path) -> Iterator[str]:
    """Each link that leads nowhere, as ``page: link: why``."""
    for page in pages(root):
        for link in _LINK.findall(_CODE.sub("", _FENCED.sub("", page.read_text(encoding="utf-8")))):
            if "://" in link or link.startswith("mailto:"):
                continue
            place, _, anchor = unquote(link).partition("#")
            target = (page.parent / place).resolve() if place else page
            if not target.exists():
                yield f"{page.relative_to(root)}: {link}: there is no such file"
            elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
                yield f"{page.relative_to(root)}: {link}: there is no such heading"


def anchors(text: str) -> set[str]:
    """The headings of a page as links name them."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCED.sub("", text)):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        name = _MARKUP.sub("", words.strip().lower()).replace(" ", "-")
        number = 0
        while (numbered := f"{name}-{number}" if number else name) in found:
            number += 1
        found.add(numbered)
    return found


if __name__ == "__main__":
    wrong = list(broken(ROOT))
    print("\n".join(wrong) or f"links of {len(pages(ROOT))} pages lead somewhere")
    sys.exit(1 if wrong else 0)
