"""A disk that fails at its n-th write, flush or rename, for all n: one sentence, and what is there is whole."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import run_plan
from xttsbench.errors import JournalError, UsageError
from xttsbench.execution.child import SharedRows
from xttsbench.execution.journal import (
    BROKEN_OFF,
    TRIALS,
    append_history,
    append_trial,
    read_history,
    read_trials,
    trials_to_keep,
)
from xttsbench.execution.run_directory import PLAN
from xttsbench.execution.watched import Left
from xttsbench.records.rows import StepRow
from xttsbench.records.training import HistoryLine
from xttsbench.records.trial import TrialRecord, TrialSpec
from xttsbench.workflows.runs import Outcome, finish, open_run, rebuild
from xttsbench.workflows.watch import Request, watch


class File:
    """A file of a disk that fails; a write that does leaves half of what was to be written."""

    def __init__(self, file: Any, disk: Disk) -> None:
        self._file, self._disk = file, disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, content: Any) -> int:
        try:
            self._disk.used()
        except OSError:
            self._file.write(content[: len(content) // 2])
            raise
        return int(self._file.write(content))


class Disk:
    """Fails with an error at its n-th use, and from then on where it ``stays``."""

    def __init__(self, code: int, at: int, *, stays: bool) -> None:
        self.code, self.at, self.stays, self.uses = code, at, stays, 0

    @property
    def failed(self) -> bool:
        return self.uses >= self.at

    def used(self) -> None:
        self.uses += 1
        if self.uses == self.at or (self.stays and self.uses > self.at):
            raise OSError(self.code, os.strerror(self.code))

    @contextmanager
    def used_for_all(self) -> Iterator[None]:
        opened, fsync, rename, mkdir, unlink = Path.open, os.fsync, os.replace, Path.mkdir, Path.unlink

        def through(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                self.used()
                return real(*arguments, **options)

            return call

        def open_one(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            if set(mode) & set("wxa"):
                self.used()
                return File(opened(path, mode, *arguments, **options), self)
            return opened(path, mode, *arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "open", open_one)
            patch.setattr(os, "fsync", through(fsync))
            patch.setattr(os, "replace", through(rename))
            patch.setattr(Path, "mkdir", through(mkdir))
            patch.setattr(Path, "unlink", through(unlink))
            yield


FAULTS = pytest.mark.parametrize(
    ("code", "stays"),
    [(errno.ENOSPC, True), (errno.EROFS, True), (errno.EIO, False)],
)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_is_drawn(*_: object) -> None:
        raise ValueError("not drawn here")

    monkeypatch.setattr("xttsbench.workflows.runs.read_machine", lambda _: {"fingerprint": "f"})
    monkeypatch.setattr("xttsbench.workflows.measure.session.open_gpus", lambda: (None, "none here"))
    monkeypatch.setattr("xttsbench.reporting.page.stage", nothing_is_drawn)
    monkeypatch.setattr("xttsbench.reporting.page.render_page", lambda *_: "a page")
    monkeypatch.setattr(os, "fsync", lambda _: None)


def sentence(work: Callable[[], object]) -> str | None:
    """The one sentence by which work is refused, with an exit code of the contract; ``None`` where it is done."""
    try:
        work()
    except (UsageError, JournalError) as error:
        return str(error)
    return None


def measured(out: Path, trials: list[TrialRecord]) -> Outcome:
    """A whole run whose trials have been measured before."""
    with open_run(run_plan(), out, "name", clear=True) as run:
        with run.session(None) as session:
            for trial in trials:
                session.keep_rounds([trial])
                session.keep(trial, "a trial")
        return finish(replace(run, trials=session.trials))


@FAULTS
def test_a_run_says_so_in_a_sentence_and_keeps_what_was_measured(tmp_path: Path, build, code: int, stays: bool) -> None:
    trials, at = [build.ladder(steps=30), build.trial("pipeline", number=1)], 0
    while True:
        at += 1
        out, disk = tmp_path / str(at), Disk(code, at, stays=stays)
        with disk.used_for_all():
            said = sentence(lambda out=out: measured(out, trials))
        assert said is None or os.strerror(code) in said
        if not disk.failed:
            break
        if not (out / PLAN).exists():
            assert measured(out, trials).exit_code == 0
            continue
        found = read_trials(out) if (out / TRIALS).exists() else []
        assert [trial.model_copy(update={"status": "ok", "cause": None}) for trial in found] == trials[: len(found)]
        if found:
            assert rebuild(out).report.verdict.step_time_s is not None
            assert (out / "report.md").stat().st_size > 100
    assert at > 20


@FAULTS
def test_a_run_that_goes_on_loses_nothing_of_its_journal(tmp_path: Path, build, code: int, stays: bool) -> None:
    trials = [build.trial("pipeline", number=number) for number in range(2)]
    trials += [
        build.trial("pipeline", number=2, status="killed", cause="killed by SIGKILL in phase 'as_is'"),
        build.trial("pipeline", number=3),
    ]
    at = 0
    while True:
        at += 1
        out, disk = tmp_path / str(at), Disk(code, at, stays=stays)
        out.mkdir()
        for trial in trials:
            append_trial(out, trial)
        with disk.used_for_all():
            said = sentence(lambda out=out: trials_to_keep(out))
        assert said is None or os.strerror(code) in said
        assert read_trials(out) in (trials, trials[:2])
        assert trials_to_keep(out) == trials[:2]
        broken_off = (out / BROKEN_OFF).read_text()
        assert all(trial.model_dump_json() in broken_off for trial in trials[2:])
        if not disk.failed:
            break
    assert at > 5


@FAULTS
def test_a_history_goes_on_after_its_last_whole_line(tmp_path: Path, code: int, stays: bool) -> None:
    for at in range(1, 20):
        out, disk, told = tmp_path / str(at), Disk(code, at, stays=stays), []
        out.mkdir()
        with disk.used_for_all():
            for number in range(4):
                line = HistoryLine(session=0, warned=f"line {number}")
                said = sentence(lambda out=out, line=line: append_history(out, line))
                told += [number] if said is None else []
                assert said is None or os.strerror(code) in said
        assert [line.warned for line in read_history(out)] == [f"line {number}" for number in told]
        append_history(out, HistoryLine(session=1, warned="after"))
        assert [line.warned for line in read_history(out)][-1] == "after"
        if not disk.failed:
            return
    raise AssertionError("it never went through")


@FAULTS
def test_a_watched_run_ends_as_its_script_did(tmp_path: Path, monkeypatch, code: int, stays: bool) -> None:
    """The script's process is left out: what it says comes as from one that wrote steps and ended with code 3."""
    ran: list[int] = []

    def run(spec: TrialSpec, listener: Any, shared: SharedRows, **_: Any) -> Left:
        ran.append(at)
        segment = shared.memory.segment("as_is")
        for number in range(40):
            segment.append(StepRow(number * 10**7, 10**7, wait_ns=6 * 10**6, step_ns=4 * 10**6))
        listener.guard("Noting the start", listener.started, os.getpid())
        for _ in range(2):
            listener.guard("Keeping what was seen", listener.tick)
        listener.guard("Reading", listener.take, {"status": "exited", "ended": "exited", "exit_code": 3, "done": True})
        return Left(3, None)

    monkeypatch.setenv("XTTSBENCH_RUNTIME", str(tmp_path / "runtime"))
    monkeypatch.setattr("xttsbench.workflows.watch.run_whole", run)
    (tmp_path / "train.py").write_text("", encoding="utf-8")
    at = 0
    while True:
        at += 1
        out, disk, found = tmp_path / str(at), Disk(code, at, stays=stays), []
        asked = Request(script=str(tmp_path / "train.py"), out=out)
        with disk.used_for_all():
            said = sentence(lambda asked=asked, found=found: found.append(watch(asked, lambda _: None)))
        if said is not None:  # the run's directory could not be made, and the script was not begun
            assert os.strerror(code) in said
            assert at not in ran
            continue
        (ended,) = found
        assert (ended.exit_code, ended.summary.ended, ended.summary.exit_code) == (5, "exited", 3)
        assert ended.summary.step_time_s.estimate == pytest.approx(0.01)
        if not disk.failed:
            break
        if code == errno.EIO:  # it failed once: of the summary at least that of the end is whole
            assert json.loads((out / "summary.json").read_text())["exit_code"] == 3
        elif ended.summary.notes:
            assert os.strerror(code) in str(ended.summary.notes)
    assert len(ran) > 8
