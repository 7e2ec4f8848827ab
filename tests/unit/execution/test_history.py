"""The history of a training run on disk: appended, read back, and whole but for what a kill tore."""

from __future__ import annotations

from pathlib import Path

import pytest

from xttsbench.errors import JournalError
from xttsbench.execution import journal
from xttsbench.records.training import HistoryLine


def warned(text: str) -> HistoryLine:
    return HistoryLine(session=1, warned=text)


def test_lines_come_back_in_their_order(tmp_path: Path) -> None:
    assert journal.read_history(tmp_path) == []
    for text in ("one", "two\nlines", "größe"):
        journal.append_history(tmp_path, warned(text))
    assert [line.warned for line in journal.read_history(tmp_path)] == ["one", "two\nlines", "größe"]


def test_a_torn_line_is_left_out_and_the_next_one_stands_alone(tmp_path: Path) -> None:
    journal.append_history(tmp_path, warned("whole"))
    with (tmp_path / journal.HISTORY).open("ab") as file:
        file.write(b'{"session": 1, "war')
    assert [line.warned for line in journal.read_history(tmp_path)] == ["whole"]
    journal.append_history(tmp_path, warned("after"))
    assert [line.warned for line in journal.read_history(tmp_path)] == ["whole", "after"]


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    (tmp_path / journal.HISTORY).write_text('{"other": 1}\n')
    with pytest.raises(JournalError, match="line 1 is none of a history"):
        journal.read_history(tmp_path)


def test_a_directory_that_went_away_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot be written"):
        journal.append_history(tmp_path / "gone", warned("x"))
