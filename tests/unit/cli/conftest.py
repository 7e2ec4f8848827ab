"""The command line as its door runs it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from xttsbench.cli import main


class Left(NamedTuple):
    code: int | str | None
    out: str
    err: str


@pytest.fixture
def leave(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Left]:
    """``leave(*arguments)``: with what the command ended, and what it wrote."""

    def run(*arguments: str) -> Left:
        monkeypatch.setattr(sys, "argv", ["xttsbench", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return Left(ended.value.code, *capsys.readouterr())

    return run
