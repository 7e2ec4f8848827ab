from __future__ import annotations

import html
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.unit.reporting.conftest import one
from xttsbench.records.report import Report
from xttsbench.reporting.console import MOST_LINES
from xttsbench.reporting.document import Facts
from xttsbench.reporting.markdown import escape, render
from xttsbench.reporting.sections import unmeasured
from xttsbench.reporting.sections.naming import speaker
from xttsbench.reporting.sections.report import report_document
from xttsbench.reporting.words import plain

_PARSER = MarkdownIt("commonmark").enable("table")


def serialize(report: Report, **how: Any) -> str:
    return render(report_document(report), **how)


def _words(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def test_every_finding_and_every_reason_is_in_it(every_run) -> None:
    for name, (report, _) in every_run.items():
        words = _words(_PARSER.render(serialize(report)))
        for finding in report.findings:
            assert plain(finding.title) in words, name
            assert finding.rule in words, name
        for fact in (fact for found in unmeasured(report) for fact in one(found, Facts).facts):
            assert speaker(report)(f"{fact.label} {fact.value}") in words, name


def test_the_residual_and_the_plots_are_shown(starving) -> None:
    text = serialize(starving.report)
    assert "| ░ | unattributed | 390 µs | 1.2 % |" in text
    assert "](plots/timeline.png)" in text
    assert "](plots/timeline.png)" not in serialize(starving.report, plots=("distribution",))


def test_the_answer_fits_a_screen_and_all_else_is_folded_away(every_run) -> None:
    for name, (report, _) in every_run.items():
        answer, _, rest = serialize(report).partition("<details>")
        assert len([line for line in answer.splitlines() if line]) <= MOST_LINES, name
        assert rest.count("<details>") + 1 == rest.count("</details>"), name
        assert not [
            block for block in re.split("</?details>", rest)[1::2] if block.strip() and "<summary>" not in block
        ]


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_in_a_cell_comes_out_as_it_went_in(text: str) -> None:
    shown = plain(text)
    rendered = _PARSER.render(f"| head |\n|---|\n| {escape(shown)} |\n")
    cell = re.search(r"<td>(.*?)</td>", rendered, re.DOTALL)
    assert cell is not None
    assert "<" not in cell[1]
    assert html.unescape(cell[1]).strip() == shown


@given(st.text(st.characters(codec="utf-8", categories=("P", "S", "N", "Zs")), min_size=1))
def test_any_text_in_a_paragraph_comes_out_as_it_went_in(text: str) -> None:
    shown = plain(text)
    rendered = _PARSER.render(escape(shown)).strip()
    assert html.unescape(re.sub(r"^<p>|</p>$", "", rendered)).strip() == shown


@pytest.mark.parametrize(("name", "cells"), [("hostile", {2, 4, 5, 6}), ("hostile arms", {2, 5, 7, 9})])
def test_hostile_names_make_no_markup_and_break_no_table(every_run, name: str, cells: set[int]) -> None:
    rendered = _PARSER.render(serialize(every_run[name].report))
    assert "<script" not in rendered
    assert "<em>" not in rendered
    for row in re.findall(r"<tr>(.*?)</tr>", rendered, re.DOTALL):
        assert len(re.findall("<t[dh]", row)) in cells


def test_a_fence_in_a_patch_does_not_end_the_fence(hostile) -> None:
    blocks = [token.content for token in _PARSER.parse(serialize(hostile.report)) if token.type == "fence"]
    assert any(block.startswith("``````\nevil") for block in blocks)
