"""The Typer application and its door ``main``, which turns errors into one sentence and an exit code."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
import sys
import traceback
from codecs import register_error
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_group

from xttsbench import __version__
from xttsbench.cli.data import app as data
from xttsbench.cli.machine import doctor, monitor
from xttsbench.cli.measure import diagnose, optimize, run, sweep, watch
from xttsbench.cli.options import FILE, with_defaults
from xttsbench.cli.output import say
from xttsbench.cli.plan import plan
from xttsbench.cli.prove import prove
from xttsbench.cli.read import compare, explain, export, init, list_, report
from xttsbench.cli.service import app as service
from xttsbench.cli.shards import attach, shard
from xttsbench.cli.train import train, with_value_of_best
from xttsbench.errors import UsageError, XttsbenchError, first_line
from xttsbench.execution.ending import BY_SIGNAL, asked, heeded
from xttsbench.owners import owner


class _InterruptedError(Exception):
    """The user broke a command off; Typer would leave without a word."""


class _Group(TyperGroup):
    """The commands; an interruption of one reaches :func:`main`."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _InterruptedError from None


app = typer.Typer(
    name="xttsbench",
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Find why a TensorFlow training step takes as long as it does, and prove it by experiment.",
    epilog="Defaults of options stand in pyproject.toml of the working directory: `budget = 120` under "
    r"\[tool.xttsbench.diagnose].",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"xttsbench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of xttsbench itself."""


_BUNDLED: Final = "The bundled speech model"

_MEASURING: Final = (diagnose, optimize, prove, plan, watch, compare, run, sweep)
for command in (*_MEASURING, monitor, report, export, doctor, explain, list_, init):
    app.command(command.__name__.rstrip("_"))(command)
app.command("train", rich_help_panel=_BUNDLED)(train)
for command in (shard, attach):
    data.command(command.__name__)(command)
app.add_typer(data, rich_help_panel=_BUNDLED)
app.add_typer(service)


def main() -> None:
    """Run the command line; errors that are ours become one sentence on standard error."""
    arguments, given = sys.argv[1:], list[str]()
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    _survive_the_terminal(_without_secrets(arguments))
    with heeded():
        try:
            if "--help" not in own:
                arguments, given = with_defaults(arguments, lambda: get_group(app).commands)
                sys.argv[1:] = arguments
            app(with_value_of_best(arguments) if arguments[:1] == ["train"] else arguments, prog_name="xttsbench")
        except XttsbenchError as error:
            if "--debug" in own:
                traceback.print_exc()
            say(f"Error: {error}")
            sys.exit(error.exit_code)
        except _InterruptedError:
            say(f"Interrupted.{_what_is_left()}")
            sys.exit(BY_SIGNAL + next(iter(asked), signal.SIGINT))
        except SystemExit as left:
            # It ended well and was asked to end: whoever asked for that does not want what comes next.
            if asked and left.code in (None, 0, BY_SIGNAL + signal.SIGINT):
                sys.exit(BY_SIGNAL + asked[0])
            if left.code == UsageError.exit_code and given:
                say(f"{FILE} gives {shlex.join(given)}")
            raise
        except Exception as error:
            if "--debug" in own:
                traceback.print_exc()
            message, code = _unforeseen(error)
            say(f"Error: {message}")
            sys.exit(code)


_UNFORESEEN: Final = 70  # EX_SOFTWARE of sysexits.h


def _unforeseen(error: Exception) -> tuple[str, int]:
    """One sentence for what nobody foresaw, and the exit code."""
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        name = os.fsdecode(error.filename or "")
        return f"{name[:60]!r}... has {len(name)} characters, which is too long for a path; name another.", 2
    ours = [one for one in traceback.extract_tb(error.__traceback__) if owner(one.filename) in ("ours", "workload")]
    frame = ours[-1]
    place = f"{os.path.relpath(frame.filename, Path(__file__).parents[2])}:{frame.lineno}"
    said = f"{type(error).__name__}: {first_line(error)}"
    return f"this is a bug in xttsbench: {said} at {place}; --debug shows the traceback.{_what_is_left()}", _UNFORESEEN


def _what_is_left() -> str:
    """Sentence on the command that reports an interrupted run's measurements; empty where there are none."""
    from xttsbench.execution.journal import TRIALS
    from xttsbench.execution.run_directory import held

    directory = next((one for one in reversed(held) if (one / TRIALS).exists()), None)
    if directory is None:
        return ""
    command = shlex.join(["xttsbench", "report", str(directory)])
    return f" What was measured is kept; its report: {command}"


def _without_secrets(arguments: list[str]) -> Callable[[str], str]:
    """Filter that masks the secrets among the arguments in any printed text."""
    if len(arguments) < 2 or "--help" in arguments:
        return lambda text: text
    from xttsbench.records.redaction import Redaction  # not at the top: help comes without it

    found = Redaction()
    found.kept(arguments)
    return Redaction(found.secrets()).without_known


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Escapes of characters that a stream cannot encode: an error handler of codecs."""
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _survive_the_terminal(shown: Callable[[str], str]) -> None:
    """Let a command run to its own end and exit code where whoever read its output has gone (``| head``).

    What the terminal has no sign for is shown as JSON would escape it, and everything as ``shown`` makes it.
    """
    register_error("xttsbench", _escaped)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is TextIOWrapper:
            setattr(
                sys,
                name,
                _Stream(
                    stream.buffer,
                    encoding=stream.encoding,
                    errors="xttsbench" if stream.errors in ("strict", "surrogateescape") else stream.errors,
                    line_buffering=stream.line_buffering,
                    write_through=stream.write_through,
                ),
            )
            getattr(sys, name).shown = shown


_FOREIGN: Final = re.compile(
    r"\x1b(?!\[(?:[0-9;]*[mKAHJ]|\?[0-9]+[hl]))"  # escapes but for colours and what progress and monitor draw with
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
"""Orders to a terminal that a file or a target may hold; each is shown as JSON would escape it."""


class _Stream(TextIOWrapper):
    """Standard output or error, whose text goes nowhere once nobody reads it any more."""

    shown: Callable[[str], str]

    def write(self, text: str, /) -> int:
        try:
            return super().write(self.shown(_FOREIGN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)))
        except BrokenPipeError:
            self._discard()
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self._discard()

    def _discard(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
