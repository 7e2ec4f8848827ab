"""What is said while a run goes on: what is done and why, the time left, the verdict so far; plain lines in a file."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from xttsbench.cli.output import Lines
from xttsbench.records.trial import TrialKind, TrialSpec
from xttsbench.workflows.measure.described import described


def run(lines: Lines) -> None:
    lines.trial("the step through XLA, to see whether it is faster", 12.0, 300.0)
    lines.step("as_is", 7)
    lines.done("the step through XLA", "ok", 3.0)
    lines.status("so far: The step waits 97% of its time for data.\x1b[31m")
    lines.done("the step as one graph", "out_of_memory", 3.21)


def test_a_file_gets_plain_lines_with_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    run(Lines())
    assert capsys.readouterr().err.splitlines() == [
        "[12 s, at most 288 s left] the step through XLA, to see whether it is faster",
        "[12 s, at most 288 s left] so far: The step waits 97% of its time for data.\\x1b[31m",
        "[12 s, at most 288 s left] the step as one graph: ended as out of memory after 3.2 s",
    ]


def test_a_terminal_has_one_line_that_is_rewritten_and_fits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    run(Lines())
    written = capsys.readouterr().err
    rewritten = re.split(r"[\r\n]", written)
    assert "\r\x1b[2K[12 s, at most 288 s left] the step through XLA" in written
    assert any(line.startswith("\x1b[2K[12 s, at most 288 s left] so far: The step waits") for line in rewritten)
    assert written.count("\n") == 2  # the verdict so far, and what ended ill, stay
    assert all(len(line) < 60 + len("\x1b[2K") for line in rewritten if "to see whether" in line)


def test_who_asks_for_one_line_gets_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    run(Lines(quiet=True))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("kind", get_args(TrialKind))
def test_each_trial_says_what_it_does_and_what_for(kind: TrialKind) -> None:
    fix = "parallel-map:4" if kind in ("arm", "elements") else None
    spec = TrialSpec(trial_id="007-x", kind=kind, target="data.py:make", fix=fix)
    said = described(spec)
    assert ", to see " in said
    assert "007" not in said
    assert ("maps in parallel (4 calls)" in said) == (fix is not None)
