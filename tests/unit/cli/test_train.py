"""``xttsbench train`` on the command line: an optional value of ``--best``, dotted settings, and what is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from xttsbench.cli.train import with_value_of_best
from xttsbench.errors import HelperError


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leave) -> Any:
    """``command(*arguments)``: exit code, standard error, and the request that came so far as to be run."""
    monkeypatch.chdir(tmp_path)
    asked: list[Any] = []

    def train(request: Any, **_: Any) -> None:
        asked.append(request)
        raise HelperError("far enough")

    monkeypatch.setattr("xttsbench.workflows.train.train", train)

    def run(*arguments: str) -> tuple[Any, str, Any]:
        left = leave("train", *arguments)
        return left.code, left.err, asked[-1] if asked else None

    return run


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        (["--best"], ["--best=newest"]),
        (["--best", "--steps", "3"], ["--best=newest", "--steps", "3"]),
        (["--best", "tiny"], ["--best=newest", "tiny"]),
        (["tiny", "--best", "reports/x"], ["tiny", "--best", "reports/x"]),
        (["--best=reports/x"], ["--best=reports/x"]),
        ([], []),
    ],
)
def test_best_has_a_value_where_one_follows(given: list[str], parsed: list[str]) -> None:
    assert with_value_of_best(given) == parsed


def test_everything_that_is_asked_for_arrives(command) -> None:
    code, err, request = command(
        *("tiny", "--best", "--steps", "7", "--seed", "3", "--checkpoint-every", "2", "--no-resume", "--out", "o"),
        *("--strategy", "mirrored", "--logical-cpus", "2", "--accumulation", "4", "--input-workers", "1"),
        *("--device-memory-mb", "512", "--no-native-loader", "--no-device-prefetch", "--no-overlap"),
        *("--no-graph", "--no-xla", "--no-bucketing", "--no-listening", "--accelerator", "emulated:5"),
        *("--set", "threads=2", "--set", "optimizer.learning_rate=1e-4"),
    )
    assert (code, "far enough" in err) == (1, True)
    assert (request.recipe, request.best, request.best_path) == ("tiny", True, None)
    assert (request.steps, request.seed, request.checkpoint_every, request.resume) == (7, 3, 2, False)
    assert (request.out, request.strategy, request.logical_cpus, request.accumulation) == (Path("o"), "mirrored", 2, 4)
    assert (request.input_workers, request.device_memory_mb) == (1, 512)
    assert request.settings == {"threads": 2, "optimizer.learning_rate": 1e-4}
    assert request.accelerator.step_times_ms == (5.0,)
    switches = ("native_loader", "device_prefetch", "overlap", "graph", "xla", "bucketing", "listen")
    assert not any(getattr(request, name) for name in switches)


def test_without_options_everything_is_on(command) -> None:
    _, _, request = command()
    assert (request.recipe, request.best, request.resume) == ("tiny", False, True)
    switches = ("native_loader", "device_prefetch", "overlap", "graph", "xla", "bucketing", "listen")
    assert all(getattr(request, name) for name in switches)


def test_a_named_best_is_a_path(command) -> None:
    _, _, request = command("small", "--best", "reports/there")
    assert (request.recipe, request.best, request.best_path) == ("small", True, Path("reports/there"))


@pytest.mark.parametrize("setting", ["optimizer.=1", ".x=1", "a..b=1", "no value"])
def test_a_setting_that_is_none_is_refused(command, setting: str) -> None:
    code, err, request = command("--set", setting)
    assert (code, request) == (2, None)
    assert "KEY=VALUE" in err
