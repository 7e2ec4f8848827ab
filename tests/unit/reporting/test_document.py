"""What a document shows in which view, that its text is clean, and how a bar is divided."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.reporting.conftest import HOSTILE
from xttsbench.reporting.document import (
    Bars,
    Callout,
    Code,
    Document,
    Fact,
    Facts,
    Figure,
    Fold,
    Headline,
    Lines,
    Paragraph,
    Part,
    Section,
    View,
    table,
)
from xttsbench.reporting.palette import PART_COLORS

HEAD = Headline("diagnose", "x", "input", "It waits.", view=View.SUMMARY)


def bars(**shares: float) -> Bars:
    return Bars(tuple(Part(name, "", shares.get(name, 0.0), "") for name in PART_COLORS))


def test_the_summary_stands_apart_and_everything_has_the_details() -> None:
    then, last = (Paragraph("a", view=view) for view in (View.DETAILED, View.FULL))
    answer = (Headline("", "", "input", "It waits.", view=View.SUMMARY), Paragraph("b", view=View.SUMMARY))
    document = Document((HEAD, then, last), answer)
    assert document.shown(View.SUMMARY) == answer
    assert document.shown(View.DETAILED) == (HEAD, then)
    assert document.shown(View.FULL) == document.blocks
    assert document.line == "INPUT: It waits."
    assert document.headline is HEAD


def test_a_section_without_anything_to_show_is_left_out() -> None:
    figure, text = Figure("timeline", "Time", view=View.FULL), Paragraph("text", view=View.FULL)
    document = Document((HEAD, Section("a", (figure, Fold("b", (text,)))), Section("c", (Lines(()),))))
    assert document.shown(View.DETAILED) == (HEAD,)
    (_, alone) = document.shown(View.FULL, figures=())
    assert alone == Section("a", (Fold("b", (text,)),))
    (_, both) = document.shown(View.FULL, figures=None)
    assert both.blocks == (figure, Fold("b", (text,)))


def test_text_from_outside_is_clean_in_every_block() -> None:
    made = (
        Headline(HOSTILE, HOSTILE, HOSTILE, HOSTILE, (Paragraph(HOSTILE),)),
        Callout(HOSTILE),
        Facts((Fact(HOSTILE, HOSTILE),), (HOSTILE, HOSTILE), HOSTILE),
        table([HOSTILE], [[HOSTILE]]),
        Section(HOSTILE, ()),
        Figure(HOSTILE, HOSTILE),
    )
    assert not {unicodedata.category(character) for character in repr(made)} & {"Cc", "Cf"}
    assert "\\x1b" not in repr(made)
    assert "\\n" not in repr(made)


def test_lines_and_code_keep_their_lines_and_indentation() -> None:
    assert Lines(("a:\n  b\x1b[31m", "c")).lines == ("a:", "  b", "c")
    assert Code(("def f():\n\treturn\x00",)).lines == ("def f():", "    return")
    assert (Lines(("",)).lines, Code(()).lines) == ((), ())


def test_the_residual_is_always_listed_and_nothing_is_not() -> None:
    found = bars(input=0.6, compute=0.4)
    assert [part.name for part in found.visible] == ["input", "compute", "residual"]
    assert found.nothing == "Nothing in: launch overhead, compile, host work, transfer, CPU contention."


def test_a_negative_residual_takes_no_width() -> None:
    found = bars(dispatch=0.84, compute=0.21, residual=-0.05)
    assert dict(found.widths) == pytest.approx({"dispatch": 0.8, "compute": 0.2})


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=8), st.integers(1, 200))
def test_the_cells_fill_the_bar_and_none_is_a_cell_off_its_share(shares: list[float], width: int) -> None:
    drawn = bars(**dict(zip(PART_COLORS, shares, strict=False)))
    counts = dict(drawn.cells(width))
    assert sum(counts.values()) == width
    for name, share in drawn.widths:
        assert abs(counts.get(name, 0) - share * width) < 1
