from __future__ import annotations

from typing import Any

import pytest
from rich.cells import cell_len

from xttsbench.records.report import Report
from xttsbench.reporting import console
from xttsbench.reporting.sections.report import report_document

NUMBERS = ("94.3 %", "10.6 ms", "755", "0.034", "5.71x", "faster")


def render(report: Report, **how: Any) -> str:
    return console.render(report_document(report), **how)


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


def test_numbers_stand_under_one_another(comparing) -> None:
    found = lines(comparing, 100)
    first, second = line_of(found, "packed"), line_of(found, "tf_wav")
    assert first.index(" ms") == second.index(" ms")
    assert first.index(" 0.034") == second.index(" 0.034")


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
    assert "modes: REAL device" in found


def test_long_names_break_after_their_separators(comparing, make_arm) -> None:
    names = ("loader=numpy_wav,prefetch=2,workers=4", "loader=packed,prefetch=2,workers=4")
    effect = comparing.report.arms[1].effect
    arms = tuple(make_arm(name, 0.02, effect=effect, decision="undecided") for name in names)
    report = comparing.report.model_copy(update={"arms": arms})
    found = [line[:23].strip() for line in render(report, width=84, color=False).splitlines()]
    at = found.index("loader=packed,")
    assert found[at : at + 2] == ["loader=packed,", "prefetch=2,workers=4"]


def test_the_comparison_comes_first_and_nothing_is_said_of_what_was_not_asked(comparing) -> None:
    text = " ".join(render(comparing.report, width=120, color=False).split())
    places = [
        text.index(word)
        for word in (
            "packed is 5.71x",
            "REFUSED: tf_fast",
            "xla is 15.0x",
            "loaders: EMULATED",
            "modes: REAL",
            "Noise check (loaders: EMULATED accelerator, 10 ms a step), the baseline measured twice: 1.002x",
            "Not measured verdict: step_time_s",
        )
    ]
    assert places == sorted(places)
    for absent in ("INCONCLUSIVE", "Confidence", "Where the time", "Findings", "In time", "step time, mean"):
        assert absent not in text


def test_hostile_arms_stay_text(hostile_arms) -> None:
    for width in (40, 100, 400):
        text = render(hostile_arms.report, width=width, color=False)
        assert not set(text) & set("\x00\x07\x1b\r\u202e"), width
    assert "[red]x[/red]<script>alert(1)</script>" in text
