"""The door of the command line: interruptions, closed pipes, ``--debug``, completion, and what the help shows first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

import xttsbench
from tests.unit.cli import made
from xttsbench.cli.app import app
from xttsbench.execution import journal, run_directory
from xttsbench.workflows.explain import entries

ROOT = Path(__file__).parents[3]
COMMAND = f"{sys.executable} -m xttsbench"


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command],
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"} | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", ["list rules", "explain cacheable --json", "--help"])
def test_a_reader_that_goes_away_changes_nothing(command) -> None:
    done = shell(f"({COMMAND} {command}; echo code $? >&2) | head -c 1")
    assert (len(done.stdout), done.stderr) == (1, "code 0\n")


def test_a_closed_standard_error_leaves_the_exit_code_alone(tmp_path) -> None:
    code = tmp_path / "code"
    shell(f"({COMMAND} export {tmp_path} 2>&1; echo $? > {code}) | true")
    assert code.read_text() == "5\n"


@pytest.mark.parametrize(("arguments", "shown"), [(("--", "--debug"), False), (("--debug",), True)])
def test_debug_is_ours_only_before_the_script_s_own_arguments(leave, arguments, shown) -> None:
    left = leave("diagnose", "missing.py", *arguments)
    assert left.code == 5
    assert ("Traceback" in left.err) is shown


@pytest.fixture
def interrupted(leave, monkeypatch: pytest.MonkeyPatch):
    """``interrupted(directory, ...)``: what is said where Ctrl-C ends a command that has made these."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def run(*made: Path) -> str:
        monkeypatch.setattr("xttsbench.workflows.diagnose.diagnose", interrupt)
        monkeypatch.setattr(run_directory, "held", list(made))
        left = leave("diagnose", "mine:make")
        assert left.code == 130
        return left.err

    return run


def test_an_interruption_before_a_run_began_says_no_more_than_that(interrupted) -> None:
    assert interrupted() == "Interrupted.\n"


def test_an_interrupted_run_is_named(interrupted, tmp_path) -> None:
    directory = tmp_path / "my run"
    directory.mkdir()
    (directory / journal.TRIALS).touch()
    assert f"its report: xttsbench report '{directory}'\n" in interrupted(directory)


def test_the_help_begins_with_the_main_job_and_keeps_the_bundled_model_apart(monkeypatch, leave) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    general, bundled = leave("--help").out.split("The bundled speech model")
    listed = re.compile(r"^│ ([a-z]+) ", re.MULTILINE)
    names = listed.findall(general)
    assert names[0] == "diagnose"
    assert {*names} == {one.name for one in app.registered_commands} - {"train"} | {"service"}
    assert listed.findall(bundled) == ["train", "data"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("train sm", {"small"}),
        ("sweep --grid wo", {"workers"}),
        ("dia", {"diagnose"}),
        ("run osc", {"oscillation"}),
    ],
)
def test_a_shell_completes_commands_and_names(words, expected) -> None:
    count = len(words.split())
    done = shell(COMMAND, _XTTSBENCH_COMPLETE="complete_bash", COMP_WORDS=f"xttsbench {words}", COMP_CWORD=str(count))
    assert {*done.stdout.split()} == expected, done.stderr


def parameters(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every parameter of every command, with the command's path."""
    for one in command.params:
        yield path, one
    for name, inner in getattr(command, "commands", {}).items():
        yield from parameters(inner, *path, name)


def test_help_shows_all_that_it_says_and_takes_no_brackets_for_colours() -> None:
    every = list(parameters(made.COMMAND))
    assert len(every) > 150
    for path, one in every:
        assert Text.from_markup(said := one.help or "").plain == said, (path, one.name)


def test_the_help_of_sweep_names_every_grid() -> None:
    (grid,) = (one for path, one in parameters(made.COMMAND) if path == ("sweep",) and one.name == "grid")
    assert f"({', '.join(one.name for one in entries('grids'))})" in grid.help


def test_the_help_of_each_command_shows_an_example_of_it() -> None:
    commands = {path for path, one in parameters(made.COMMAND) if one.name == "as_json"}
    assert {("diagnose",), ("data", "make"), ("data", "verify")} < commands
    for path in commands:
        said = made.invoke(*path, "--help", plain=True)
        assert said.exit_code == 0
        assert re.search(rf"Example:\s+xttsbench {' '.join(path)} \S", said.stdout), path


def test_without_a_command_there_is_help_and_an_unknown_one_is_a_usage_error(leave) -> None:
    assert "Usage" in leave().out
    assert leave("--version").out == f"xttsbench {xttsbench.__version__}\n"
    unknown = leave("diagnoze")
    assert (unknown.code, "diagnoze" in unknown.err) == (2, True)
