"""A plot inside the page: nothing of its file, no identifier that another plot has, colours that follow the theme."""

from __future__ import annotations

import re

from tests.unit.reporting.conftest import estimate, sections
from xttsbench.findings.registry import rules
from xttsbench.records.fix import FixResult
from xttsbench.records.report import Report
from xttsbench.reporting import plots
from xttsbench.reporting.document import Code, Fact, Facts, Figure, Finding, Fold, Section, Table
from xttsbench.reporting.html import inline
from xttsbench.reporting.page import Tiles, machine, page_document
from xttsbench.reporting.scene import stage
from xttsbench.reporting.words import INK


def figures(report: Report) -> dict[str, str]:
    tiles = [block for block in page_document(report).blocks if isinstance(block, Tiles) and block.kind == "figures"]
    return {fact.label: fact.value for one in tiles for fact in one.facts}


def fixed(report: Report, **given: object) -> Report:
    found = {"name": "a", "fixes": ("a",), "what": "does a", "outcome": "accepted", "why": "", **given}
    return report.model_copy(update={"fixes": (FixResult.model_validate(found),)})


def test_the_answer_comes_before_what_it_rests_on(starving) -> None:
    titles = [block.title for block in page_document(starving.report).blocks if isinstance(block, Section)]
    order = ["Where a step's time goes", "The input pipeline", "Findings", "In time"]
    assert [title for title in titles if title in order] == order
    assert titles[-1] == "Methods, distributions and raw data"


def test_the_saving_is_the_step_over_the_gain(starving) -> None:
    measured = figures(fixed(starving.report, verified_speedup=estimate(2.0), chosen=True))
    assert measured == {
        "a step now": "34.2 ms (33.2 to 35.2)",
        "after the fix": "17.1 ms (16.6 to 17.6)",
        "gain, measured": "2.00x (1.94 to 2.06)",
        "the fix": "does a",
    }
    hoped = figures(fixed(starving.report, outcome="not verified", predicted_speedup=3.0))
    assert hoped["gain, estimated only"] == "3.00x"
    assert "after the fix" not in hoped
    assert figures(starving.report)["gain, estimated only"] == "2.02x (1.96 to 2.08)"  # of the cause removed
    bare = starving.report.model_copy(update={"findings": ()})
    assert figures(bare)["gain"] == "no fix is known to be worth it"


def test_cause_line_and_next_command_stand_at_the_top(starving) -> None:
    blocks = page_document(starving.report).blocks
    first = blocks[: next(place for place, block in enumerate(blocks) if isinstance(block, Section))]
    (facts,) = [block for block in first if isinstance(block, Facts)]
    told = {fact.label: fact.value for fact in facts.facts}
    assert told["cause"] == "load_wav reads files under the interpreter lock and holds up every batch"
    assert told["your line"].startswith("my_project/data.py:42")
    (command,) = [block for block in first if isinstance(block, Code)]
    assert command.lines[0].startswith("xttsbench ")


def test_without_a_verdict_what_is_likely_is_said(starving) -> None:
    verdict = starving.report.verdict.model_copy(update={"bottleneck": "inconclusive"})
    said = page_document(starving.report.model_copy(update={"verdict": verdict})).headline
    assert said.below[0].text == "Likely all the same: waiting for input, 52.3 % of a step as measured."


def test_a_step_that_was_not_measured_says_why(empty) -> None:
    assert figures(empty.report)["a step now"].startswith("not measured: the target raised")


def test_the_machine_is_one_strip_and_what_is_emulated_says_so(starving) -> None:
    facts = machine(starving.report).facts
    assert Fact("processors", "2") in facts
    assert Fact("accelerator", "EMULATED, 15 ms per step") in facts
    assert Fact("GPU", "none") in facts


def test_plots_of_a_period_need_one(starving) -> None:
    without = starving.report.model_copy(
        update={"oscillation": starving.report.oscillation.model_copy(update={"period_steps": None})}
    )
    names = [
        {
            block.name
            for part in sections(page_document(one).blocks)
            for block in part.blocks
            if isinstance(block, Figure)
        }
        for one in (starving.report, without)
    ]
    assert names == [{"distribution", "autocorrelation", "periodogram"}, {"distribution"}]


def test_the_measures_of_oscillation_stand_once_beside_the_time_line(starving) -> None:
    blocks = page_document(starving.report, stage(*starving)).blocks
    (drawn,) = [part for part in sections(blocks) if part.title == "Steps over time"]
    (measures,) = [part for part in sections(blocks) if part.title == "All measures of oscillation"]
    assert [block for block in measures.blocks if block in drawn.blocks] == []
    assert any(isinstance(block, Facts) for block in drawn.blocks)


def test_findings_without_a_loss_and_checks_that_found_nothing_are_folded(starving) -> None:
    document = page_document(starving.report)
    parts = {part.title: part for part in sections(document.blocks)}
    assert [block.rule for block in parts["Findings"].blocks if isinstance(block, Finding)] == [
        "python-function",
        "oscillation",
    ]
    assert isinstance(parts["One finding without a loss"], Fold)
    fired = {finding.rule for finding in starving.report.findings}
    (table,) = parts[f"{len(set(rules()) - fired)} checks that found nothing"].blocks
    assert isinstance(table, Table)
    assert {row.cells[0].value for row in table.rows} == set(rules()) - fired


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
