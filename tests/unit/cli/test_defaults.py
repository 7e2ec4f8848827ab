"""Defaults from ``pyproject.toml``: they reach the command, the command line comes first, and slips are named."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.cli.made import invoke
from xttsbench.errors import UsageError


class ReachedError(Exception):
    """The workflow was called."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run a command in a directory with a file, and give the request that reached its workflow."""

    def workflow(request: Any, **_: Any) -> None:
        raise ReachedError(request)

    for place in ("diagnose.diagnose", "diagnose.optimize", "scenario.run", "train.train"):
        monkeypatch.setattr(f"xttsbench.workflows.{place}", workflow)
    monkeypatch.chdir(tmp_path)

    def ask(text: str, *arguments: str) -> Any:
        (tmp_path / "pyproject.toml").write_text(text)
        monkeypatch.setattr(sys, "argv", ["xttsbench", *arguments])
        result = invoke(*arguments)
        if isinstance(result.exception, ReachedError):
            return result.exception.args[0]
        if isinstance(result.exception, UsageError):
            raise result.exception
        return SimpleNamespace(code=result.exit_code, output=result.output)

    return ask


def test_a_default_reaches_the_commands_that_measure_and_a_command_s_own_comes_first(asked) -> None:
    text = '[tool.xttsbench]\nbudget = 90\naccelerator = "emulated:7"\n[tool.xttsbench.optimize]\nbudget = 120\n'
    assert (asked(text, "diagnose", "a:b").budget_s, asked(text, "diagnose", "a:b").accelerator) == (90, "emulated:7")
    assert asked(text, "optimize", "a:b").budget_s == 120
    assert asked(text, "run", "loader").accelerators == ("emulated:7",)


def test_the_command_line_comes_before_the_file(asked) -> None:
    text = "[tool.xttsbench.diagnose]\nbudget = 90\nno_verify = true\n"
    found = asked(text, "diagnose", "a:b", "--budget", "60")
    assert (found.budget_s, found.verify) == (60, False)


def test_a_general_default_is_for_what_measures(asked) -> None:
    text = '[tool.xttsbench]\naccelerator = "emulated:7"\nseed = 3\n'
    assert asked(text, "run", "loader").seed == 3
    found = asked(text, "train")
    assert (found.seed, found.accelerator) == (0, asked("", "train").accelerator)
    assert asked("[tool.xttsbench.train]\nseed = 3\n", "train").seed == 3


def test_the_report_s_command_has_what_the_file_gave(asked) -> None:
    text = '[tool.xttsbench.diagnose]\nsteps = 40\nprofile = true\nset = ["n=4", "m=x y"]\n'
    assert asked(text, "diagnose", "a:b").command == (
        "xttsbench diagnose a:b --set n=4 --set 'm=x y' --steps 40 --profile"
    )
    assert asked("[tool.xttsbench.diagnose]\nsteps = 40\n", "diagnose", "s.py", "--", "--x", "it's").command == (
        """xttsbench diagnose s.py --steps 40 -- --x 'it'"'"'s'"""
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.xttsbench]\nbuget = 3\n", "[tool.xttsbench] buget: there is no such option; did you mean 'budget'?"),
        ("[tool.xttsbench.diagnoze]\n", "no command is called 'diagnoze'; did you mean 'diagnose'?"),
        ("[tool.xttsbench.diagnose]\nresume = true\n", "[tool.xttsbench.diagnose] resume: there is no such option"),
        ("[tool.xttsbench.data]\nseed = 3\n", "[tool.xttsbench.data.COMMAND]"),
        ("[tool.xttsbench]\nbudget = 3\n", "[tool.xttsbench] budget = 3: "),
        ('[tool.xttsbench.diagnose]\nsteps = "many"\n', "[tool.xttsbench.diagnose] steps = 'many': "),
        ('[tool.xttsbench.diagnose]\nstrict = "no"\n', "give it true or false"),
        ("[tool.xttsbench.diagnose]\nsteps = true\n", "give it a value"),
        ("[tool.xttsbench.diagnose]\nsteps = [4]\n", "give it one value"),
        ("[tool]\nxttsbench = 3\n", "write it as a table"),
        ("[tool.xttsbench\n", "pyproject.toml cannot be read"),
    ],
)
def test_a_slip_is_named_with_what_may_have_been_meant(asked, text, said) -> None:
    with pytest.raises(UsageError) as error:
        asked(text, "diagnose", "a:b")
    assert said in str(error.value)
    assert re.fullmatch(r"pyproject\.toml.*([^.?]\.|\?)", str(error.value), re.DOTALL)


def test_the_help_says_where_defaults_stand_and_works_with_a_broken_file(asked) -> None:
    found = asked("[tool.xttsbench\n", "--help")
    assert found.code == 0
    assert "[tool.xttsbench.diagnose]" in found.output


def test_other_tables_are_not_ours(asked) -> None:
    assert asked("[tool.other]\nbudget = 3\n", "diagnose", "a:b").budget_s == 300
