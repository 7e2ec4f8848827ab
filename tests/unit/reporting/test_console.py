from __future__ import annotations

import re
from typing import Any

import pytest
from rich.cells import cell_len

from xttsbench.records.report import Report
from xttsbench.reporting import console
from xttsbench.reporting.document import NOT_MEASURED, Cell, Column, Document, Row, Table, View
from xttsbench.reporting.sections.report import report_document

NUMBERS = ("94.3 %", "10.6 ms", "755", "0.034", "5.71x", "faster")


def render(report: Report, **how: Any) -> str:
    return console.render(report_document(report), **({"view": View.FULL} | how))


@pytest.mark.parametrize("width", [40, 80, 120])
def test_every_line_fits_the_width(every_run, width: int) -> None:
    for name, (report, _) in every_run.items():
        widest = max(map(cell_len, render(report, width=width, color=False).splitlines()))
        assert widest <= width, name


def test_the_parts_are_a_bar_of_the_right_proportions_with_a_legend(starving) -> None:
    lines = render(starving.report, width=80, color=False).splitlines()
    bar = lines[next(i for i, line in enumerate(lines) if line.startswith("Where the time")) + 1].strip()
    assert len(bar) == 78
    assert bar.count("█") == pytest.approx(78 * 17.9 / 34.2, abs=1)
    text = "\n".join(lines)
    assert re.search(r"█ +input +17.9 ms +52.3 %", text)
    assert re.search(r"░ +unattributed +390 µs +1.2 %", text)
    assert "Nothing in: compile, transfer, CPU contention." in text


def test_findings_keep_their_order_and_say_all(starving) -> None:
    text = " ".join(render(starving.report, width=80, color=False).split())
    places = [text.index(f"[{finding.rule}]") for finding in starving.report.findings]
    assert places == sorted(places)
    for word in (
        "1. CRITICAL FIRST BOTTLENECK load_wav",
        "my_project/data.py:42, op ParallelMapDatasetV2",
        "share of all ops 91.0 %",
        "private_threadpool_size = 32",
        "measured 1.940x (1.901 to 1.979); same elements",
        "at most 1.200x (1.164 to 1.236), if that time were gone; not measured",
        "what mending oscillation gives the budget was spent before its turn",
        "3. INFO TensorFlow sees no GPU",
    ):
        assert word in text
    assert text.count("BOTTLENECK") == 2


def test_a_null_is_not_measured_with_its_reason_and_never_zero(empty) -> None:
    text = " ".join(render(empty.report, width=120, color=False).split())
    reason = "not measured: the target raised ValueError at step 0"
    for label in ("step time, mean", "step time, median", "wait and hand-over", "accelerator utilization"):
        assert f"{label} {reason}" in text
    assert not re.search(r"\b0(\.0)? (s|ms)\b", text)


def test_an_emulated_accelerator_is_never_shown_as_a_real_one(starving, eager) -> None:
    assert "accelerator utilization (EMULATED, 15 ms per step)" in render(starving.report, width=120, color=False)
    assert "accelerator utilization (real, NVIDIA RTX 4090)" in render(eager.report, width=120, color=False)


def test_the_answer_stands_below_everything_else(starving, comparing) -> None:
    for report in (starving.report, comparing.report):
        summary = render(report, width=100, color=False, view=View.SUMMARY)
        for view in (View.DETAILED, View.FULL):
            assert render(report, width=100, color=False, view=view).endswith(summary)


def test_colour_only_when_asked_for(starving, hostile) -> None:
    assert "\x1b" not in render(hostile.report, width=80, color=False)
    coloured = render(starving.report, width=80, color=True)
    assert "\x1b[" in coloured
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in bare.splitlines()] == render(starving.report, width=80, color=False).splitlines()


def test_hostile_names_stay_text(hostile) -> None:
    text = render(hostile.report, width=400, color=False)
    assert "[red]x[/red]<script>alert(1)</script> next_line" in text
    assert not set(text) & set("\x00\x07\x1b\r\u202e")


def test_the_finder_of_no_period_is_told_from_one_that_did_not_look(eager, empty) -> None:
    assert "no period at 1 %" in render(eager.report, width=120, color=False)
    assert "period not measured" in render(empty.report, width=120, color=False)


def lines(run, width: int) -> list[str]:
    return render(run.report, width=width, color=False).splitlines()


def line_of(found: list[str], name: str) -> str:
    return next(line for line in found if line.startswith(f"  {name} "))


def test_at_100_columns_an_arm_is_one_line_with_every_column(comparing) -> None:
    found = lines(comparing, 100)
    packed = line_of(found, "packed").split()
    assert " ".join(packed) == "packed 94.3 % 10.6 ms 755 452,830 91.3 % 0.034 5.71x 5.54–5.88 faster"
    baseline = line_of(found, "numpy_wav").split()
    assert " ".join(baseline) == "numpy_wav 16.5 % 60.5 ms 132 79,339 91.3 % 0.034 1 baseline"
    assert line_of(found, "tf_fast").split() == ["tf_fast", *("–",) * 7, "refused"]


@pytest.mark.parametrize("width", [40, 60, 72, 80, 100, 120])
def test_no_number_of_an_arm_is_lost_or_broken_at_any_width(comparing, width: int) -> None:
    found = lines(comparing, width)
    assert max(map(cell_len, found)) <= width
    words = " ".join(" ".join(found).split())
    for number in NUMBERS:
        assert number in words, number


def test_what_a_narrow_terminal_leaves_out_is_said(comparing) -> None:
    left_out = "A wider terminal, and the report's pages, also show: valid frames/s, padding efficiency."
    assert left_out in " ".join(" ".join(lines(comparing, 80)).split())
    assert left_out not in " ".join(" ".join(lines(comparing, 100)).split())


def test_a_very_narrow_terminal_gets_words(comparing) -> None:
    words = " ".join(" ".join(lines(comparing, 44)).split())
    assert "packed: faster utilization 94.3 % (93.4 to 95.3); step time 10.6 ms" in words
    assert "ram: ended: out of memory nothing measured" in words


def test_emulated_and_real_stand_in_the_titles(comparing) -> None:
    found = lines(comparing, 100)
    assert "loaders: EMULATED accelerator, 10 ms a step" in found
    assert "modes: THIS CPU" in found


def test_hostile_arms_stay_text(hostile_arms) -> None:
    for width in (40, 100, 400):
        text = render(hostile_arms.report, width=width, color=False)
        assert not set(text) & set("\x00\x07\x1b\r\u202e"), width
    assert "[red]x[/red]<script>alert(1)</script>" in text


@pytest.mark.parametrize("value", [NOT_MEASURED, "3"])
@pytest.mark.parametrize("blanks", [True, False])
def test_a_dash_is_explained_where_there_is_one(value: str, blanks: bool) -> None:
    table = Table((Column("a"), Column("b")), (Row((Cell("2"), Cell(value))),), blanks=blanks)
    text = console.render(Document((table,)), view=View.FULL, width=80, color=False)
    noted = blanks and value == NOT_MEASURED
    assert ("is not measured; the reasons stand" in text) is noted
    assert (console.BLANK in text) is noted
