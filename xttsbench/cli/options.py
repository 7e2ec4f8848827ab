"""Options that several commands have, and what they mean: each is written once.

Defaults of options from the working directory's ``pyproject.toml``; what the command line says comes after them and
wins.

::

    [tool.xttsbench]            # every command that measures: diagnose, optimize, run, sweep
    accelerator = "emulated:10"

    [tool.xttsbench.diagnose]   # one command; what it says wins over the general table
    budget = 120
    set = ["batch_size=16"]
"""

from __future__ import annotations

import inspect
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from xttsbench.errors import UsageError
from xttsbench.inputs import read_text
from xttsbench.shipped import Kind, available

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")

Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A keyword argument of the target; repeatable.")
]
Accelerator = Annotated[
    str,
    typer.Option(
        help="real, emulated:MS or emulated:FILE: a wait of MS milliseconds, or of recorded step times, in place "
        "of the training step of a script or a Keras model, or after the step that a target returns beside its "
        "dataset."
    ),
]
Steps = Annotated[int | None, typer.Option(min=4, help="Steps to measure where time allows (default 400).")]
TrialSteps = Annotated[
    int | None,
    typer.Option(min=4, max=5000, help="Steps of a process by itself, more where they are fast; turns have what fits."),
]
Budget = Annotated[
    float | None,
    typer.Option(min=10, help="Seconds for everything; a trial begins only where it is expected to end in time."),
]
Data = Annotated[Path | None, typer.Option(help="Data directory of the bundled workload.")]
Out = Annotated[Path | None, typer.Option(help="The run's own directory (default reports/<UTC time>-<name>/).")]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of the order, of the trials, and of random draws.")]
Redact = Annotated[
    bool, typer.Option("--redact", help="Leave argument values, absolute paths and names out of what is written.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run that --out names.")]
On = Annotated[
    str | None,
    typer.Option(
        metavar="ray[:ADDRESS]",
        help="Measure on the devices of a Ray cluster: each GPU, or of a machine without one its processors (default: "
        "this machine).",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, max=256, help="Processes (default: the allowed cores, or fewer where there is little work)."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 3 where the result is undecided.")]
KeepWrites = Annotated[bool, typer.Option("--keep-writes", help="A script's first run writes to disk, not memory.")]
Repeat = Annotated[bool, typer.Option("--repeat", help="A script may run again, whatever its first run did.")]
ShowOutput = Annotated[bool, typer.Option("--show-output", help="Let through what the target prints.")]
AssumePure = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODULE.FUNCTION",
        help="A function whose result depends on its arguments alone, where its code leaves a doubt; samples are still "
        "compared. Repeatable.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Open = Annotated[bool, typer.Option("--open", help="Open report.html in a browser at the end.")]
Verbose = Annotated[
    int,
    typer.Option(
        "-v",
        "--verbose",
        count=True,
        help="Print the evidence as well; -vv: everything.",
        show_default=False,
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print the answer in one line.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


_SHARED: Final[dict[str, tuple[Any, Any]]] = {
    "out": (Out, None),
    "redact": (Redact, False),
    "strict": (Strict, False),
    "show_output": (ShowOutput, False),
    "browse": (Open, False),
    "verbose": (Verbose, 0),
    "quiet": (Quiet, False),
    "as_json": (AsJson, False),
    "debug": (Debug, False),
}
"""Options that commands read from their context (:func:`asked`, :func:`~xttsbench.cli.output.end`), and defaults."""


def shared(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command options of :data:`_SHARED`, behind its own."""

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)

        @wraps(command)
        def run(**given: Any) -> None:
            command(**{name: given[name] for name in own.parameters})

        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option)
            for name, (option, default) in _SHARED.items()
            if name in names
        ]
        run.__signature__ = own.replace(parameters=[*own.parameters.values(), *added])  # type: ignore[attr-defined]
        run.__annotations__ |= {one.name: one.annotation for one in added}
        return run

    return with_options


def names(kind: Kind) -> Callable[[str], list[str]]:
    """Completion for a shell: the shipped names of a kind."""
    return lambda incomplete: [name for name in available(kind) if name.startswith(incomplete)]


def detail(context: typer.Context) -> int:
    """Level of printed detail: -1 one line, 0 the answer on one screen, 1 its evidence, 2 everything."""
    return -1 if context.params["quiet"] else min(context.params.get("verbose", 0), 2)


def typed() -> str:
    """The command line as it can be typed again, with the options that ``pyproject.toml`` gave, for the report."""
    return shlex.join(["xttsbench", *sys.argv[1:]])


def asked(context: typer.Context, kind: type[R], **own: Any) -> R:
    """The request of a workflow: its fields by the options of the same names, under what is given by hand.

    ``command`` is the command line; what a target prints goes to standard error where standard output is for JSON.
    """
    given = {**context.params, "command": typed(), "print_to_stderr": context.params["as_json"], **own}
    return kind(**{field.name: given[field.name] for field in fields(kind) if field.name in given})


def arguments_of(settings: list[str] | None) -> dict[str, object]:
    """Keyword arguments of a target, from ``--set``.

    Raises:
        UsageError: one is not ``KEY=VALUE``.
    """
    from xttsbench.targets.spec import parse_setting

    return dict(parse_setting(text) for text in settings or [])


FILE: Final = Path("pyproject.toml")
_TABLE: Final = "tool.xttsbench"
_MEASURING: Final = ("diagnose", "optimize", "run", "sweep")
_NO_DEFAULT: Final = ("--help", "--json", "--debug", "--resume")  # options that are about one call


def with_defaults(arguments: list[str], commands: Callable[[], Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """The command line with the options that the file gives, before its own, and they alone.

    ``commands`` gives the parser's, which are looked at only where the file has a table; values are its to check.

    Raises:
        UsageError: the file is not TOML, or names a command or an option that there is not; the nearest one is named.
    """
    if not (table := _read(FILE)):
        return arguments, []
    known = {name: one for name, command in commands().items() for name, one in _parts(name, command)}
    tables: dict[str, dict[str, Any]] = {"": {}}  # the general one has no name
    for name, value in table.items():
        for key, one in value.items() if isinstance(value, dict) else ():
            path, options = (f"{name}.{key}", one) if isinstance(one, dict) else (name, {key: one})
            tables[path] = tables.get(path, {}) | options
        if not isinstance(value, dict):
            tables[""][name] = value
    measuring = {option: one for name in _MEASURING for option, one in known[name].items()}
    chosen: dict[str, list[str]] = {}
    for path, options in tables.items():
        where = f"{FILE}: [{_TABLE}{path and '.'}{path}]"
        if path and path not in known:
            raise UsageError(f"{where}: no command is called {path!r}{_nearest(path, known)}")
        allowed = known[path] if path else measuring
        named = path.split(".") if path else [name for name in _MEASURING if name in arguments[:1]]
        for key, value in options.items():
            option = f"--{key.replace('_', '-')}"
            if option not in allowed or option in _NO_DEFAULT:
                raise UsageError(f"{where} {key}: there is no such option{_nearest(option, allowed)}")
            words = _words(option, allowed[option], value, f"{where} {key}")
            if arguments[: len(named)] == named and option in known.get(".".join(named), ()):
                chosen[option] = words
    found, start = [*chain.from_iterable(chosen.values())], 2 if ".".join(arguments[:2]) in known else 1
    return [*arguments[:start], *found, *arguments[start:]], found


def _parts(name: str, command: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Long options of a command, or of those that a group has, by ``group.command``."""
    if (own := getattr(command, "commands", None)) is not None:
        for below, one in own.items():
            yield from _parts(f"{name}.{below}", one)
        return
    yield name, {option: one for one in command.params for option in one.opts if option.startswith("--")}


def _words(option: str, parameter: Any, value: Any, where: str) -> list[str]:
    if parameter.is_flag or parameter.count:
        return [option] * value if isinstance(value, int) else [f"{option}={value}"]  # which the parser refuses
    if isinstance(value, bool):
        raise UsageError(f"{where} = {value!r}: give it a value.")
    return [f"{option}={one}" for one in (value if isinstance(value, list) else [value])]


def _read(file: Path) -> dict[str, Any]:
    try:
        tool = tomllib.loads(read_text(file)).get("tool", {})
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{file} cannot be read for [{_TABLE}]: {reason}.") from error
    table = tool.get("xttsbench", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"{file}: {_TABLE} is {table!r}; write it as a table, [{_TABLE}].")
    return table


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.4)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(names)}."
