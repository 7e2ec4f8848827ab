"""The command line in this process, for tests of what it says and of its exit codes."""

from __future__ import annotations

from typing import Final
from unittest.mock import patch

from click.testing import Result
from typer.main import get_command
from typer.testing import CliRunner

from xttsbench.cli.app import app

COMMAND: Final = get_command(app)


def invoke(*arguments: object, plain: bool = False) -> Result:
    """What a command wrote, its exit code, and the exception that ended it; ``plain`` is a terminal without colour.

    Typer's runner would build the whole command anew for each call, which takes longer than most of them do.
    """
    environment = {"NO_COLOR": "1", "TERM": "dumb"} if plain else None
    with patch("typer.testing._get_command", lambda _: COMMAND):
        return CliRunner().invoke(app, list(map(str, arguments)), env=environment)
