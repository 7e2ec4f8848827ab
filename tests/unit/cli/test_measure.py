"""``xttsbench diagnose --best``: what a sweep chose is what is diagnosed, and what is other here is said.

Every command that measures ends before anything is made, where TensorFlow is of another version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from xttsbench.errors import HelperError
from xttsbench.records.report import Best, Fingerprint
from xttsbench.workflows.saved import write_best


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leave) -> Any:
    """``command(*arguments)``: exit code, standard error, and the requests that came so far as to be run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def make(ms=1, prefetch=0): ...\n")
    asked: list[Any] = []

    def diagnose(request: Any, **_: Any) -> None:
        asked.append(request)
        raise HelperError("far enough")

    monkeypatch.setattr("xttsbench.workflows.diagnose.diagnose", diagnose)

    def run(*arguments: str) -> tuple[Any, str, list[Any]]:
        left = leave("diagnose", *arguments)
        return left.code, left.err, asked

    return run


@pytest.mark.parametrize("option", [("--any-order",), ("--allow", "batches")])
def test_what_fixes_were_allowed_once_is_taken_and_said_to_have_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leave: Any, option: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def make(): ...\n")
    asked: list[Any] = []
    monkeypatch.setattr("xttsbench.workflows.diagnose.optimize", lambda request, **_: asked.append(request))
    assert "--any-order and --allow have no effect" in leave("optimize", "mine.py:make", *option).err
    assert [request.target for request in asked] == ["mine.py:make"]


def written(directory: Path, **changes: Any) -> Path:
    fields: dict[str, Any] = {
        "run": "r",
        "target": "mine.py:make",
        "arm": "ms=2",
        "config": {"ms": 2, "prefetch": 4},
        "proven": True,
        "decided": True,
        "why": "ms=2 is faster.",
        "effect": None,
        "baseline": {"arm": "ms=1", "config": {}},
        "blocks": 8,
        "accelerator": {"kind": "real", "label": "real device", "source": None},
        "steps_per_trial": 9,
        "fingerprint": Fingerprint(environment="e", cpu="a processor of another time"),
        "xttsbench_version": "0.1.0",
    }
    path = write_best(directory, Best(**fields | changes))
    assert path is not None
    return path


def test_its_target_and_configuration_are_diagnosed_and_the_difference_is_named(command, tmp_path: Path) -> None:
    code, err, (request,) = command("--best", str(written(tmp_path)), "--set", "prefetch=8")
    assert (request.target, dict(request.kwargs)) == ("mine.py:make", {"ms": 2, "prefetch": 8})
    assert "processor: a processor of another time where it was found" in err
    assert "far enough" in err
    assert code not in (0, 2)


@pytest.mark.parametrize("shown", [False, True])
def test_what_a_target_prints_is_shown_where_asked_for(command, shown: bool) -> None:
    _, _, (request,) = command("mine.py:make", *(["--show-output"] if shown else []))
    assert request.show_output is shown


def test_a_baseline_that_was_kept_is_called_no_winner(command, tmp_path: Path) -> None:
    written(tmp_path, proven=False, why="ms=1 is kept: noise.")
    _, err, asked = command("--best", str(tmp_path))
    assert len(asked) == 1
    assert "proves no winner: ms=1 is kept: noise." in err


def test_that_of_another_target_is_refused(command, tmp_path: Path) -> None:
    code, err, asked = command("mine.py:other", "--best", str(written(tmp_path)))
    assert (code, asked) == (2, [])
    assert "is of mine.py:make, not of 'mine.py:other'" in err


def test_a_file_that_is_none_is_refused(command, tmp_path: Path) -> None:
    code, err, asked = command("--best", str(tmp_path / "nothing.yaml"))
    assert (code, asked) == (5, [])
    assert "name a best.yaml" in err


@pytest.mark.parametrize(
    "command",
    [
        ("diagnose",),
        ("diagnose", "mine.py:make"),
        ("optimize",),
        ("optimize", "mine.py:make"),
        ("run", "loader"),
        ("sweep", "--grid", "loader"),
        ("train", "tiny"),
    ],
)
def test_an_unsupported_tensorflow_ends_a_command_before_anything_is_made(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, leave
) -> None:
    (tmp_path / "mine.py").write_text("def make():\n    raise AssertionError\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XTTSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "2.18.1")
    shown = leave(*command)
    assert (shown.code, shown.out) == (1, "")
    assert shown.err.startswith(
        "Error: xttsbench works with TensorFlow 2.19, 2.20 and 2.21, and this environment has 2.18.1;"
    )
    assert len(shown.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "mine.py"]
