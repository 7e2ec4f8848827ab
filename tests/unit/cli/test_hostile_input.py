"""What a user may name, or have had from somebody else: one sentence and an exit code, at once, and nothing obeyed."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit import test_corpus
from tests.unit.cli.test_door import shell

CORPUS = test_corpus.inputs.CORPUS
LONG = "a" * 5000


@pytest.mark.parametrize(
    "command",
    [
        ("run", "{}"),
        ("sweep", "--grid", "{}"),
        ("train", "{}"),
        ("train", "--best", "{}"),
        ("compare", "{}", "{}"),
        ("diagnose", "--accelerator", "emulated:{}"),
    ],
)
@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_what_is_no_file_is_refused_at_once(
    leave: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("x.yaml") if kind == "fifo" else Path("x.yaml").symlink_to("/dev/zero")
    left = leave(*(word.format("x.yaml") for word in command))
    assert (left.code, left.err.count("\n")) == (5, 1), left.err
    assert "not a regular file" in left.err


@pytest.mark.parametrize(
    "command",
    [
        ("run", "{}.yaml"),
        ("sweep", "--grid", "./{}"),
        ("train", "{}.yaml"),
        ("train", "--best", "{}"),
        ("train", "--out", "{}"),
        ("compare", "{}", "{}"),
        ("report", "{}"),
        ("export", "{}"),
        ("diagnose", "{}.py:make"),
        ("diagnose", "--accelerator", "emulated:{}"),
        ("diagnose", "--out", "{}"),
        ("diagnose", "--data", "{}"),
        ("watch", "{}.py"),
        ("init", "{}"),
        ("data", "make", "--out", "{}"),
        ("data", "verify", "--data", "{}"),
        ("monitor", "--log", "{}", "--duration", "1"),
    ],
)
def test_a_path_that_is_too_long_is_one_sentence(
    leave: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    left = leave(*(word.format(LONG) for word in command))
    assert left.code in (2, 5), left.err[:400]
    assert "bug in xttsbench" not in left.err
    assert "Traceback" not in left.err


@pytest.mark.parametrize("limit", ["1..2ms", ".ms", "1.2.3%", "9e", "1e999s", "nan", "--1s"])
def test_a_limit_that_is_no_number_is_refused(leave: Callable, tmp_path: Path, limit: str) -> None:
    (tmp_path / "s.py").touch()
    left = leave("watch", str(tmp_path / "s.py"), "--fail-on", f"p99>{limit}")
    assert (left.code, left.err.count("\n")) == (2, 1)
    assert "use FIGURE>LIMIT" in left.err


@pytest.mark.parametrize("text", ['tool = "x"', "tool = []", "[tool]\nxttsbench = 3", "a = " + "[" * 5000])
def test_odd_defaults_are_a_usage_error_or_none(
    leave: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text(text, encoding="utf-8")
    assert leave("list", "rules").code in (0, 2)


@pytest.mark.parametrize("error", [KeyError("odd\n\x1b[2Jodd"), RecursionError("deep"), MemoryError(), ValueError("")])
def test_what_nobody_foresaw_is_one_sentence_with_its_place(
    leave: Callable, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("xttsbench.workflows.diagnose.diagnose", fails)
    left = leave("diagnose", "mine:make")
    assert (left.code, left.err.count("\n")) == (70, 1)
    assert f"this is a bug in xttsbench: {type(error).__name__}" in left.err
    assert "at xttsbench/cli/measure.py:" in left.err
    assert "\x1b" not in left.err
    assert "Traceback" in leave("diagnose", "mine:make", "--debug").err


def a_run(folder: Path, trial: str = "seed-trial") -> Path:
    folder.mkdir()
    for name, seed in (("plan.json", "report/seed-plan"), ("environment.json", "report/seed-environment")):
        (folder / name).write_bytes((CORPUS / seed).read_bytes())
    (folder / "trials.jsonl").write_bytes((CORPUS / "journal" / trial).read_bytes())
    return folder


@pytest.mark.parametrize("name", ["plots", "profile", "report.html", "trials.jsonl"])
def test_a_link_in_a_run_s_folder_is_refused_and_not_followed(leave: Callable, tmp_path: Path, name: str) -> None:
    run, outside = a_run(tmp_path / "run"), tmp_path / "outside"
    outside.mkdir()
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside)
    left = leave("report", str(run))
    assert (left.code, left.err.count("\n")) == (2, 1)
    assert f"{run / name} is a link" in left.err
    assert not any(outside.iterdir())
    assert not (run / "report.json").exists()


def test_a_stored_traceback_and_names_give_no_order_to_a_terminal(
    leave: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path / "run")
    trial = json.loads((run / "trials.jsonl").read_bytes().splitlines()[0])
    order = "\x1b]0;title\x07\x1b[2J\x9b6n\u202e"
    error = {"type": f"Value{order}Error", "message": order, "file": f"{order}.py", "line": 1}
    trial |= {"status": "raised", "cause": order, "error": error | {"traceback": f"Traceback:\n  x{order}\n"}}
    (run / "trials.jsonl").write_text(json.dumps(trial) + "\n", encoding="utf-8")
    monkeypatch.setattr("xttsbench.reporting.page._write_plots", lambda *_: {})
    left = leave("report", str(run), "--debug", "-vv")
    assert left.code == 5
    assert "Traceback:\n  x" in left.err
    assert not {*left.out, *left.err} & {"\x1b", "\x07", "\x9b", "\u202e"}


ORDERS = ("\x1b]52;c;eA==\x07", "\x1bP0\x1b\\", "\x1b[6n", "\x1bc", "\x9b2J", "\x08", "\u202e")


def test_whatever_is_printed_is_shown_and_not_obeyed() -> None:
    program = "import sys; from xttsbench.cli.app import _survive_the_terminal as s; s(str)"
    program += "; [print(one + '\\x1b[1mb') for one in sys.argv[1:]]"
    done = shell(f'{sys.executable} -c "{program}" {shlex.join(ORDERS)}')
    lines = done.stdout.splitlines()
    assert len(lines) == len(ORDERS), done.stderr
    for line in lines:
        assert line.endswith("\x1b[1mb")
        assert line.removesuffix("\x1b[1mb").isprintable()
