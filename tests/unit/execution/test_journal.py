"""The history of a training run on disk: appended, read back, and whole but for what a kill tore."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from xttsbench.errors import JournalError
from xttsbench.execution import journal
from xttsbench.records.training import HistoryLine
from xttsbench.records.trial import TrialError


@pytest.fixture
def written(tmp_path: Path, build) -> tuple[Path, list]:
    records = [build.ladder(steps=5), build.trial("graph", number=1, status="raised", cause="no", notes=("ä\nb",))]
    for record in records:
        journal.append(tmp_path, record)
    return tmp_path, records


def lines_of(directory: Path) -> list[bytes]:
    return (directory / journal.NAME).read_bytes().splitlines()


def test_what_was_appended_is_read_back_equal_and_in_order(written) -> None:
    directory, records = written
    assert journal.read(directory) == records
    assert len(lines_of(directory)) == 2


def test_every_number_and_text_survives(tmp_path: Path, build) -> None:
    record = build.ladder(
        steps=3,
        duration_s=1 / 3,
        kwargs={"lr": 1e-4, "list": [1, "two", None]},
        emulated_ms=(0.1, 2.5),
        error=TrialError(type="E", message="line\nbreak \u2028 \x00 {"),
    )
    journal.append(tmp_path, record)
    assert journal.read(tmp_path) == [record]
    assert len(lines_of(tmp_path)) == 1


def test_a_torn_last_line_is_left_out(written) -> None:
    directory, records = written
    path = directory / journal.NAME
    whole = path.read_bytes()
    last = len(lines_of(directory)[1]) + 1
    for kept in (1, last // 2, last - 2):
        path.write_bytes(whole[: len(whole) - last + kept])
        assert journal.read(directory) == records[:1]


def test_a_last_line_that_lacks_only_its_newline_is_whole(written) -> None:
    directory, records = written
    path = directory / journal.NAME
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert journal.read(directory) == records


@pytest.mark.parametrize("torn", [b'{"schema_version": 1, "spe', b"7", b"null", b"[]", b"{}", b"\xff\xfe", b'"text"'])
def test_a_line_in_the_middle_that_is_no_trial_is_refused_with_its_number(written, torn: bytes) -> None:
    directory, _ = written
    first, second = lines_of(directory)
    (directory / journal.NAME).write_bytes(b"\n".join([first, torn, second, b""]))
    with pytest.raises(JournalError, match=r"trials\.jsonl, line 2 is not a trial of schema 2: "):
        journal.read(directory)


def test_a_field_that_a_trial_does_not_have_is_refused(written) -> None:
    directory, _ = written
    first, second = lines_of(directory)
    strange = json.dumps(json.loads(first) | {"surprise": 1}).encode()
    (directory / journal.NAME).write_bytes(b"\n".join([strange, second, b""]))
    with pytest.raises(JournalError, match="line 1"):
        journal.read(directory)


@pytest.mark.parametrize("version", [0, 3, None, "1"])
def test_another_schema_version_is_refused_by_name(written, version: object) -> None:
    directory, _ = written
    first, second = lines_of(directory)
    other = json.dumps(json.loads(second) | {"schema_version": version}).encode()
    (directory / journal.NAME).write_bytes(b"\n".join([first, other, b""]))
    with pytest.raises(JournalError, match=f"line 2 .*schema_version is {version!r}; this version reads 1") as caught:
        journal.read(directory)
    assert caught.value.exit_code == 5


def test_a_full_disk_is_one_sentence_and_costs_no_earlier_trial(
    written, build, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, records = written

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JournalError, match=r"cannot be written: No space left on device\. Free some space"):
        journal.append(directory, build.trial("input"))
    monkeypatch.undo()
    assert journal.read(directory)[:2] == records


def test_each_trial_is_forced_to_the_disk(tmp_path: Path, build, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append((tmp_path / journal.NAME).stat().st_size))
    journal.append(tmp_path, build.trial("input"))
    assert synced == [(tmp_path / journal.NAME).stat().st_size]
    assert synced[0] > 0


def test_a_directory_that_went_away(tmp_path: Path, build) -> None:
    with pytest.raises(JournalError, match="cannot be written"):
        journal.append(tmp_path / "gone", build.trial("input"))
    with pytest.raises(JournalError, match=r"No journal at .*gone.*Name a run's directory"):
        journal.read(tmp_path / "gone")


def test_an_empty_journal_has_no_trials(tmp_path: Path) -> None:
    (tmp_path / journal.NAME).write_bytes(b"\n\n")
    assert journal.read(tmp_path) == []


def test_a_torn_line_does_not_spoil_the_next_trial(build, tmp_path):
    first, second = build.trial("ladder"), build.trial("input")
    journal.append(tmp_path, first)
    with (tmp_path / journal.NAME).open("ab") as file:
        file.write(second.model_dump_json().encode()[:50])
    journal.append(tmp_path, second)
    assert journal.read(tmp_path) == [first, second]


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
