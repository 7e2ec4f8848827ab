"""``xttsbench explain``: words for people, JSON for programs, and an error that helps."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from xttsbench.cli.app import app
from xttsbench.errors import UsageError


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
