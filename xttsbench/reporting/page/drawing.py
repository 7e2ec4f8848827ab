"""A plot inside the page: the SVG of its file without what only a file needs, in the colours of the page's theme.

Inlined, it needs no second picture for the dark theme. Identifiers get the plot's name in front, so that those of one
plot cannot be taken for another's. Text is drawn as paths, so nothing in it comes from outside but numbers.
"""

from __future__ import annotations

import re
from typing import Final

from markupsafe import Markup, escape

from xttsbench.reporting.palette import GRID, INK, SOFT

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

    Args:
        name: of the plot: lower-case letters, digits and hyphens.
        svg: as Matplotlib wrote it.
        caption: what a screen reader says.
    """
    text = _BETWEEN.sub("><", " ".join(_FILE_ONLY.sub("", svg.decode()).split()))
    text = _IDENTIFIER.sub(lambda found: f"{found[1].removeprefix('xlink:')}{name}-", text)
    text = _COLOR.sub(lambda found: f"{found[1]}: {_THEMED.get(found[2], found[2])}", text)
    view = _VIEW.search(text)
    root = f'<svg class="plot" role="img" aria-label="{escape(caption)}" {view[0] if view else ""}'
    return Markup(_ROOT.sub(lambda found: f"{root}{found[2]}>", text, count=1))
