"""What a command's exit code says: 3 only for a gate, or where it was asked for with ``--strict``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.cli.made import invoke


@dataclass
class Ended:
    """How a workflow ended, with a report of one limiting finding."""

    exit_code: int
    message: str | None = "Undecided: for want of time."
    warnings: tuple[str, ...] = ()
    directory: Path = Path("reports/run")
    report: Any = field(
        default_factory=lambda: SimpleNamespace(
            findings=[SimpleNamespace(rule="cold-storage", title="slow", limiting=True, severity="warning")],
            target={},
            verdict=SimpleNamespace(step_time_s=None),
            arms=(),
            parity=None,
            proof=None,
            scale=None,
        )
    )


ENTRIES = {
    "diagnose": ("xttsbench.workflows.diagnose.diagnose", ["diagnose", "mine:make"]),
    "run": ("xttsbench.workflows.scenario.run", ["run", "loader"]),
    "sweep": ("xttsbench.workflows.scenario.sweep", ["sweep", "--grid", "loader"]),
    "optimize": ("xttsbench.workflows.diagnose.optimize", ["optimize", "mine:make"]),
}


def left(monkeypatch: pytest.MonkeyPatch, command: str, code: int, *options: str) -> Any:
    where, arguments = ENTRIES[command]
    monkeypatch.setattr(where, lambda *_, **__: Ended(code))
    return invoke(*arguments, *options)


@pytest.mark.parametrize("command", list(ENTRIES))
@pytest.mark.parametrize(
    ("code", "options", "expected"),
    [(3, [], 0), (3, ["--strict"], 3), (0, ["--strict"], 0), (4, [], 4), (5, [], 5), (130, ["--strict"], 130)],
)
def test_undecided_is_3_where_it_was_asked_for(monkeypatch, command, code, options, expected) -> None:
    result = left(monkeypatch, command, code, *options)
    assert result.exit_code == expected, result.output
    assert "Undecided: for want of time." in result.stderr


@pytest.mark.parametrize(
    ("code", "level", "expected"), [(3, "warning", 3), (0, "warning", 1), (0, "critical", 0), (5, "warning", 5)]
)
def test_a_gate_of_findings_fails_passes_or_says_that_it_could_not_tell(monkeypatch, code, level, expected) -> None:
    result = left(monkeypatch, "diagnose", code, "--fail-on", level)
    assert result.exit_code == expected
    assert ("--fail-on warning: cold-storage: slow" in result.stderr) == (expected == 1)


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("opens", [True, False])
@pytest.mark.parametrize("command", list(ENTRIES))
def test_the_page_is_opened_where_it_was_asked_for(monkeypatch, tmp_path, command, opens, written) -> None:
    where, arguments = ENTRIES[command]
    page, opened = tmp_path / "report.html", []
    if written:
        page.touch()
    monkeypatch.setattr(where, lambda *_, **__: Ended(1, directory=tmp_path))
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or opens)
    invoke(*arguments)
    assert not opened
    result = invoke(*arguments, "--open")
    assert result.exit_code == 1
    assert opened == [page.as_uri()] * written
    assert ("Warning: --open" in result.stderr) == (not (opens and written))


def test_the_page_of_a_watched_run_is_opened_too(monkeypatch, tmp_path) -> None:
    opened = []
    (tmp_path / "report.html").touch()
    monkeypatch.setattr("xttsbench.cli.measure.show_run", lambda *_, **__: True)
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    result = invoke("report", tmp_path, "--open")
    assert (result.exit_code, opened) == (0, [(tmp_path / "report.html").as_uri()])
