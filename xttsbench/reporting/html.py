"""A document as ``report.html``: one self-contained page that fetches nothing.

The plots are elements of the page (:mod:`xttsbench.reporting.page.drawing`). A content security
policy keeps the page from loading anything and from running any script but its own, which are named by their hashes,
whatever a name in the report may hold. The template escapes all text.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from xttsbench.reporting.document import NOT_MEASURED, Block, Document, Section, View
from xttsbench.reporting.page.drawing import inline
from xttsbench.reporting.page.timeline import PARTS, TimeLine
from xttsbench.reporting.palette import PART_COLORS, SEVERITY_COLORS
from xttsbench.reporting.words import part


def render(document: Document, plots: Mapping[str, bytes], *, view: View = View.FULL) -> str:
    """The page, ending in a newline.

    Args:
        document: what to say.
        plots: name of a figure to SVG; a figure that is not there is left out, and so is one that the page draws.
        view: how much of it to show.
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
