"""``xttsbench export``: where it writes, what it says, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from xttsbench.cli.app import app
from xttsbench.errors import JournalError, NothingMeasuredError, UsageError
from xttsbench.execution import journal

RUN = Path(__file__).parents[3] / "reports" / "reference" / "oscillation"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    shutil.copy(RUN / journal.NAME, tmp_path)
    return tmp_path


def export(*arguments: object):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def test_a_trace_is_written_beside_the_run_and_named(run) -> None:
    result = export(run)
    assert result.exit_code == 0, result.output
    assert f"750 steps of 3 trials: {run / 'trace.json'}" in result.stderr
    assert "ui.perfetto.dev" in result.stderr
    assert json.loads((run / "trace.json").read_text())["traceEvents"]


def test_a_table_where_it_is_wanted(run, tmp_path) -> None:
    file = tmp_path / "mine.csv"
    found = json.loads(export(run, "--format", "csv", "--out", file, "--json").stdout)
    assert found == {"file": str(file), "format": "csv", "trials": 3, "steps": 750}
    assert export(run, "--format", "csv", "--out", "-").stdout == file.read_text()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        (["--json", "--out", "-"], UsageError, "standard output"),
        (["--out", "missing/x.json"], UsageError, "--out 'missing/x.json' cannot be written"),
    ],
)
def test_what_cannot_be_written_is_a_usage_error(run, options, error, said) -> None:
    found = export(run, *options).exception
    assert isinstance(found, error)
    assert said in str(found)


def test_what_is_no_run_or_measured_nothing_is_said(tmp_path) -> None:
    assert isinstance(export(tmp_path).exception, JournalError)
    (tmp_path / journal.NAME).touch()
    assert isinstance(export(tmp_path).exception, NothingMeasuredError)
