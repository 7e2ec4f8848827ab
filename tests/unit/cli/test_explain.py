"""``xttsbench explain``: words for people, JSON for programs, and an error that helps.

``xttsbench list``: what it lists is what the commands take.
"""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from xttsbench.cli.app import app
from xttsbench.errors import UsageError
from xttsbench.findings.registry import rules
from xttsbench.fixes.registry import SPECS
from xttsbench.shipped import available


def run(*arguments: str):
    return CliRunner().invoke(app, ["explain", *arguments])


def test_a_rule_in_words() -> None:
    result = run("no-prefetch")
    assert result.exit_code == 0
    assert "Step and input take turns" in result.stdout
    assert "prefetch(tf.data.AUTOTUNE)" in result.stdout


def test_a_verdict_as_json() -> None:
    found = json.loads(run("dispatch", "--json").stdout)
    assert (found["name"], found["kind"]) == ("dispatch", "verdict")
    assert "@tf.function" in found["parts"]["Remedy"]


def test_an_unknown_name_is_a_usage_error() -> None:
    error = run("no-prefech").exception
    assert isinstance(error, UsageError)
    assert error.exit_code == 2
    assert "no-prefetch" in str(error)


def listed(what: str) -> list[dict[str, str]]:
    result = CliRunner().invoke(app, ["list", what, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("scenarios", available("scenarios")),
        ("grids", ["batch", "full", "loader", "mode", "precision", "prefetch", "threads", "workers"]),
        ("recipes", available("training")),
        ("rules", list(rules())),
        ("fixes", list(SPECS)),
    ],
)
def test_every_name_has_a_sentence_and_a_command_that_names_it(what, names) -> None:
    found = listed(what)
    assert [one["name"] for one in found] == names
    assert all(one["summary"].endswith(".") for one in found)
    assert all(one["command"].startswith("xttsbench ") for one in found)
    assert all(one["name"] in one["command"] or one["name"] == "diagnose" for one in found)


def test_a_grid_is_shown_with_its_sweep() -> None:
    assert {one["name"]: one["command"] for one in listed("grids")}["loader"] == "xttsbench sweep --grid loader"


def test_for_people_it_is_lines_that_keep_to_the_page(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = CliRunner().invoke(app, ["list", "scenarios"]).stdout
    assert "loader       The five loaders" in text
    assert max(map(len, text.splitlines())) <= 60
    assert "xttsbench run NAME" in text


def test_what_there_is_not_is_a_usage_error() -> None:
    result = CliRunner().invoke(app, ["list", "recipe"])
    assert result.exit_code == 2
    assert "recipes" in result.stderr
