"""A run on disk: opened with its files in it, read again as it was, and refused where its plan is of another kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from xttsbench.errors import JournalError, UsageError
from xttsbench.execution import journal
from xttsbench.records.plan import RunPlan
from xttsbench.workflows import recorded
from xttsbench.workflows.recorded import open_run, read_run

PLAN = RunPlan(
    kind="diagnose", command="c", created_utc="2026-01-02T03:04:05.678+00:00", target="m:f", steps=9, budget_s=60.0
)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "read_machine", lambda _: {"fingerprint": "f"})


def test_what_was_opened_is_read_again(tmp_path: Path, build) -> None:
    run = open_run(PLAN, tmp_path / "run", "name", began=1.0)
    assert (run.began, run.trials) == (1.0, ())
    journal.append(run.directory, build.ladder())
    again = read_run(run.directory)
    assert (again.plan, again.environment, len(again.trials)) == (PLAN, {"fingerprint": "f"}, 1)
    with again.session(None) as session:
        assert list(session.earlier) == [again.trials[0].spec.trial_id]


def test_without_a_directory_it_is_named_by_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_run(PLAN, None, "diagnose-f").directory.name == "20260102T030405Z-diagnose-f"


def test_a_directory_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds 'mine\.txt' already"):
        open_run(PLAN, tmp_path, "name")


def test_a_plan_without_a_comparison_has_none(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="names no comparison"):
        _ = open_run(PLAN, tmp_path / "run", "name").comparison
