"""``export``, ``explain`` and ``list`` as a user calls them, and how shares and times are read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

import xttsbench
from tests.unit.cli.made import invoke
from xttsbench.cli.read import seconds, share
from xttsbench.errors import JournalError, NothingMeasuredError, UsageError
from xttsbench.execution.journal import TRIALS
from xttsbench.findings import rules
from xttsbench.fixes.registry import SPECS
from xttsbench.shipped import available


@pytest.mark.parametrize(
    ("read", "texts"),
    [
        (share, ["", "x", "-1%", "nan", "101%", "5", "5s", "1e999"]),
        (seconds, ["", "0", "-3ms", "5%", "3 h", "inf"]),
    ],
)
def test_shares_and_times_that_are_none(read, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(UsageError, match="--max-it"):
            read("--max-it", text)


def test_shares_and_times_are_read() -> None:
    assert {share("x", text) for text in ("5%", "0.05", " 5 % ", ".05")} == {0.05}
    assert (share("x", "100%"), share("x", None), seconds("x", None)) == (1, None, None)
    assert [seconds("x", text) for text in ("120ms", "0.12", "0.12s", "120000us")] == pytest.approx([0.12] * 4)
    with pytest.raises(UsageError):
        share("--max-regression", "100%", below=1)


RUN = Path(__file__).parents[3] / "reports" / "reference" / "oscillation"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    shutil.copy(RUN / TRIALS, tmp_path)
    return tmp_path


def test_a_trace_is_written_beside_the_run_and_named(run) -> None:
    result = invoke("export", run)
    assert result.exit_code == 0, result.output
    assert f"750 steps of 3 trials: {run / 'trace.json'}" in result.stderr
    assert "ui.perfetto.dev" in result.stderr
    assert json.loads((run / "trace.json").read_text())["traceEvents"]


def test_a_table_where_it_is_wanted(run, tmp_path) -> None:
    file = tmp_path / "mine.csv"
    found = json.loads(invoke("export", run, "--format", "csv", "--out", file, "--json").stdout)
    assert found == {"file": str(file), "format": "csv", "trials": 3, "steps": 750}
    assert invoke("export", run, "--format", "csv", "--out", "-").stdout == file.read_text()


@pytest.mark.parametrize("name", ["steps", "configurations", "trials"])
@pytest.mark.parametrize("options", [(), ("--redact",)])
def test_each_table_of_a_run_as_csv_and_as_parquet(tmp_path, name, options) -> None:
    shutil.copytree(RUN, tmp_path / "run")
    expected = getattr(xttsbench.read_report(RUN).frames, name)()
    for form in ("csv", "parquet"):
        result = invoke("export", tmp_path / "run", "--format", form, "--table", name, "--json", *options)
        assert json.loads(result.stdout)[name] == len(expected), result.output
    whole = pd.read_parquet(tmp_path / "run" / f"{name}.parquet")
    assert (whole.dtypes == expected.dtypes).all()
    assert list(pd.read_csv(tmp_path / "run" / f"{name}.csv").columns) == list(expected.columns)


def test_without_pyarrow_parquet_says_what_to_install(run, monkeypatch) -> None:
    monkeypatch.setattr("xttsbench.workflows.tables.find_spec", lambda _: None)
    said = str(invoke("export", run, "--format", "parquet").exception)
    assert said == "--format parquet needs pyarrow: pip install pyarrow, or take --format csv."


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        (["--json", "--out", "-"], UsageError, "standard output"),
        (["--format", "parquet", "--out", "-"], UsageError, "--format parquet is for a file"),
        (["--table", "trials"], UsageError, "--table trials is no time line"),
        (["--out", "missing/x.json"], UsageError, "--out 'missing/x.json' cannot be written"),
    ],
)
def test_what_cannot_be_written_is_a_usage_error(run, options, error, said) -> None:
    found = invoke("export", run, *options).exception
    assert isinstance(found, error)
    assert said in str(found)


def test_what_is_no_run_or_measured_nothing_is_said(tmp_path) -> None:
    assert isinstance(invoke("export", tmp_path).exception, JournalError)
    (tmp_path / TRIALS).touch()
    assert isinstance(invoke("export", tmp_path).exception, NothingMeasuredError)


def test_a_rule_in_words() -> None:
    result = invoke("explain", "no-prefetch")
    assert result.exit_code == 0
    assert "Step and input take turns" in result.stdout
    assert "prefetch(tf.data.AUTOTUNE)" in result.stdout


def test_a_verdict_as_json() -> None:
    found = json.loads(invoke("explain", "dispatch", "--json").stdout)
    assert (found["name"], found["kind"]) == ("dispatch", "verdict")
    assert "@tf.function" in found["parts"]["Remedy"]


def test_an_unknown_name_is_a_usage_error() -> None:
    error = invoke("explain", "no-prefech").exception
    assert isinstance(error, UsageError)
    assert error.exit_code == 2
    assert "no-prefetch" in str(error)


def listed(what: str) -> list[dict[str, str]]:
    result = invoke("list", what, "--json")
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
    commands = {one["name"]: one["command"] for one in listed("grids")}
    assert commands["loader"] == "xttsbench sweep --grid loader"


def test_for_people_it_is_lines_that_keep_to_the_page(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = invoke("list", "scenarios").stdout
    assert "loader       The five loaders" in text
    assert max(map(len, text.splitlines())) <= 60
    assert "xttsbench run NAME" in text


def test_what_there_is_not_is_a_usage_error() -> None:
    result = invoke("list", "recipe")
    assert result.exit_code == 2
    assert "recipes" in result.stderr
