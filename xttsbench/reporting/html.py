"""``report.html``: one self-contained page, without scripts and without anything to fetch.

The plots are embedded as data URIs, so that the identifiers of one SVG cannot clash with another's; a content security
policy keeps the page from loading anything, whatever a name in the report may hold.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping

from jinja2 import Environment, PackageLoader, StrictUndefined

from xttsbench.records.report import Report
from xttsbench.reporting.absent import NOT_MEASURED
from xttsbench.reporting.bar import visible, widths
from xttsbench.reporting.captions import CAPTIONS, TRAINING, captions, names
from xttsbench.reporting.palette import PART_COLORS, SEVERITY_COLORS
from xttsbench.reporting.sections.report import describe


def serialize(report: Report, plots: Mapping[str, bytes]) -> str:
    """The page, ending in a newline.

    Args:
        report: the record.
        plots: name (see :func:`~xttsbench.reporting.captions.captions`) to SVG; a plot that is not there is left out,
            and so is the attribution, which the page itself draws.
    """
    said = describe(report)
    environment = Environment(
        loader=PackageLoader("xttsbench.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    images = {
        name: (text, b64encode(plots[name]).decode())
        for name, text in captions(report).items()
        if name in plots and name != "attribution"
    }
    return environment.get_template("report.html.j2").render(
        said=said,
        bar=[(name, f"{100 * share:.3f}") for name, share in widths(said.parts)],
        visible=visible(said.parts),
        nothing=[part.name for part in said.parts if part not in visible(said.parts)],
        images_of={
            table.slug: [images[name] for name in names(table.slug) if name in images] for table in said.comparisons
        },
        images=[image for name, image in images.items() if name in (TRAINING, *CAPTIONS)],
        not_measured=NOT_MEASURED,
        part_colors=PART_COLORS,
        severity_colors=SEVERITY_COLORS,
    )
