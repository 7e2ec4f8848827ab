"""Files and directories that appear whole or not at all: published, broken off, raced for, left by the dead."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.files import (
    DRAFT_PREFIX,
    atomic_file,
    atomic_write,
    draft,
    first_entry,
    locked,
    megabytes,
    not_written,
    require_space,
    write_lines,
)

HOLD = """
import sys, pathlib
from xttsbench.files import draft
with draft(pathlib.Path(sys.argv[1])) as made:
    (made.directory / "half").write_text("made")
    print(made.directory, flush=True)
    sys.stdin.read()
"""


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process that holds a draft of ``tmp_path / "set"``."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "set")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_a_file_is_a_draft_beside_its_place_until_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic_write(path, b"old")
    with atomic_file(path) as file:
        file.write(b"half")
        (draft_name,) = set(names(tmp_path)) - {"file"}
        assert draft_name.startswith(DRAFT_PREFIX)
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"half"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("fault", ["write", "fsync", "replace"])
def test_a_fault_while_writing_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, fault) -> None:
    path = tmp_path / "file"
    atomic_write(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def write() -> None:
        with atomic_file(path) as file:
            file.write(b"half")
            if fault == "write":
                fail()

    if fault != "write":
        monkeypatch.setattr(os, fault, fail)
    with pytest.raises(OSError, match="No space"):
        write()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_what_is_published_has_its_name_and_the_users_rights(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "er" / "set"
    old = os.umask(0o027)
    try:
        with draft(target) as made:
            assert made.directory.parent == target.parent
            write_lines(made.directory / "file", ["who", "le\n"])
            assert not target.exists()
            assert made.publish()
    finally:
        os.umask(old)
    assert (target / "file").read_bytes() == b"whole\n"
    assert target.stat().st_mode & 0o777 == 0o750
    assert names(target.parent) == ["set"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), ValueError("x")])
def test_what_is_broken_off_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    (tmp_path / "here").mkdir()

    def broken_off() -> None:
        with draft(tmp_path / "here" / "deep" / "er" / "set") as made:
            (made.directory / "inner").mkdir()
            (made.directory / "inner" / "file").touch()
            raise error

    with pytest.raises(type(error)):
        broken_off()
    assert names(tmp_path / "here" / "deep" / "er") == []


def test_a_draft_that_is_not_published_is_removed(tmp_path: Path) -> None:
    with draft(tmp_path / "set"):
        pass
    assert names(tmp_path) == []


def test_an_empty_directory_is_replaced_and_a_full_one_is_not(tmp_path: Path) -> None:
    target = tmp_path / "set"
    target.mkdir()
    with draft(target) as made:
        (made.directory / "a").touch()
        assert made.publish()
    with draft(target) as made:
        (made.directory / "b").touch()
        assert not made.publish()
    assert (names(tmp_path), names(target)) == (["set"], ["a"])


def test_a_living_draft_is_left_alone_and_a_dead_one_removed(tmp_path, holder) -> None:
    process, directory = holder
    with draft(tmp_path / "set"):
        assert names(directory) == ["half"]
    with draft(tmp_path / "other"):
        assert names(directory) == ["half"]
    process.send_signal(signal.SIGKILL)
    process.wait()
    with draft(tmp_path / "other"):
        assert names(directory) == ["half"]  # of another name, and not ours to remove
    with draft(tmp_path / "set"):
        assert not directory.exists()


def test_a_link_in_place_of_a_draft_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (tmp_path / ".set.draft-000").symlink_to(tmp_path / "precious")
    with draft(tmp_path / "set") as made:
        made.publish()
    assert names(tmp_path / "precious") == ["file"]


def test_a_long_name_is_no_matter(tmp_path: Path) -> None:
    target = tmp_path / ("ü" * 127)
    with draft(target) as made:
        assert made.publish()
    assert target.is_dir()


def test_where_nothing_can_be_made_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(UsageError, match=r"set cannot be made \(Not a directory\); name another"),
        draft(tmp_path / "file" / "in" / "set"),
    ):
        pass


def test_a_place_is_empty_or_says_what_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_entry(tmp_path) is first_entry(tmp_path / "none") is None
    (tmp_path / "file").touch()
    assert first_entry(tmp_path) == "file"
    with pytest.raises(UsageError, match="file is a file; name a directory"):
        first_entry(tmp_path / "file")
    (tmp_path / "disk").mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda _: True)
    with pytest.raises(UsageError, match="disk is a mount point"):
        first_entry(tmp_path / "disk")


def test_room_is_asked_for_before_work_is_spent(tmp_path: Path) -> None:
    require_space(tmp_path / "not" / "yet", 1000)
    with pytest.raises(InvalidInputError, match=r"not/yet: the disk is too full: about 1,000,000.00 GB are needed"):
        require_space(tmp_path / "not" / "yet", 10**15)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_called_that_with_what_was_needed(tmp_path: Path, code: int) -> None:
    message = str(not_written(OSError(code, "x"), tmp_path / "set", 62_700_000))
    assert "the disk or a limit is full: about 62.7 MB are needed" in message
    assert "nothing was left behind" in message


def test_other_errors_keep_their_reason(tmp_path: Path) -> None:
    assert "cannot be written (Read-only)" in str(not_written(OSError(errno.EROFS, "Read-only"), tmp_path, 1))


def test_sizes_for_people() -> None:
    assert [megabytes(size) for size in (0, 1_500_000, 2_000_000_000)] == ["0.0 MB", "1.5 MB", "2.00 GB"]


def test_a_lock_whose_directory_its_holder_removed_is_taken_in_a_new_one(tmp_path: Path) -> None:
    directory, holder, waited = tmp_path / "held", ExitStack(), []
    holder.enter_context(locked(directory, waited.append))

    def end_the_holder() -> None:
        waited.append(directory)
        shutil.rmtree(directory)
        holder.close()

    with locked(directory, end_the_holder):
        assert directory.is_dir()
        assert list(directory.iterdir()) != []
    assert waited == [directory]
