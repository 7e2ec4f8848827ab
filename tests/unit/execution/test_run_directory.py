"""A run's directory is one process's at a time, and free again when that one is gone."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from xttsbench.errors import JournalError, UsageError
from xttsbench.execution.journal import (
    BROKEN_OFF,
    HISTORY,
    TRIALS,
    append_history,
    append_trial,
    keep_rounds,
    read_history,
    read_trials,
    trials_to_keep,
)
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
from xttsbench.records.training import HistoryLine
from xttsbench.records.trial import TrialError, TrialRecord

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def make(*arguments: Any, **options: Any) -> Path:
    """The directory as it was made, which nobody holds any more."""
    with make_run_directory(*arguments, **options) as made:
        return made


def test_by_default_it_is_named_after_the_time_and_the_target(tmp_path: Path) -> None:
    made = make(None, "diagnose-make", NOW, under=tmp_path)
    assert made == tmp_path / "reports" / "20260102T030405Z-diagnose-make"
    assert made.is_dir()


def test_two_runs_of_one_second_do_not_share_it(tmp_path: Path) -> None:
    made = [make(None, "x", NOW, under=tmp_path).name for _ in range(3)]
    assert made == ["20260102T030405Z-x", "20260102T030405Z-x-2", "20260102T030405Z-x-3"]


def test_without_a_place_it_is_under_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert make(None, "x", NOW).parent == tmp_path / "reports"


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
    made = make(None, name, NOW, under=tmp_path)
    assert made == tmp_path / "reports" / f"20260102T030405Z-{stem}"


def test_a_named_directory_is_made_with_its_parents_or_taken_empty(tmp_path: Path) -> None:
    assert make(tmp_path / "a" / "b", "x", NOW) == tmp_path / "a" / "b"
    assert make(tmp_path / "a" / "b", "x", NOW).is_dir()


def test_a_taken_directory_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds 'precious\.txt' already.*Name one that is empty") as caught:
        make(tmp_path, "x", NOW)
    assert caught.value.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--out '.*file' is a file"):
        make(tmp_path / "file", "x", NOW)
    with pytest.raises(UsageError, match=r"cannot be made: .*Name another one"):
        make(tmp_path / "file" / "below", "x", NOW)
    with pytest.raises(UsageError, match="cannot be made"):
        make(tmp_path / ("x" * 400), "x", NOW)


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
        ('{"schema_version": 2}', r"schema_version is 2, and this version of xttsbench reads 3"),
        ('{"schema_version": 3}', r"plan\.json is not the plan of a run"),
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
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match="is in use by another process"), lock_run(tmp_path):
            pass
        holder.kill()
        holder.wait()
        with lock_run(tmp_path):
            assert list(tmp_path.iterdir()) == []


@pytest.fixture
def written(tmp_path: Path, build) -> tuple[Path, list]:
    records = [build.ladder(steps=5), build.trial("graph", number=1, status="raised", cause="no", notes=("ä\nb",))]
    for record in records:
        append_trial(tmp_path, record)
    return tmp_path, records


def lines_of(directory: Path) -> list[bytes]:
    return (directory / TRIALS).read_bytes().splitlines()


def test_what_was_appended_is_read_back_equal_and_in_order(written) -> None:
    directory, records = written
    assert read_trials(directory) == records
    assert len(lines_of(directory)) == 2


def test_every_number_and_text_survives(tmp_path: Path, build) -> None:
    record = build.ladder(
        steps=3,
        duration_s=1 / 3,
        kwargs={"lr": 1e-4, "list": [1, "two", None]},
        emulated_ms=(0.1, 2.5),
        error=TrialError(type="E", message="line\nbreak \u2028 \x00 {"),
    )
    append_trial(tmp_path, record)
    assert read_trials(tmp_path) == [record]
    assert len(lines_of(tmp_path)) == 1


@pytest.mark.parametrize("torn", [b'{"schema_version": 3, "spe', b"7", b"null", b"[]", b"{}", b"\xff\xfe", b'"text"'])
def test_a_line_in_the_middle_that_is_no_trial_is_refused_with_its_number(written, torn: bytes) -> None:
    directory, _ = written
    first, second = lines_of(directory)
    (directory / TRIALS).write_bytes(b"\n".join([first, torn, second, b""]))
    with pytest.raises(JournalError, match=r"trials\.jsonl, line 2 is not a trial of schema 3: "):
        read_trials(directory)


def test_a_field_that_a_trial_does_not_have_is_refused(written) -> None:
    directory, _ = written
    first, second = lines_of(directory)
    strange = json.dumps(json.loads(first) | {"surprise": 1}).encode()
    (directory / TRIALS).write_bytes(b"\n".join([strange, second, b""]))
    with pytest.raises(JournalError, match="line 1"):
        read_trials(directory)


@pytest.mark.parametrize("version", [0, 2, None, "3"])
def test_another_schema_version_is_refused_by_name(written, version: object) -> None:
    directory, _ = written
    first, second = lines_of(directory)
    other = json.dumps(json.loads(second) | {"schema_version": version}).encode()
    (directory / TRIALS).write_bytes(b"\n".join([first, other, b""]))
    with pytest.raises(
        JournalError, match=f"line 2 .*schema_version is {version!r}, and this version of xttsbench reads 3"
    ) as caught:
        read_trials(directory)
    assert caught.value.exit_code == 5


def test_a_full_disk_is_one_sentence_and_costs_no_earlier_trial(written, build, monkeypatch) -> None:
    directory, records = written

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JournalError, match=r"cannot be written: No space left on device\. Free some space"):
        append_trial(directory, build.trial("pipeline"))
    monkeypatch.undo()
    assert read_trials(directory)[:2] == records


def test_each_trial_is_forced_to_the_disk(tmp_path: Path, build, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append((tmp_path / TRIALS).stat().st_size))
    append_trial(tmp_path, build.trial("pipeline"))
    assert synced == [(tmp_path / TRIALS).stat().st_size]
    assert synced[0] > 0


def test_a_directory_that_went_away(tmp_path: Path, build) -> None:
    with pytest.raises(JournalError, match="cannot be written"):
        append_trial(tmp_path / "gone", build.trial("pipeline"))
    with pytest.raises(JournalError, match="cannot be written"):
        append_history(tmp_path / "gone", warned("x"))
    with pytest.raises(JournalError, match=r"No journal at .*gone.*Name a run's directory"):
        read_trials(tmp_path / "gone")


def test_an_empty_journal_has_no_trials(tmp_path: Path) -> None:
    (tmp_path / TRIALS).write_bytes(b"\n\n")
    assert read_trials(tmp_path) == []


def warned(text: str) -> HistoryLine:
    return HistoryLine(session=1, warned=text)


def test_lines_come_back_in_their_order(tmp_path: Path) -> None:
    assert read_history(tmp_path) == []
    for text in ("one", "two\nlines", "größe"):
        append_history(tmp_path, warned(text))
    assert [line.warned for line in read_history(tmp_path)] == ["one", "two\nlines", "größe"]


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    (tmp_path / HISTORY).write_text('{"other": 1}\n')
    with pytest.raises(JournalError, match="line 1 is none of a history"):
        read_history(tmp_path)


STARTS = """
import os, sys, time
from pathlib import Path
from xttsbench.errors import UsageError
from xttsbench.records.plan import RunPlan
from xttsbench.workflows import runs

def read_machine(directory):
    time.sleep(0.05)  # as long as reading takes, in which the directory is empty
    return {"fingerprint": "f"}

runs.read_machine = read_machine
PLAN = RunPlan(kind="run", command="c", created_utc="2026-01-02T03:04:05+00:00", target="t", steps=1, budget_s=1.0)

def starts(out):
    (go, gone), (told, tell), (hold, held) = os.pipe(), os.pipe(), os.pipe()
    for _ in range(3):
        if not os.fork():
            os.close(gone), os.close(held)
            os.read(go, 1)  # all go when nobody can say so any more
            try:
                with runs.open_run(PLAN, out, "x", needs_tensorflow=False) as run:
                    os.write(tell, f"{run.directory.name}\\n".encode())
                    os.read(hold, 1)
            except UsageError as error:
                os.write(tell, b"refused\\n")
            os._exit(0)
    os.close(gone), os.close(tell)
    said = b""
    while said.count(b"\\n") < 3:
        said += os.read(told, 100)
    os.close(held)
    for _ in range(3):
        os.wait()
    return said.decode().split()

for number in range(20):
    print(*starts(None), flush=True)
for number in range(20):
    out = Path(f"out-{number}")
    if number % 2:
        out.mkdir()
    print(*starts(out), flush=True)
"""


def test_of_runs_that_start_together_no_two_share_a_directory(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTS],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3]), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    rounds = [line.split() for line in done.stdout.splitlines()]
    named_by_themselves = [name for names in rounds[:20] for name in names]
    assert len(set(named_by_themselves)) == 60
    assert "refused" not in named_by_themselves
    for number, names in enumerate(rounds[20:]):
        assert sorted(names) == [f"out-{number}", "refused", "refused"]


def test_what_a_killed_run_left_is_cleared_by_its_holder_alone(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with make_run_directory(out, "x", NOW):
        (out / ENVIRONMENT).write_text("{}")
        with pytest.raises(UsageError, match="is in use by another process"):
            make(out, "x", NOW, clear=True)
        assert (out / ENVIRONMENT).exists()
    with pytest.raises(UsageError, match="holds 'environment"):
        make(out, "x", NOW)
    assert not list(make(out, "x", NOW, clear=True).iterdir())


def test_a_file_system_without_locks_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuses)
    with lock_run(tmp_path) as ours:
        assert ours


@pytest.fixture
def small(build) -> list[TrialRecord]:
    """Trials whose lines are short, the last one interrupted."""
    return [build.trial("pipeline", number=number, cause="ä" if number else None) for number in range(3)]


def test_a_journal_that_is_cut_anywhere_is_read_and_goes_on(tmp_path: Path, small, monkeypatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # thousands of them
    lines = [record.model_dump_json().encode() + b"\n" for record in small]
    whole, path = b"".join(lines), tmp_path / TRIALS
    ends = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        kept = sum(end - 1 <= cut for end in ends[1:])  # a line counts without its newline, too
        assert read_trials(tmp_path) == small[:kept], cut
        assert trials_to_keep(tmp_path) == small[:kept]
        for record in small[kept:] or small[-1:]:
            append_trial(tmp_path, record)
        assert path.read_bytes() == (whole if kept < len(small) else whole + lines[-1]), cut


def test_a_history_that_is_cut_anywhere_is_read_and_goes_on(tmp_path: Path) -> None:
    told = [warned(text) for text in ("one", "zwölf", "three")]
    lines = [line.model_dump_json(exclude_none=True).encode() + b"\n" for line in told]
    whole, path = b"".join(lines), tmp_path / HISTORY
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        kept = read_history(tmp_path)
        assert kept == told[: len(kept)]
        append_history(tmp_path, warned("after"))
        assert read_history(tmp_path) == [*kept, warned("after")], cut


def test_a_whole_line_of_another_version_without_its_newline_is_cut_off(tmp_path: Path, small) -> None:
    append_trial(tmp_path, small[0])
    with (tmp_path / TRIALS).open("ab") as file:
        file.write(json.dumps(json.loads(small[1].model_dump_json()) | {"schema_version": 99}).encode())
    assert read_trials(tmp_path) == small[:1]
    append_trial(tmp_path, small[2])
    assert read_trials(tmp_path) == [small[0], small[2]]


def test_what_was_broken_off_is_measured_again_and_kept_beside_the_journal(tmp_path: Path, build) -> None:
    trials = [build.trial("pipeline", number=0), build.trial("pipeline", number=1, status="killed", cause="by SIGKILL")]
    trials += [build.trial("pipeline", number=2), build.trial("pipeline", number=3, status="interrupted")]
    for trial in trials:
        append_trial(tmp_path, trial)
    assert trials_to_keep(tmp_path) == trials[:1]
    assert read_trials(tmp_path) == trials[:1]
    assert (tmp_path / BROKEN_OFF).read_bytes().count(b"\n") == 3
    assert trials_to_keep(tmp_path) == trials[:1]
    append_trial(tmp_path, trials[2])
    assert read_trials(tmp_path) == [trials[0], trials[2]]
    assert (tmp_path / BROKEN_OFF).read_bytes().count(b"\n") == 3


@pytest.mark.parametrize(
    ("status", "cause", "again"),
    [
        ("killed", "killed by SIGKILL in phase 'as_is'", True),
        ("killed", "the helper process ended (exit code -9) and the trial with it, in phase 'as_is'", True),
        ("killed", "killed by SIGSEGV in phase 'as_is'", False),
        ("out_of_memory", "killed by SIGKILL in phase 'as_is': it held 9.0 of 10.0 GiB", False),
        ("raised", "no", False),
    ],
)
def test_what_died_of_itself_is_a_result_and_what_others_killed_is_not(
    tmp_path: Path, build, status: str, cause: str, again: bool
) -> None:
    append_trial(tmp_path, build.trial("pipeline", status=status, cause=cause))
    assert (trials_to_keep(tmp_path) == []) is again


def test_rounds_of_trials_that_never_ended_count_until_they_are_in_the_journal(tmp_path: Path, build) -> None:
    first, living = build.trial("parity"), build.trial("arm", number=1)
    append_trial(tmp_path, first)
    keep_rounds(tmp_path, [living])
    found = read_trials(tmp_path)
    assert [(trial.spec.trial_id, trial.status) for trial in found] == [
        (first.spec.trial_id, "ok"),
        (living.spec.trial_id, "interrupted"),
    ]
    assert found[1].segments == living.segments
    append_trial(tmp_path, living)
    assert read_trials(tmp_path) == [first, living]
