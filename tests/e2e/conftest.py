"""What the end-to-end tests share: one helper for all blocks."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from xttsbench.cli import main
from xttsbench.execution.helper import Helper
from xttsbench.records.report import Report

Called = Callable[..., tuple[Any, str, str]]
Diagnose = Callable[..., tuple[int, dict[str, Any]]]
TARGETS = Path(__file__).parents[1] / "targets"
BUDGET_S = 20


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """What a shell starts in the background ignores SIGINT, and so would all that tests start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _nothing_goes_on() -> Iterator[None]:
    """What a test that failed has left running would run for ever."""
    before = set(psutil.Process().children(recursive=True))
    yield
    for left in set(psutil.Process().children(recursive=True)) - before:
        with contextlib.suppress(psutil.NoSuchProcess):
            left.kill()


class Shared:
    """Stands for a helper of a block's own, and leaves the one that it is when the block is over."""

    def __init__(self, helper: Helper) -> None:
        self.helper = helper

    def __getattr__(self, name: str) -> Any:
        return getattr(self.helper, name)

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait_ready(self) -> None:
        pass


@pytest.fixture(scope="session")
def helper() -> Iterator[Helper]:
    """A helper that is started once: TensorFlow takes seconds to import."""
    with Helper(print_to_stderr=True) as started:
        started.wait_ready()
        yield started


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch) -> Callable[[Helper], None]:
    """``share(helper)``: runs in this process use that one for all of their blocks."""
    return lambda helper: monkeypatch.setattr("xttsbench.workflows.measure.session.Helper", lambda **_: Shared(helper))


@pytest.fixture
def on_one_helper(helper: Helper, share: Callable[[Helper], None]) -> None:
    """Runs in this process use the one that is started once."""
    share(helper)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Called:
    """``called(*words)``: the command, run in this process: exit code, standard output and error."""

    def run(*words: object) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["xttsbench", *map(str, words)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capfd.readouterr()

    return run


@pytest.fixture
def diagnose(on_one_helper: None, called: Called, monkeypatch: pytest.MonkeyPatch) -> Diagnose:
    """``diagnose(target, out, *options, budget_s=...)``: exit code and report of the command, run in this process, on
    the one helper that has imported TensorFlow.

    What is asked here is the verdict, so of the report only the record is written: plots take seconds.
    ``test_cli.py`` runs the command as a user does.
    """

    def write(directory: Path, report: Report, _trials: object) -> None:
        (directory / "report.json").write_text(report.model_dump_json(), encoding="utf-8")

    monkeypatch.setattr("xttsbench.reporting.page.write_run", write)

    def run(target: str, out: Path, *options: str, budget_s: int = BUDGET_S) -> tuple[int, dict[str, Any]]:
        budget_s *= 2 if out.parent.name == "again" else 1  # a second try has more time: the machine may be a slow one
        always = ("--json", "--no-verify", "--out", str(out), "--budget", str(budget_s))
        code, shown, err = called("diagnose", TARGETS / target, *always, *options)
        assert (out / "report.json").is_file(), err
        return code, json.loads(shown)

    return run
