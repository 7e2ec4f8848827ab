"""Frames of a report: the documented columns, their types, what is missing and why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import xttsbench
from tests.by_file import load
from tests.unit.reporting.conftest import changed, estimate, starving_run
from xttsbench.errors import NothingMeasuredError
from xttsbench.execution.journal import TRIALS
from xttsbench.records.frames import CONFIG, DTYPES, TABLES
from xttsbench.records.report import Finding, Report, Variant

ROOT = Path(__file__).parents[3]
RUNS = ROOT / "reports" / "reference"
STORED = [path.parent for path in sorted(RUNS.rglob(TRIALS))]


def arm(name: str, **fields) -> Variant:
    return Variant(id=name, role="candidate", blocks=1, status="ok", **fields)


def of(*arms: Variant, **fields) -> Report:
    return changed(starving_run().report, arms=arms, **fields)


@pytest.mark.parametrize("run", STORED, ids=lambda path: path.relative_to(RUNS).as_posix())
@pytest.mark.parametrize("name", TABLES)
def test_a_frame_of_a_stored_run_has_the_documented_columns_with_their_types(run: Path, name: str) -> None:
    frame = getattr(xttsbench.read_report(run).frames, name)()
    said = {one.name: DTYPES[one.type] for one in TABLES[name]}
    has = {column: str(dtype) for column, dtype in frame.dtypes.items()}
    extra = {column for column in has if column not in said}
    assert all(column.startswith(CONFIG) for column in extra)
    assert {column: dtype for column, dtype in has.items() if column in said} == said
    assert list(has)[: len(said)] == list(said)
    assert frame.attrs["units"].keys() <= has.keys()


@pytest.mark.parametrize(("record", "name"), [(Variant, "configurations"), (Finding, "findings")])
def test_every_field_of_a_record_is_in_its_frame(record: type, name: str) -> None:
    assert {*record.model_fields} - {one.name for one in TABLES[name]} <= {"config", "location"}


def test_the_page_has_the_columns_of_the_table() -> None:
    reference = load(ROOT / "docs" / "reference.py", "docs_reference")
    page = (ROOT / "docs" / "frames.md").read_text(encoding="utf-8")
    assert page == reference.frames_page()
    for columns in TABLES.values():
        rows = {one.name: f"| `{one.name}` | {DTYPES[one.type]} | {one.unit} | {one.meaning}" for one in columns}
        ends = {f"{name}_{end}" for name in rows for end in ("low", "high")}  # of an estimate: one row
        assert all(row in page for name, row in rows.items() if name not in ends)


def test_an_estimate_is_three_numbers_and_what_is_missing_keeps_its_reason() -> None:
    report = of(arm("a", effect=estimate(2.0)), arm("b"), unmeasured={"arms.1.effect": "it raised"})
    frame = report.frames.configurations()
    assert frame.loc[0, ["effect", "effect_low", "effect_high"]].tolist() == pytest.approx([2, 1.94, 2.06])
    assert frame.loc[1, "effect"] is pd.NA
    assert frame.attrs["missing"] == [{"row": 1, "column": "effect", "reason": "it raised"}]
    assert frame.attrs["units"]["step_time_s"] == "seconds"


def test_each_argument_of_a_configuration_has_the_type_of_its_values() -> None:
    frame = of(
        arm("a", config={"calls": 1, "on": True, "rate": 1, "name": "x", "mixed": 1}),
        arm("b", config={"calls": 4, "rate": 0.5, "mixed": "auto"}),
    ).frames.configurations()
    types = {name: str(frame[f"config_{name}"].dtype) for name in ("calls", "on", "rate", "name", "mixed")}
    assert types == {"calls": "Int64", "on": "boolean", "rate": "Float64", "name": "string", "mixed": "string"}
    assert frame["config_mixed"].tolist() == ["1", "auto"]
    assert frame.loc[1, "config_on"] is pd.NA


def test_steps_are_those_of_the_journal_and_a_report_alone_says_where_they_are() -> None:
    run = starving_run()
    frame = run.report.beside(lambda: run.trials[:1]).frames.steps()
    (segment,) = run.trials[0].segments
    assert frame["wait_ns"].tolist() == list(segment.columns["wait_ns"])
    assert frame["warm_up"].sum() == segment.warmup_steps
    assert frame["batch"].isna().all()  # which this journal does not have
    with pytest.raises(NothingMeasuredError, match=r"trials.jsonl beside it.*read_report"):
        run.report.frames.steps()


def test_trials_of_a_report_alone_have_what_it_knows_of_them() -> None:
    whole = xttsbench.read_report(RUNS / "oscillation").frames.trials()
    alone = Report.model_validate_json((RUNS / "oscillation" / "report.json").read_bytes()).frames.trials()
    assert alone["status"].tolist() == whole["status"].tolist() == ["ok"] * 3
    assert alone["kind"].isna().all()
    assert whole["kind"].tolist() == ["parity", "arm", "arm"]
    assert whole["started_utc"].dt.tz is not None


def test_a_sweep_has_its_choice_and_others_none() -> None:
    assert of(arm("a", group="g")).frames.configurations()["chosen"].isna().all()
    frame = xttsbench.read_report(RUNS / "sweep").frames.configurations()
    assert frame.loc[frame["chosen"].fillna(False), "config_calls"].tolist() == [8]


def test_parquet_keeps_types_units_and_reasons(tmp_path: Path) -> None:
    frame = xttsbench.read_report(RUNS / "bundled-workload").frames.configurations()
    frame.to_parquet(tmp_path / "it.parquet")
    again = pd.read_parquet(tmp_path / "it.parquet")
    pd.testing.assert_frame_equal(again, frame)
    assert again.attrs == frame.attrs
    assert again.attrs["missing"]


def test_pandas_is_imported_when_a_frame_is_made_and_not_before() -> None:
    code = (
        "import sys, xttsbench.cli.app, xttsbench.api, xttsbench.records.frames, xttsbench.workflows.tables\n"
        f"report = xttsbench.read_report({str(RUNS / 'oscillation')!r})\n"
        "before = {'pandas', 'pyarrow', 'IPython', 'tensorflow'} & {*sys.modules}\n"
        "report.frames.trials()\n"
        "print(sorted(before), 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[] True"


def test_a_monitor_s_log_is_a_frame(tmp_path: Path) -> None:
    log = tmp_path / "machine.csv"
    log.write_text(
        "time_utc,t_s,cpu_share,gpu0_name,event\n2026-11-21T08:00:00.000+00:00,0.0,0.5,A100,\n"
        "2026-11-21T08:00:00.100+00:00,0.1,,A100,lost\n"
    )
    frame = xttsbench.read_monitor(log)
    types = {name: str(dtype) for name, dtype in frame.dtypes.items()}
    assert types == {
        "time_utc": "datetime64[ns, UTC]",
        "t_s": "Float64",
        "cpu_share": "Float64",
        "gpu0_name": "string",
        "event": "string",
    }
    assert frame.loc[1, "cpu_share"] is pd.NA
    assert frame.attrs["units"] == {"t_s": "seconds", "cpu_share": "share, 0 to 1"}
