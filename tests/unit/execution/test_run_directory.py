"""A run's directory is one process's at a time, and free again when that one is gone."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from xttsbench.errors import JournalError, UsageError
from xttsbench.execution.run_directory import (
    ENVIRONMENT,
    PLAN,
    lock_run,
    make_run_directory,
    read_environment,
    read_plan,
    write_json,
)
from xttsbench.records.plan import Accelerator, RunPlan

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_by_default_it_is_named_after_the_time_and_the_target(tmp_path: Path) -> None:
    made = make_run_directory(None, "diagnose-make", NOW, under=tmp_path)
    assert made == tmp_path / "reports" / "20260102T030405Z-diagnose-make"
    assert made.is_dir()


def test_two_runs_of_one_second_do_not_share_it(tmp_path: Path) -> None:
    made = [make_run_directory(None, "x", NOW, under=tmp_path).name for _ in range(3)]
    assert made == ["20260102T030405Z-x", "20260102T030405Z-x-2", "20260102T030405Z-x-3"]


def test_without_a_place_it_is_under_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert make_run_directory(None, "x", NOW).parent == tmp_path / "reports"


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("../../etc/passwd", "etc-passwd"),
        ("a b/c\\d:e\x00f\n", "a-b-c-d-e-f"),
        ("...", "run"),
        ("", "run"),
        ("größe", "gr-e"),
        ("x" * 500, "x" * 60),
    ],
)
def test_names_cannot_lead_anywhere_else(tmp_path: Path, name: str, stem: str) -> None:
    made = make_run_directory(None, name, NOW, under=tmp_path)
    assert made == tmp_path / "reports" / f"20260102T030405Z-{stem}"


def test_a_named_directory_is_made_with_its_parents_or_taken_empty(tmp_path: Path) -> None:
    assert make_run_directory(tmp_path / "a" / "b", "x", NOW) == tmp_path / "a" / "b"
    assert make_run_directory(tmp_path / "a" / "b", "x", NOW).is_dir()


def test_a_taken_directory_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds 'precious\.txt' already.*Name one that is empty") as caught:
        make_run_directory(tmp_path, "x", NOW)
    assert caught.value.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--out '.*file' is a file"):
        make_run_directory(tmp_path / "file", "x", NOW)
    with pytest.raises(UsageError, match=r"cannot be made: .*Name another one"):
        make_run_directory(tmp_path / "file" / "below", "x", NOW)
    with pytest.raises(UsageError, match="cannot be made"):
        make_run_directory(tmp_path / ("x" * 400), "x", NOW)


def test_json_is_written_whole_and_readable_by_others(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"text": "größe", "list": [1, 2.5, None]})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"text": "größe", "list": [1, 2.5, None]}
    assert (tmp_path / "a.json").read_text(encoding="utf-8").endswith("}\n")
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o644


def test_a_value_that_is_not_json_leaves_the_old_file_too(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"old": True})
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"new": object()})
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert json.loads((tmp_path / "a.json").read_text()) == {"old": True}


def plan() -> RunPlan:
    return RunPlan(
        kind="diagnose",
        command="xttsbench diagnose data.py:make",
        created_utc="2026-01-02T03:04:05+00:00",
        target="data.py:make",
        kwargs={"lr": 1e-4},
        accelerator=Accelerator(kind="emulated", label="5 ms", step_times_ms=(5.0, 1 / 3)),
        steps=400,
        budget_s=300.0,
        seed=7,
    )


def test_plan_and_environment_are_read_back(tmp_path: Path) -> None:
    write_json(tmp_path / PLAN, plan().model_dump(mode="json"))
    write_json(tmp_path / ENVIRONMENT, {"cpu": {"allowed_cpus": 2}})
    assert read_plan(tmp_path) == plan()
    assert read_environment(tmp_path) == {"cpu": {"allowed_cpus": 2}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"plan\.json cannot be read \(No such file or directory\); name a run's directory"),
        ("{", r"plan\.json is not JSON"),
        ("[]", r"schema_version is None"),
        ('{"schema_version": 3}', r"schema_version is 3; this version reads 1 to 2"),
        ('{"schema_version": 1}', r"plan\.json is not the plan of a run"),
    ],
)
def test_a_plan_that_is_none_is_one_sentence(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / PLAN).write_text(text)
    with pytest.raises(JournalError, match=message) as caught:
        read_plan(tmp_path)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("text", ["[1]", "null", "{", "\udcff"])
def test_an_environment_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / ENVIRONMENT).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(JournalError, match=r"environment\.json"):
        read_environment(tmp_path)


HOLDS = """
import sys
from pathlib import Path
from xttsbench.execution.run_directory import lock_run
with lock_run(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_another_process_is_kept_out_until_the_holder_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match="is in use by another process"), lock_run(tmp_path):
            pass
        holder.kill()
        holder.wait()
        with lock_run(tmp_path):
            assert list(tmp_path.iterdir()) == []


def test_it_is_free_again_after_use(tmp_path: Path) -> None:
    for _ in range(2):
        with lock_run(tmp_path):
            pass
