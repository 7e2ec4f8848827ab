"""A plot inside the page: nothing of its file, no identifier that another plot has, colours that follow the theme."""

from __future__ import annotations

import re

from xttsbench.reporting import plots
from xttsbench.reporting.html import inline
from xttsbench.reporting.palette import INK
from xttsbench.reporting.scene import stage

DRAWN = (
    b'<?xml version="1.0"?>\n<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN"\n "http://www.w3.org/x.dtd">\n'
    b'<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="648pt" viewBox="0 0 648 72" version="1.1">\n'
    b"<metadata><rdf:RDF>x</rdf:RDF></metadata><!-- evil --><style>*{}</style>\n"
    b'<path id="m1" clip-path="url(#p1)" style="fill: #1b1f24; stroke: #cc79a7"/><use xlink:href="#m1"/>\n</svg>\n'
)


def test_what_only_a_file_needs_is_gone_and_identifiers_are_its_own() -> None:
    found = inline("arms-x", DRAWN, 'A "caption" & <b>')
    assert found == (
        '<svg class="plot" role="img" aria-label="A &#34;caption&#34; &amp; &lt;b&gt;" viewBox="0 0 648 72">'
        '<path id="arms-x-m1" clip-path="url(#arms-x-p1)" style="fill: var(--ink); stroke: #cc79a7"/>'
        '<use href="#arms-x-m1"/></svg>'
    )


def test_a_real_plot_has_every_identifier_that_it_names_and_no_ink_of_one_theme(starving) -> None:
    drawn = inline("distribution", plots.draw_one("distribution", stage(*starving)).svg, "Distribution")
    identifiers = set(re.findall(r'id="([^"]+)"', drawn))
    named = set(re.findall(r'(?:href="#|url\(#)([^")]+)', drawn))
    assert named
    assert named <= identifiers
    assert all(name.startswith("distribution-") for name in identifiers)
    assert INK not in drawn
    assert "var(--ink)" in drawn
    assert not re.search(r"xmlns|xlink|<!|<\?|http", drawn)
