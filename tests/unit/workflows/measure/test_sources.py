"""A source file that is saved while a run goes on ends it, before the next trial and before a patch is written."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from xttsbench.execution.journal import read_trials
from xttsbench.execution.limits import Limits
from xttsbench.owners import loaded_files
from xttsbench.records.trial import TrialRecord, TrialSpec, changed_file, interrupted
from xttsbench.workflows.measure.session import Session
from xttsbench.workflows.measure.sources import Sources

LIMITS = Limits(10.0, 5.0)


class Target:
    """A file of the user's, and a module that it imports; trials say that they loaded both."""

    def __init__(self, folder: Path) -> None:
        self.file, self.module = folder / "train.py", folder / "parts.py"
        for path in (self.file, self.module):
            path.write_text("one = 1\n")
            os.utime(path, (1e9, 1e9))
        self.during: Any = lambda: None

    def spec(self, number: int, target: str | None = None) -> TrialSpec:
        name = target or f"{self.file}:make"
        return TrialSpec(trial_id=f"{number:03d}", kind="arm", target=name, arm=str(number))

    def run_trial(self, spec: TrialSpec, *_: Any, **__: Any) -> TrialRecord:
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.during()
        files = (str(self.file), str(self.module))
        return TrialRecord(spec=spec, status="ok", started_utc=started, duration_s=1.0, setup_s=0.1, files=files)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    made = Target(tmp_path)
    monkeypatch.setattr("xttsbench.workflows.measure.session.run_trial", made.run_trial)
    monkeypatch.setattr("xttsbench.workflows.measure.session.open_gpus", lambda: (None, "none here"))
    monkeypatch.setattr(Session, "_helper_for", lambda *_: None)
    return made


@pytest.fixture
def session(tmp_path: Path, target: Target):
    (tmp_path / "run").mkdir()
    with Session(tmp_path / "run", budget_s=10) as opened:
        yield opened


@pytest.mark.parametrize("name", ["file", "module"])
@pytest.mark.parametrize("as_module", [False, True], ids=["file:callable", "module:callable"])
def test_a_file_that_is_saved_between_two_trials_ends_the_run(
    session, target, tmp_path: Path, name: str, as_module: bool
) -> None:
    text = "train:make" if as_module else None
    assert session.run(target.spec(0, text), LIMITS).status == "ok"
    saved: Path = getattr(target, name)
    saved.write_text("two = 2\n")
    record = session.run(target.spec(1, text), LIMITS)
    assert (record.status, record.changed_file) == ("interrupted", str(saved))
    assert record.cause is not None
    assert record.cause.startswith(f"{saved} was saved while the run went on")
    kept = read_trials(tmp_path / "run")
    assert interrupted(kept)
    assert changed_file(kept) == str(saved)
    assert [trial.status for trial in kept] == ["ok", "interrupted"]
    assert session.run_all([target.spec(2, text)], LIMITS, most=2)[0].changed_file == str(saved)


def test_a_file_that_is_only_touched_or_saved_as_it_was_ends_nothing(session, target) -> None:
    session.run(target.spec(0), LIMITS)
    target.file.touch()
    target.module.write_text("one = 1\n")
    assert session.run(target.spec(1), LIMITS).status == "ok"


def test_a_trial_that_may_have_loaded_either_version_counts_for_none(session, target) -> None:
    session.run(target.spec(0), LIMITS)
    target.during = lambda: target.module.write_text("two = 2\n")  # while the target is being built
    assert session.run(target.spec(1), LIMITS).changed_file == str(target.module)


def test_a_trial_that_had_loaded_its_files_counts_and_is_the_last(session, target) -> None:
    session.run(target.spec(0), LIMITS)

    def later() -> None:
        time.sleep(0.3)
        target.module.write_text("two = 2\n")

    target.during = later
    assert session.run(target.spec(1), LIMITS).status == "ok"
    assert session.run(target.spec(2), LIMITS).status == "interrupted"


def test_a_module_that_was_saved_before_it_was_known_ends_the_run(session, target) -> None:
    def later() -> None:
        time.sleep(0.3)
        target.module.write_text("two = 2\n")

    target.during = later
    assert session.run(target.spec(0), LIMITS).status == "ok"
    assert session.run(target.spec(1), LIMITS).changed_file == str(target.module)


def test_a_file_that_is_moved_away_ends_the_run(target) -> None:
    sources = Sources()
    sources.begin(f"{target.file}:make")
    assert sources.changed() is None
    target.file.rename(target.file.with_suffix(".old"))
    assert sources.changed() == str(target.file)


def test_loaded_files_are_the_users_own() -> None:
    found = loaded_files()
    assert __file__ in found
    assert not [file for file in found if "site-packages" in file or "/xttsbench/xttsbench/" in file]
