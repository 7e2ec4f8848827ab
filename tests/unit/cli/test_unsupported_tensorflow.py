"""Every command that measures ends before anything is made, where TensorFlow is of another version."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from xttsbench.cli import main


@pytest.mark.parametrize(
    "command",
    [
        ("diagnose",),
        ("diagnose", "mine.py:make"),
        ("optimize", "mine.py:make"),
        ("run", "loader"),
        ("sweep", "--grid", "loader"),
        ("train", "tiny"),
    ],
)
def test_an_unsupported_tensorflow_ends_a_command_before_anything_is_made(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text("def make():\n    raise AssertionError\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XTTSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "2.18.1")
    monkeypatch.setattr(sys, "argv", ["xttsbench", *command])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out) == (1, "")
    assert shown.err.startswith(
        "Error: xttsbench works with TensorFlow 2.19, 2.20 and 2.21, and this environment has 2.18.1;"
    )
    assert len(shown.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "mine.py"]
