"""A run on disk: opened with its files in it, read again as it was, and refused where its plan is of another kind.

The hashes of code and data: they change with what they stand for, and with nothing else.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.unit.conftest import run_plan
from xttsbench.errors import JournalError, UsageError
from xttsbench.execution.journal import append_trial
from xttsbench.execution.run_directory import OUTPUT
from xttsbench.records.report import Kind
from xttsbench.workflows import runs
from xttsbench.workflows.code_identity import code_identity, data_identity
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.runs import open_run, read_run, rebuild

PLAN = run_plan(created_utc="2026-01-02T03:04:05.678+00:00")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xttsbench.workflows.runs.read_machine", lambda _: {"fingerprint": "f"})


def opened(*arguments: Any, **options: Any) -> Recorded:
    """The run as it was opened, which nobody holds any more."""
    with open_run(*arguments, **options) as run:
        return run


def test_what_was_opened_is_read_again(tmp_path: Path, build) -> None:
    run = opened(PLAN, tmp_path / "run", "name", began=1.0)
    assert (run.began, run.trials) == (1.0, ())
    append_trial(run.directory, build.ladder())
    again = read_run(run.directory)
    assert (again.plan, again.environment, len(again.trials)) == (PLAN, {"fingerprint": "f"}, 1)
    with again.session(None) as session:
        assert list(session.earlier) == [again.trials[0].spec.trial_id]


def test_a_directory_without_room_is_refused(tmp_path: Path, full_disk) -> None:
    with full_disk(10), pytest.raises(UsageError, match=r"run cannot be written to: File too large\. Free some space"):
        opened(PLAN, tmp_path / "run", "name")
    assert not list((tmp_path / "run").iterdir())


def test_beside_a_run_that_goes_on_its_report_is_shown_and_nothing_is_written(tmp_path: Path, build) -> None:
    with open_run(PLAN, tmp_path / "run", "name") as run:
        append_trial(run.directory, build.ladder())
        before = sorted(run.directory.iterdir())
        outcome = rebuild(run.directory)
        assert outcome.report.verdict.step_time_s is not None
        assert (outcome.exit_code, outcome.message) == (
            0,
            "The run goes on, so nothing was written: this is it so far.",
        )
        assert sorted(run.directory.iterdir()) == before
    assert rebuild(run.directory).message is None
    assert (run.directory / "report.json").exists()


def test_what_targets_printed_is_kept_without_secrets_and_named(tmp_path: Path, build, monkeypatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "Mark3r-0f-a-secret")
    with open_run(PLAN, tmp_path / "run", "name") as run:
        append_trial(run.directory, build.ladder())
        (run.directory / OUTPUT).write_text("epoch 1 with Mark3r-0f-a-secret\n")
        report = runs.finish(read_run(run.directory)).report
        assert report.target["output"] == OUTPUT
        assert (run.directory / OUTPUT).read_text() == "epoch 1 with ***\n"
        (run.directory / OUTPUT).write_text("")
        assert "output" not in runs.finish(read_run(run.directory)).report.target
        assert not (run.directory / OUTPUT).exists()


@pytest.mark.parametrize(("redact", "kept"), [(False, "output.log"), (True, "null")])
def test_a_run_without_names_keeps_nothing_that_targets_print(tmp_path: Path, redact: bool, kept: str) -> None:
    run = Recorded(tmp_path, PLAN.model_copy(update={"redact": redact}), {})
    with run.session(None, keeps_output=True) as session:
        assert session._log is not None
        assert session._log.name == kept
    with run.session(None) as session:
        assert session._log is None


def test_a_plan_without_a_comparison_has_none(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="names no comparison"):
        _ = opened(PLAN, tmp_path / "run", "name").comparison


def test_a_run_of_any_kind_has_a_report_and_an_end() -> None:
    assert runs._KINDS.keys() == {*get_args(Kind)} - {"compare"}  # which measures nothing


def test_a_report_that_has_no_room_is_said_and_can_be_made_later(tmp_path: Path, build, full_disk) -> None:
    run = opened(PLAN, tmp_path / "run", "name")
    append_trial(run.directory, build.ladder())
    with full_disk(1000), pytest.raises(JournalError) as refused:
        rebuild(run.directory)
    assert "cannot be written: File too large. What was measured is kept; " in str(refused.value)
    assert str(refused.value).endswith(f"xttsbench report {run.directory}")
    assert rebuild(run.directory).report.kind == "diagnose"
    assert (run.directory / "report.html").stat().st_size > 1000


def test_a_run_that_a_saved_file_ended_reports_the_version_before(tmp_path: Path, build) -> None:
    run = opened(PLAN, tmp_path / "run", "name")
    append_trial(run.directory, build.ladder())
    ended = build.trial("pipeline", number=1, status="interrupted", cause="saved", changed_file="/a/train.py")
    append_trial(run.directory, ended)
    outcome = rebuild(run.directory)
    assert outcome.exit_code == runs.INCONCLUSIVE  # 0 without --strict: there is a report
    assert outcome.report.verdict.step_time_s is not None
    assert outcome.message is not None
    assert outcome.message.startswith("/a/train.py was saved while the run went on, so it stopped")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a package, a module beside it, and things that are not code."""
    (tmp_path / "mine" / "inner").mkdir(parents=True)
    (tmp_path / "mine" / "__init__.py").write_text("")
    (tmp_path / "mine" / "inner" / "data.py").write_text("def make(): ...\n")
    (tmp_path / "other.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


FILE, MODULE = "other.py:make", "mine.inner.data:make"


@pytest.mark.parametrize(
    ("target", "file", "counts"),
    [
        (FILE, "mine/inner/data.py", True),  # a file's directory is its code
        (MODULE, "other.py", False),
        (MODULE, "mine/__init__.py", True),  # and a module's is its top-level package
        (FILE, "notes.txt", False),
        *((FILE, f"{folder}/written.py", False) for folder in ("reports", ".venv", "__pycache__", "venv")),
    ],
)
def test_code_is_what_lies_beside_a_file_or_in_a_module_s_package(project: Path, target, file, counts) -> None:
    before = code_identity(target, bundled=False)
    assert before is not None
    assert len(before) == 16
    (project / file).parent.mkdir(exist_ok=True)
    (project / file).write_text("changed = 1\n")
    assert (code_identity(target, bundled=False) != before) is counts


def test_the_time_of_a_file_is_no_part_of_it_and_its_name_is(project: Path) -> None:
    before = code_identity(MODULE, bundled=False)
    os.utime(project / "mine" / "inner" / "data.py", (1, 1))
    assert code_identity(MODULE, bundled=False) == before
    (project / "mine" / "inner" / "data.py").rename(project / "mine" / "inner" / "atad.py")
    assert code_identity(MODULE, bundled=False) != before


def test_an_installed_module_is_found_and_an_unknown_one_is_not(project: Path) -> None:
    assert code_identity("json:loads", bundled=False) is not None
    assert code_identity("no_such_module:make", bundled=False) is None
    assert code_identity("sys:exit", bundled=False) is None


def test_more_files_than_a_project_has_are_not_read(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xttsbench.workflows.code_identity._MOST_FILES", 2)
    assert code_identity("other.py:make", bundled=False) is None


def test_the_bundled_workload_s_code_is_this_package(project: Path) -> None:
    assert code_identity("x:y", bundled=True) == code_identity("other.py:make", bundled=True) is not None


def test_bundled_data_are_their_metadata_and_sizes(tmp_path: Path) -> None:
    (tmp_path / "wavs").mkdir()
    (tmp_path / "metadata.csv").write_text("a|A|A\n")
    (tmp_path / "wavs" / "a.wav").write_bytes(b"RIFF")
    own = [str(tmp_path)]
    before = data_identity(own)
    assert before == data_identity(own * 2)
    (tmp_path / "wavs" / "a.wav").write_bytes(b"RIFFX")
    longer = data_identity(own)
    (tmp_path / "metadata.csv").write_text("a|B|B\n")
    assert len({before, longer, data_identity(own)}) == 3
    assert data_identity([str(tmp_path / "no")]) is None
