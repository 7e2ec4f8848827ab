"""What a document shows in which view, that its text is clean, and how a bar is divided."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.reporting.conftest import HOSTILE, changed, make_arm, make_arm_trial
from xttsbench.records.report import Report, Variant
from xttsbench.records.trial import Segment
from xttsbench.reporting.document import (
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
    Section,
    View,
    table,
)
from xttsbench.reporting.sections import groups, trials_of
from xttsbench.reporting.step_bar import Bars, Part
from xttsbench.reporting.words import PART_COLORS, part

HEAD = Headline("diagnose", "x", "input", "It waits.")


def bars(**shares: float) -> Bars:
    return Bars(tuple(Part(name, "", shares.get(name, 0.0), "", part(name)) for name in PART_COLORS))


def test_the_summary_stands_apart_and_everything_has_the_details() -> None:
    then, last = (Paragraph("a", view=view) for view in (View.DETAILED, View.FULL))
    answer = (Headline("", "", "input", "It waits."), Paragraph("b"))
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


def test_a_compact_bar_draws_no_part_that_its_legend_leaves_out() -> None:
    found = replace(bars(input=0.06, compute=0.936, host=0.004), compact=True)
    assert [name for name, _ in found.cells(98)] == [part.name for part in found.largest] == ["input", "compute"]


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


def of(report, *arms: Variant):
    return groups(changed(report, arms=arms))


def test_a_group_is_what_was_measured_together_on_one_accelerator(comparing) -> None:
    loaders, modes = groups(comparing.report)
    assert [arm.id for arm in loaders.arms] == ["numpy_wav", "packed", "tf_wav", "tf_fast", "ram", "numpy_wav:again"]
    assert (loaders.emulated, modes.emulated) == (True, False)
    assert loaders.title == "loaders: EMULATED accelerator, 10 ms a step"
    assert modes.title == "modes: THIS CPU"
    assert loaders.slug == "loaders-emulated-accelerator-10-ms-a-step"
    assert modes.slug == "modes-real-device"
    assert loaders.baseline is not None
    assert loaders.baseline.id == "numpy_wav"


def test_the_fastest_is_one_that_was_decided_to_be_faster(comparing) -> None:
    report = comparing.report
    assert groups(report)[0].fastest.id == "packed"
    quick = changed(comparing.report.arms[1], decision="undecided")
    (group,) = of(report, report.arms[0], quick)
    assert group.fastest is None
    assert [arm.id for arm in group.candidates] == ["packed"]


def test_arms_without_a_group_belong_to_none(starving) -> None:
    assert groups(starving.report) == ()


def test_names_that_are_alike_in_a_file_name_are_told_apart(comparing) -> None:
    arms = (make_arm(str(index), 0.1, group=name) for index, name in enumerate(("a b", "a/b", "a-b")))
    found = of(comparing.report, *arms)
    assert len({group.slug for group in found}) == 3
    assert found[0].slug == "a-b-emulated-accelerator-10-ms-a-step"
    assert found[1].slug == f"{found[0].slug}-2"


@given(st.text(min_size=1), st.text())
def test_a_slug_is_a_file_name_whatever_the_group_is_called(name: str, accelerator: str) -> None:
    arm = Variant(id="x", role="candidate", blocks=1, status="ok", group=name, accelerator=accelerator)
    (group,) = groups(Report.model_construct(arms=(arm,), environment={}))
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", group.slug)
    assert len(group.slug) <= 48


@pytest.mark.parametrize(("label", "found"), [("emulated, 10 ms a step", 10.0), ("emulated, 110 ms a step", 110.0)])
def test_trials_of_two_emulated_accelerators_are_told_apart(comparing, label, found) -> None:
    made = Segment(name="as_is", columns={"start_ns": (1,), "wall_ns": (1,)})
    trials = [make_arm_trial("x", block, made, emulated_ms=wait) for block in (1, 0) for wait in (10.0, 110.0)]
    labels = ("emulated, 10 ms a step", "emulated, 110 ms a step")
    every = of(comparing.report, *(make_arm("x", 0.1, accelerator=text) for text in labels))
    group = next(group for group in every if group.accelerator == label)
    picked = trials_of(group, group.arms[0], every, trials)
    assert [(trial.spec.block, trial.spec.emulated_ms) for trial in picked] == [(0, (found,)), (1, (found,))]


def test_trials_that_are_emulated_are_never_those_of_a_device(comparing) -> None:
    made = Segment(name="as_is", columns={"start_ns": (1,), "wall_ns": (1,)})
    trials = [make_arm_trial("x", 0, made), make_arm_trial("x", 0, made, emulated_ms=10.0)]
    dead = changed(make_arm_trial("x", 1, made), status="killed")
    other = make_arm_trial("x", 0, made, group="others")
    every = of(comparing.report, make_arm("x", 0.1, accelerator="real device"), make_arm("x", 0.1))
    real, emulated = (trials_of(group, group.arms[0], every, [*trials, dead, other]) for group in every)
    assert [trial.spec.emulated_ms for trial in real] == [()]
    assert [trial.spec.emulated_ms for trial in emulated] == [(10.0,)]
