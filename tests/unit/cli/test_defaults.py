"""Defaults from ``pyproject.toml``: they reach the command, the command line comes after them, and slips are named."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from xttsbench.cli import main


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command in a directory with a file, and give the request that reached its workflow."""
    reached: list[Any] = []

    def workflow(request: Any, **_: Any) -> None:
        reached.append(request)
        raise SystemExit(0)

    for place in ("diagnose.diagnose", "diagnose.optimize", "scenario.run", "train.train"):
        monkeypatch.setattr(f"xttsbench.workflows.{place}", workflow)
    monkeypatch.chdir(tmp_path)

    def ask(text: str, *arguments: str) -> Any:
        reached.clear()
        (tmp_path / "pyproject.toml").write_text(text)
        monkeypatch.setattr(sys, "argv", ["xttsbench", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return reached[0] if reached else SimpleNamespace(code=ended.value.code, output=said.out, error=said.err)

    return ask


def test_a_default_reaches_the_commands_that_measure_and_a_command_s_own_comes_first(asked) -> None:
    text = '[tool.xttsbench]\nbudget = 90\naccelerator = "emulated:7"\n[tool.xttsbench.optimize]\nbudget = 120\n'
    assert (asked(text, "diagnose", "a:b").budget_s, asked(text, "diagnose", "a:b").accelerator) == (90, "emulated:7")
    assert asked(text, "optimize", "a:b").budget_s == 120
    assert asked(text, "run", "loader").accelerators == ("emulated:7",)


def test_a_command_s_own_table_takes_back_what_the_general_one_says(asked) -> None:
    general = '[tool.xttsbench]\nredact = true\nset = ["n=1", "m=2"]\n'
    text = f'{general}[tool.xttsbench.optimize]\nredact = false\nset = ["n=4"]\n'
    found = asked(text, "diagnose", "a:b")
    assert (found.redact, found.kwargs) == (True, {"n": 1, "m": 2})
    found = asked(text, "optimize", "a:b")
    assert (found.redact, found.kwargs) == (False, {"n": 4})


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
        "xttsbench diagnose --steps=40 --profile --set=n=4 '--set=m=x y' a:b"
    )
    assert asked("[tool.xttsbench.diagnose]\nsteps = 40\n", "diagnose", "s.py", "--", "--x", "it's").command == (
        """xttsbench diagnose --steps=40 s.py -- --x 'it'"'"'s'"""
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.xttsbench]\nbuget = 3\n", "[tool.xttsbench] buget: there is no such option; did you mean '--budget'?"),
        ("[tool.xttsbench.diagnoze]\nsteps = 4\n", "no command is called 'diagnoze'; did you mean 'diagnose'?"),
        ("[tool.xttsbench.diagnose]\nno_verfy = true\n", "did you mean '--no-verify'?"),
        ("[tool.xttsbench.diagnose]\nresume = true\n", "[tool.xttsbench.diagnose] resume: there is no such option"),
        ("[tool.xttsbench.data]\nseed = 3\n", "no command is called 'data'"),
        ("[tool.xttsbench.data.make]\nseeds = 3\n", "did you mean '--seed'?"),
        ("[tool.xttsbench]\nbudget = 3\n", "pyproject.toml gives --budget=3"),
        ('[tool.xttsbench.diagnose]\nsteps = "many"\n', "pyproject.toml gives --steps=many"),
        ('[tool.xttsbench.diagnose]\nstrict = "no"\n', "pyproject.toml gives --strict=no"),
        ("[tool.xttsbench.diagnose]\nsteps = true\n", "[tool.xttsbench.diagnose] steps = True: give it a value"),
        ("[tool.xttsbench]\nout = false\n", "[tool.xttsbench] out = False: give it a value"),
        ("[tool]\nxttsbench = 3\n", "write it as a table"),
        ("[tool.xttsbench\n", "pyproject.toml cannot be read"),
    ],
)
def test_a_slip_is_named_with_what_may_have_been_meant(asked, text, said) -> None:
    found = asked(text, "diagnose", "a:b")
    assert found.code == 2
    assert said in found.error


def test_a_default_of_a_command_of_a_group_is_for_that_one(asked) -> None:
    found = asked('[tool.xttsbench.data.make]\nseed = "none"\n', "data", "make")
    assert (found.code, "pyproject.toml gives --seed=none" in found.error) == (2, True)
    assert asked('[tool.xttsbench.data.make]\nseed = "none"\n', "diagnose", "a:b").target == "a:b"


def test_the_help_says_where_defaults_stand_and_works_with_a_broken_file(asked) -> None:
    found = asked("[tool.xttsbench\n", "--help")
    assert found.code == 0
    assert "[tool.xttsbench.diagnose]" in found.output


def test_other_tables_are_not_ours(asked) -> None:
    assert asked("[tool.other]\nbudget = 3\n", "diagnose", "a:b").budget_s == 300
