"""``xttsbench data`` as a user types it: processes that race, are killed, broken off or out of room, and bad input."""

from __future__ import annotations

import json
import os
import pty
import resource
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.parent import WITHOUT_TENSORFLOW

ROOT = Path(__file__).parents[2]

COMMAND = [sys.executable, "-c", WITHOUT_TENSORFLOW, "data"]


def environment(**others: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "XTTSBENCH_CACHE")}
    return kept | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"} | others


def start(*arguments: object, cwd: Path, **options: Any) -> subprocess.Popen[str]:
    others = options.pop("environment", {})
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=environment(**others),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


def run(*arguments: object, cwd: Path, **options: Any) -> tuple[int, str, str]:
    with start(*arguments, cwd=cwd, **options) as process:
        out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def made_clips(directory: Path) -> int:
    return sum(1 for _ in directory.glob(".*draft-*/wavs/*.wav"))


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def under_way(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A set of many clips in the making, of which some are written."""
    with start("make", "--out", "set", "--utterances", 20_000, "--max-s", 1, cwd=tmp_path) as process:
        wait_for(lambda: made_clips(tmp_path) > 4)
        yield process
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def test_the_record_is_all_of_standard_output(tmp_path: Path) -> None:
    command = ("make", "--utterances", 20, "--min-s", 0.3, "--max-s", 0.5, "--seed", 3, "--json")
    code, out, err = run(*command, cwd=tmp_path, environment={"XTTSBENCH_CACHE": str(tmp_path / "cache")})
    assert (code, err) == (0, "clips made: 0 of 20\nclips made: 20 of 20\n")
    record = json.loads(out)
    directory = tmp_path / "cache" / "speech-v3-20x0.3-0.5s-seed3"
    assert record["directory"] == str(directory)
    assert {name: record[name] for name in ("clips", "speakers", "seed", "sample_rate_hz")} == {
        "clips": 20,
        "speakers": 4,
        "seed": 3,
        "sample_rate_hz": 22050,
    }
    assert record["bytes"] == sum(path.stat().st_size for path in (directory / "wavs").iterdir())
    again = run(*command, cwd=tmp_path, environment={"XTTSBENCH_CACHE": str(tmp_path / "cache")})
    assert again == (0, out, "")


def test_two_at_once_leave_one_good_set(tmp_path: Path) -> None:
    command = ("make", "--out", "set", "--utterances", 24, "--max-s", 1, "--json", "--workers", 1)
    with start(*command, cwd=tmp_path) as one, start(*command, cwd=tmp_path) as other:
        outputs = [process.communicate(timeout=120) for process in (one, other)]
        assert [one.returncode, other.returncode] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
    assert names(tmp_path) == ["set"]
    assert len(names(tmp_path / "set" / "wavs")) == 24
    assert run(*command, cwd=tmp_path)[:2] == (0, outputs[0][0])


def test_a_kill_leaves_nothing_under_the_name_and_the_next_call_clears_up(
    tmp_path: Path, under_way: subprocess.Popen[str]
) -> None:
    os.kill(under_way.pid, signal.SIGKILL)  # the parent alone; its workers have to notice
    under_way.wait()
    assert not (tmp_path / "set").exists()
    assert made_clips(tmp_path)
    wait_for(lambda: not _in_group(under_way.pid))
    code, out, err = run("make", "--out", "set", "--utterances", 2, "--max-s", 1, cwd=tmp_path)
    assert (code, names(tmp_path)) == (0, ["set"]), err
    assert out.startswith("set\n2 clips, 2.0 s, 2 speakers, 22050 Hz, 0.1 MB, seed 0\n")


def test_breaking_off_leaves_nothing(tmp_path: Path, under_way: subprocess.Popen[str]) -> None:
    os.killpg(under_way.pid, signal.SIGINT)  # as a terminal does: to the workers, too
    out, err = under_way.communicate(timeout=60)
    assert (under_way.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "Interrupted; nothing half-made was left behind."
    assert "Traceback" not in err
    assert names(tmp_path) == []


def test_a_limit_on_the_size_of_files_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    for workers in (1, 2):
        command = ("make", "--out", "deep/set", "--utterances", 20, "--min-s", 2, "--max-s", 2, "--workers", workers)
        code, out, err = run(*command, cwd=tmp_path, preexec_fn=limit)
        assert (code, out) == (5, "")
        assert "set: the disk or a limit is full: about 1.8 MB are needed, " in err.splitlines()[-1]
        assert "Traceback" not in err
        assert names(tmp_path / "deep") == []


def test_on_a_terminal_a_line_counts_the_clips_without_colour(tmp_path: Path) -> None:
    shown = _on_a_terminal(tmp_path)
    assert "clips made: 6 of 6" in shown
    assert "\x1b[38;5;" not in shown
    assert shown.rstrip().endswith("6 clips, 2.6 s, 4 speakers, 22050 Hz, 0.1 MB, seed 0")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["make", "--out", "taken"], 2, "taken holds 'file' and is not a set that 'xttsbench data make' made"),
        (["import", "none", "--out", "set"], 5, "none: there is no such directory"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    cache = {"XTTSBENCH_CACHE": str(tmp_path / "cache")}
    found, out, err = run(*arguments, cwd=tmp_path, environment=cache)
    assert (found, out) == (code, ""), err
    assert words in err
    assert "Traceback" not in err
    assert names(tmp_path) == ["taken"]


def test_a_set_is_imported_and_what_was_left_out_is_listed(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    data = b"".join(struct.pack("<hh", number % 1000, -number % 1000) for number in range(16000))
    header = struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 0, b"WAVE", b"fmt ", 16, 1, 2, 16000, 64000, 4, 16, b"data", 64000
    )
    (source / "a.wav").write_bytes(header + data)
    (source / "b.wav").write_bytes(b"fLaC")
    (source / "list.csv").write_text("audio_file|text|speaker_name\na.wav|Well, then.|anna\nb.wav|Oh.|ben\n")
    command = ("import", "in", "--out", "set", "--metadata", "list.csv")
    code, out, err = run(*command, cwd=tmp_path)
    assert (code, out) == (5, "")
    reason = "is no sound file that can be read (libsndfile: Format not recognised)"
    assert f"in: 1 of 2 clips cannot be used (1 unreadable): b.wav: {reason}." in err
    code, out, err = run(*command, "--skip-unreadable", "--json", cwd=tmp_path)
    record = json.loads(out)
    assert (code, record["clips"], record["seconds"], record["forms"]) == (
        0,
        1,
        1.0,
        {"16000 Hz, 2 channels, PCM_16": 1},
    )
    assert record["skipped"] == [{"where": "b.wav", "reason": reason}]
    assert (tmp_path / "set" / "metadata.csv").read_text() == "a|Well, then.|Well, then.\n"
    (tmp_path / "set").rename(tmp_path / "first")
    code, out, err = run(*command, "--skip-unreadable", cwd=tmp_path)
    assert out.splitlines() == [
        "set",
        "1 clip, 1.0 s, 1 speaker, 22050 Hz, 0.0 MB",
        "  1 clip from 16000 Hz, 2 channels, PCM_16",
        "  1 clip left out:",
        f"    b.wav: {reason}",
    ]


def _in_group(group: int) -> list[int]:
    """Return the processes of a group that live."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found


def _on_a_terminal(directory: Path) -> str:
    """Return what a small set's making draws."""
    ours, theirs = pty.openpty()
    arguments = ["make", "--out", "a", "--utterances", "6", "--min-s", "0.3", "--max-s", "0.5"]
    shown = environment(TERM="xterm-256color")
    with subprocess.Popen(
        [*COMMAND, *arguments], cwd=directory, env=shown, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        content = b""
        while True:
            try:
                more = os.read(ours, 65536)
            except OSError:  # the other end was closed
                break
            content += more
    os.close(ours)
    assert process.returncode == 0
    return content.decode()
