"""A document as ``report.html``: one self-contained page that fetches nothing.

A plot is an element of the page: the SVG of its file without what only a file needs, in the colours of the page's
theme, so that the dark theme needs no second picture. Its text is drawn as paths, so nothing in it comes from outside
but numbers. A content security policy keeps the page from loading anything and from running any script but its own,
which are named by their hashes, whatever a name in the report may hold. The template escapes all text.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from importlib.resources import files
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from xttsbench.reporting.document import NOT_MEASURED, Block, Document, Section, View
from xttsbench.reporting.timeline import PARTS, TimeLine
from xttsbench.reporting.words import GRID, INK, PART_COLORS, SEVERITY_COLORS, SOFT, part


def render(document: Document, plots: Mapping[str, bytes], *, view: View = View.FULL) -> str:
    """The page, ending in a newline.

    A figure without a plot is left out, and so is one that the page draws.
    """
    environment = Environment(
        loader=PackageLoader("xttsbench.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.tests["a"] = lambda block, name: type(block).__name__ == name
    environment.filters["part"] = part
    drawn = _holds_a_time_line(document.blocks)
    scripts = (_text("templates/page.js"), *((_uplot(), _text("templates/timeline.js")) if drawn else ()))
    return environment.get_template("report.html.j2").render(
        headline=document.headline,
        blocks=document.shown(view, figures=plots),
        plots={name: partial(inline, name, image) for name, image in plots.items()},
        scripts=scripts,
        styles=_text("assets/uPlot.min.css") if drawn else "",
        part_names=PARTS,
        script_hashes=Markup(" ".join(f"'sha256-{_digest(script)}'" for script in scripts)),
        not_measured=NOT_MEASURED,
        part_colors=PART_COLORS,
        severity_colors=SEVERITY_COLORS,
    )


def _holds_a_time_line(blocks: Sequence[Block]) -> bool:
    return any(
        isinstance(one, TimeLine) or (isinstance(one, Section) and _holds_a_time_line(one.blocks)) for one in blocks
    )


def _text(name: str) -> Markup:
    """A script or a style sheet of this package: not from outside, so it is not escaped."""
    return Markup(files("xttsbench.reporting").joinpath(name).read_text(encoding="utf-8"))


def _uplot() -> Markup:
    """UPlot with the notice that its licence asks for in each copy."""
    return Markup(f"/*!\n{_text('assets/uPlot-LICENSE')}*/\n{_text('assets/uPlot.iife.min.js')}")


def _digest(script: str) -> str:
    return b64encode(sha256(script.encode()).digest()).decode()


_FILE_ONLY: Final = re.compile(
    r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>|<style\b.*?</style>", re.DOTALL
)
_BETWEEN: Final = re.compile(r"> +<")
_ROOT: Final = re.compile(r"<svg\b([^>]*?)(/?)>")
_VIEW: Final = re.compile(r'viewBox="[-\d. ]+"')
_IDENTIFIER: Final = re.compile(r"""(\bid="|\bxlink:href="#|url\(#)""")
_COLOR: Final = re.compile(r"\b(fill|stroke): (#[0-9a-f]{6})\b")
_THEMED: Final = {
    INK: "var(--ink)",
    "#000000": "var(--ink)",
    SOFT: "var(--soft)",
    GRID: "var(--rule)",
    "#ffffff": "var(--page)",
    "#0072b2": "var(--better)",
    "#d0d4d9": "var(--rule)",
}
"""Colour on white to what it is in both themes; the others are seen on either ground."""


def inline(name: str, svg: bytes, caption: str) -> Markup:
    """The plot as an element of the page.

    The name has lower-case letters, digits and hyphens; the caption is what a screen reader says.
    """
    text = _BETWEEN.sub("><", " ".join(_FILE_ONLY.sub("", svg.decode()).split()))
    text = _IDENTIFIER.sub(lambda found: f"{found[1].removeprefix('xlink:')}{name}-", text)
    text = _COLOR.sub(lambda found: f"{found[1]}: {_THEMED.get(found[2], found[2])}", text)
    view = _VIEW.search(text)
    root = f'<svg class="plot" role="img" aria-label="{escape(caption)}" {view[0] if view else ""}'
    return Markup(_ROOT.sub(lambda found: f"{root}{found[2]}>", text, count=1))
