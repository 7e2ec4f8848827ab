"""Links of the documentation: whether each leads somewhere, which `make check` asks, and where it leads on the site.

Addresses on the web are not asked for, so that it takes a fraction of a second and needs no network. The site is made
of `docs/`; what its pages link to beside that is put on the site too, at its path in the repository. MkDocs calls the
functions that begin with `on_`.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
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


def links(page: Path) -> Iterator[tuple[str, Path, str]]:
    """Each link of a page to a file: as it is written, the file, and the heading in it (or nothing)."""
    for link in _LINK.findall(_CODE.sub("", _FENCED.sub("", page.read_text(encoding="utf-8")))):
        if "://" not in link and not link.startswith("mailto:"):
            place, _, anchor = unquote(link).partition("#")
            yield link, (page.parent / place).resolve() if place else page, anchor


def broken(root: Path) -> Iterator[str]:
    """Each link that leads nowhere, in the repository or on the site, as ``page: link: why``."""
    on_site = {root / "docs", *(root / one for one in beside_docs(root))}
    for page in pages(root):
        for link, target, anchor in links(page):
            if not target.exists():
                yield f"{page.relative_to(root)}: {link}: there is no such file"
            elif target.is_dir() and on_site & {page, *page.parents}:
                yield f"{page.relative_to(root)}: {link}: the site has no page for a directory"
            elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
                yield f"{page.relative_to(root)}: {link}: there is no such heading"


def beside_docs(root: Path) -> list[str]:
    """What the site has from outside ``docs/``: its own pages in the navigation, and all that pages link to."""
    listed = re.findall(r": ([\w./-]+)$", (root / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    found = [root / one for one in listed if not (root / "docs" / one).exists() and (root / one).is_file()]
    for page in (*sorted(root.glob("docs/**/*.md")), *found):  # which are added to below, and looked at in their turn
        for _, target, _ in links(page) if page.suffix == ".md" else ():
            if target.is_file() and root / "docs" not in target.parents and target not in found:
                found.append(target)
    return [one.relative_to(root).as_posix() for one in found]


def on_files(files: Any, config: Any) -> None:
    """Put what lies beside ``docs/`` on the site."""
    from mkdocs.structure.files import File

    for one in beside_docs(ROOT):
        files.append(File.generated(config, one, abs_src_path=str(ROOT / one)))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A page whose links between ``docs/`` and the rest lead to where these are on the site."""
    return rewritten(markdown, page.file.src_uri, set(beside_docs(ROOT)))


def rewritten(markdown: str, page: str, beside: set[str]) -> str:
    """The text of a page at ``page`` of the site, where ``docs/`` is at the top and ``beside`` lies in it."""
    here = posixpath.dirname(page if page in beside else f"docs/{page}")

    def moved(found: re.Match[str]) -> str:
        place, mark, anchor = found[1].partition("#")
        target = posixpath.normpath(posixpath.join(here, place))
        if target not in beside and not (page in beside and target.startswith("docs/")):
            return found[0]
        to = posixpath.relpath(target.removeprefix("docs/"), posixpath.dirname(page) or ".")
        return f"]({to}{mark}{anchor})"

    return _LINK.sub(moved, markdown)


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
