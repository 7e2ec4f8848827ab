from __future__ import annotations

import pytest

from tests.unit.reporting.conftest import one
from xttsbench.reporting.document import NOT_MEASURED, Lines, Section, Table
from xttsbench.reporting.sections import arms
from xttsbench.reporting.sections.arms import result


def comparisons(report) -> tuple[Section, ...]:
    """The sections of the groups, without the noise check after them."""
    return tuple(found for found in arms.comparisons(report) if found.title)


def notes(section: Section) -> tuple[str, ...]:
    lines: tuple[str, ...] = one(section, Lines).lines
    return lines


def row(section: Section, name: str) -> dict[str, str]:
    table = one(section, Table)
    found = next(row for row in table.rows if row.cells[0].value == name)
    return {column.name: cell.text for column, cell in zip(table.columns, found.cells, strict=True)}


def test_a_row_has_every_number_with_its_interval(comparing) -> None:
    table, _ = comparisons(comparing.report)
    assert row(table, "packed") == {
        "configuration": "packed",
        "utilization": "94.3 % (93.4 to 95.3)",
        "step time": "10.6 ms (10.3 to 10.9)",
        "samples/s": "755 (732 to 777)",
        "valid frames/s": "452,830 (439,245 to 466,415)",
        "padding efficiency": "91.3 %",
        "CV": "0.034",
        "speed-up": "5.71x (5.54 to 5.88)",
        "result": "faster",
    }


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
def test_a_decision_is_never_better_than_its_arm(make_arm, status, decided, said) -> None:
    assert result(make_arm("x", 0.1, status=status, decision=decided)) == said


def test_an_arm_of_which_a_gain_is_ruled_out_is_not_called_undecided(make_arm) -> None:
    assert result(make_arm("x", 0.1, decision="undecided").model_copy(update={"gain_ruled_out": True})) == "not faster"


def test_the_notes_say_what_utilization_is_and_never_take_a_wait_for_a_device(comparing) -> None:
    emulated, real = comparisons(comparing.report)
    assert (emulated.title, real.title) == ("loaders: EMULATED accelerator, 10 ms a step", "modes: REAL device")
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


def test_an_arm_that_ended_later_keeps_what_was_measured(comparing, make_arm) -> None:
    late = make_arm("late", 0.02, status="killed: signal 9", decision="ended", blocks=3, steps=700)
    report = comparing.report.model_copy(update={"arms": (comparing.report.arms[0], late)})
    (table,) = comparisons(report)
    assert row(table, "late")["step time"] == "20.0 ms (19.4 to 20.6)"
    assert row(table, "late")["result"] == "ended: killed"
    assert "Each row: 8 processes, 1,920 steps." in " ".join(notes(table))


def test_no_groups_no_tables(every_run) -> None:
    for name in ("starving", "eager", "empty", "hostile"):
        assert comparisons(every_run[name].report) == (), name
