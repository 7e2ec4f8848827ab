"""A comparison on a terminal, in Markdown and as JUnit XML, with names that want to break them."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.conftest import verdict
from tests.unit.reporting.conftest import changed, make_arm, one, section, words
from xttsbench.records.base import Estimate
from xttsbench.records.comparison_result import ComparedPair, ComparedRun, ComparisonReport, Difference, Figures, Gate
from xttsbench.records.report import Disturbance
from xttsbench.reporting import console, markdown
from xttsbench.reporting.console import MINIMUM_WIDTH
from xttsbench.reporting.document import NOT_MEASURED, Lines, Section, Table, View
from xttsbench.reporting.sections import compare
from xttsbench.reporting.sections.compare import BLANK, comparison_document, result, to_junit

HALF = Estimate(estimate=0.5, low=0.4, high=0.6)
NASTY = "a|b<script>[red]`x`\x1b[31m\x00\ufffe\nnew & _line_"


def made(name: str = "arm", *, outcomes: tuple[str, ...] = (), **pair: Any) -> ComparisonReport:
    side = Figures(arm=name, status="ok", processes=8, step_time_s=HALF, rate_per_s=HALF, cv=0.1)
    told = {"method": "separate sessions", "effect": HALF, "decision": "slower", "evidence": 1234.5} | pair
    run = ComparedRun(
        given=name, path=name, kind="run", command="c", created_utc="2026", target="t", processes_known=True
    )
    machine = {"steal_share": 0.3, "foreign_share": 0.0, "throttled_share": None, "rounds": 2, "invalid_rounds": 1}
    noisy = changed(run, disturbance=Disturbance(**machine, sentence="30 % of the processor was stolen"))
    return ComparisonReport(
        command="xttsbench compare",
        created_utc="2026",
        target={},
        environment={},
        verdict=verdict(f"{name}: B is slower."),
        comparison=(f"{name}: slower",),
        warnings=(f"ACROSS {name}",),
        a=run,
        b=noisy,
        pairs=(ComparedPair(name=name, a=side, b=changed(side, cv=None), **told),),
        gates=tuple(
            Gate(limit="max-regression", pair=name, threshold=0.1, value=HALF, outcome=outcome, why=f"why {name}")
            for outcome in outcomes
        ),
        differences=(Difference(field=name, a=name, b="2", comparable=False),),
    )


def render(report: ComparisonReport, **how: Any) -> str:
    return console.render(comparison_document(report), **({"view": View.FULL} | how))


def serialize(report: ComparisonReport) -> str:
    return markdown.render(comparison_document(report), level=3)


OUTCOMES = ("passed", "failed", "undecided", "not measured")


def test_junit_has_a_case_for_each_gate() -> None:
    root = ElementTree.fromstring(to_junit(made(outcomes=OUTCOMES)))
    cases = root.findall("testsuite/testcase")
    assert [case[0].tag for case in cases] == ["system-out", "failure", "error", "skipped"]
    assert [root.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["4", "1", "1", "1"]
    assert cases[1].get("classname") == "xttsbench.arm"
    assert cases[1][0].get("message") == "why arm"
    assert {found.get("name") for found in root.iter("property")} == {"a", "b", "warning"}


@pytest.mark.parametrize(
    ("pair", "tag"),
    [
        ({}, "system-out"),
        ({"decision": "undecided", "why": "noisy"}, "error"),
        ({"decision": "undecided", "method": "not measured", "effect": None, "why": "died"}, "skipped"),
    ],
)
def test_without_gates_each_arm_is_a_case(pair: dict[str, Any], tag: str) -> None:
    (case,) = ElementTree.fromstring(to_junit(made(**pair))).findall("testsuite/testcase")
    assert case[0].tag == tag


@given(st.text(alphabet=st.characters(), max_size=40))
def test_junit_is_valid_whatever_an_arm_is_called(name: str) -> None:
    text = to_junit(made(f"x{name}", outcomes=("failed",)))
    ElementTree.fromstring(text.encode())
    assert not re.search("[^\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text)


def test_names_break_neither_the_terminal_nor_the_table() -> None:
    report = made(NASTY, outcomes=OUTCOMES)
    plain = render(report, width=100, color=False)
    assert "\x1b" not in plain
    assert "\x00" not in plain
    assert "[red]" in plain
    page = serialize(report)
    assert "<script>" not in page
    rows = [line for line in page.splitlines() if line.startswith("|")]
    cells = {len(re.findall(r"(?<!\\)\|", line)) for line in rows if "why" in line}
    assert cells == {5}  # four columns, whatever stands in them


@pytest.mark.parametrize("width", [20, 60, 100])
def test_the_terminal_is_kept_to(width: int) -> None:
    text = render(made(outcomes=OUTCOMES), width=width, color=False)
    assert max(map(len, text.splitlines())) <= max(width, MINIMUM_WIDTH)
    for word in ("FAIL", "0.500x", "slower", "ACROSS"):
        assert word in text


def test_what_was_not_measured_is_blank_and_what_neither_has_is_left_out() -> None:
    table = one(section(comparison_document(made()), "arm: other figures, without a verdict"), Table)
    rows = {row[0]: row[1:] for row in words(table)}
    assert rows["CV of the step time"] == ("0.100", BLANK)
    assert "memory, largest" not in rows


def test_the_answer_comes_first_and_warnings_are_in_every_output() -> None:
    page = serialize(made())
    assert page.splitlines()[0] == "### arm: B is slower."
    assert "> **Warning:** ACROSS arm" in page
    assert "NOT COMPARABLE" in page
    assert page.index("</details>") > page.index("0.500x")


def test_what_the_machine_did_stands_beside_each_side_that_says_it() -> None:
    sides = comparison_document(made()).headline.below
    assert [side.text.partition("Machine: ")[2] for side in sides] == ["", "30 % of the processor was stolen"]
    told = made()
    for text in (render(told, width=120, color=False), serialize(told)):
        assert "Machine: 30 % of the processor was stolen" in " ".join(text.split())


def comparisons(report) -> tuple[Section, ...]:
    """The sections of the groups, without the noise check after them."""
    return tuple(found for found in compare.comparisons(report) if found.title)


def notes(section: Section) -> tuple[str, ...]:
    lines: tuple[str, ...] = one(section, Lines).lines
    return lines


def row(section: Section, name: str) -> dict[str, str]:
    table = one(section, Table)
    found = next(row for row in table.rows if row.cells[0].value == name)
    return {column.name: cell.text for column, cell in zip(table.columns, found.cells, strict=True)}


def test_baseline_and_its_second_run_are_marked(comparing) -> None:
    table, _ = comparisons(comparing.report)
    assert row(table, "numpy_wav")["speed-up"] == "1"
    assert row(table, "numpy_wav")["result"] == "baseline"
    again = row(table, "numpy_wav:again")
    assert (again["speed-up"], again["result"]) == ("1.002x (0.991 to 1.013)", "baseline again")
    assert [found.tone for found in one(table, Table).rows] == [
        "baseline",
        "faster",
        "slower",
        "ended",
        "ended",
        "again",
    ]


def test_the_dead_and_the_refused_say_why_and_have_no_numbers(comparing) -> None:
    table, _ = comparisons(comparing.report)
    for name, how in (("ram", "ended: out of memory"), ("tf_fast", "refused")):
        cells = row(table, name)
        assert cells.pop("configuration") == name
        assert cells.pop("result") == how
        assert set(cells.values()) == {NOT_MEASURED}
    assert "ram ended, out of memory: the process held 7.4 GiB of 6.0 GiB" in notes(table)
    refused = "tf_fast was refused: its data are not the baseline's: batch 0, mel: row 3 (clip 12), frame 5, band 7: "
    assert any(note.startswith(refused) for note in notes(table))


@pytest.mark.parametrize(
    ("status", "decided", "said"),
    [
        ("ok", None, "not tested"),
        ("ok", "undecided", "undecided"),
        ("ok", "clearly_faster", "clearly faster"),
        ("ok", "no_difference", "no difference"),
        ("not run: the run ended before its turn", "undecided", "not run"),
        ("time_limit: 60 s", "ended", "ended: time limit"),
        (":", "ended", "ended: unknown"),
    ],
)
def test_a_decision_is_never_better_than_its_arm(status, decided, said) -> None:
    assert result(make_arm("x", 0.1, status=status, decision=decided)) == said


def test_an_arm_of_which_a_gain_is_ruled_out_is_not_called_undecided() -> None:
    assert result(changed(make_arm("x", 0.1, decision="undecided"), gain_ruled_out=True)) == "not faster"


def test_the_notes_say_what_utilization_is_and_never_take_a_wait_for_a_device(comparing) -> None:
    emulated, real = comparisons(comparing.report)
    assert (emulated.title, real.title) == ("loaders: EMULATED accelerator, 10 ms a step", "modes: THIS CPU")
    assert notes(emulated)[0] == "Utilization: emulated accelerator."
    assert notes(emulated)[1].startswith("EMULATED: a wait of known length stands in for the device's work.")
    assert notes(real)[0] == "Utilization: processor: share of the wall time inside the step."
    assert not any("EMULATED" in note for note in notes(real))
    assert "Each row: 8 processes, 1,920 steps. Intervals 95 %; CV is 1.4826 MAD / median of the step time." in notes(
        real
    )


def test_what_oscillates_is_named_once(comparing) -> None:
    emulated, real = comparisons(comparing.report)
    assert "The step time oscillates (std/mean above 0.5): numpy_wav 1.37." in notes(emulated)
    assert not any("oscillates" in note for note in notes(real))


def test_what_no_arm_has_is_a_note_and_not_a_column(comparing) -> None:
    emulated, real = comparisons(comparing.report)
    assert len(one(emulated, Table).columns) == 9
    assert [column.name for column in one(real, Table).columns] == [
        "configuration",
        "utilization",
        "step time",
        "samples/s",
        "CV",
        "speed-up",
        "result",
    ]
    assert any(
        note.startswith("Not measured in any configuration: valid frames/s, padding efficiency;")
        for note in notes(real)
    )


def test_an_arm_that_ended_later_keeps_what_was_measured(comparing) -> None:
    late = make_arm("late", 0.02, status="killed: signal 9", decision="ended", blocks=3, steps=700)
    report = changed(comparing.report, arms=(comparing.report.arms[0], late))
    (table,) = comparisons(report)
    assert row(table, "late")["step time"] == "20.0 ms (19.4 to 20.6)"
    assert row(table, "late")["result"] == "ended: killed"
    assert "Each row: 8 processes, 1,920 steps." in " ".join(notes(table))
