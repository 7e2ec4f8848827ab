"""Options that several commands have, and what they mean: each is written once.

Defaults of options from the working directory's ``pyproject.toml``; what the command line says comes before them.

::

    [tool.xttsbench]            # every command that measures: diagnose, optimize, run, sweep
    accelerator = "emulated:10"

    [tool.xttsbench.diagnose]   # one command; its table comes before the general one
    budget = 120
    set = ["batch_size=16"]
"""

from __future__ import annotations

import shlex
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
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
    int | None, typer.Option(min=4, max=5000, help="Steps to measure in a trial, where its window allows.")
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


def names(kind: Kind) -> Callable[[str], list[str]]:
    """Completion for a shell: the shipped names of a kind."""
    return lambda incomplete: [name for name in available(kind) if name.startswith(incomplete)]


def detail(context: typer.Context) -> int:
    """Level of printed detail: -1 one line, 0 the answer on one screen, 1 its evidence, 2 everything."""
    return -1 if context.params["quiet"] else min(context.params.get("verbose", 0), 2)


def typed(context: typer.Context) -> str:
    """The command line as it can be typed again, with the options that ``pyproject.toml`` gave, for the report."""
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    return shlex.join(["xttsbench", *words[:end], *given(context), *words[end:]])


def asked(context: typer.Context, kind: type[R], **own: Any) -> R:
    """The request of a workflow: its fields by the options of the same names, under what is given by hand.

    ``command`` is the command line; what a target prints goes to standard error where standard output is for JSON.
    """
    given = {**context.params, "command": typed(context), "print_to_stderr": context.params["as_json"], **own}
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
_NO_DEFAULT: Final = ("help", "json", "debug", "resume")  # options that are about one call


def read_defaults(context: typer.Context, file: Path = FILE) -> dict[str, Any]:
    """Defaults in the file for each command, as Typer takes them: command -> parameter -> value (or commands again).

    Without a file, or a table in it, there are no defaults.

    Raises:
        UsageError: it is not TOML, or a key or a value is not one of an option; the nearest option is named.
    """
    try:
        content = tomllib.loads(read_text(file))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{file} cannot be read for [{_TABLE}]: {reason}.") from error
    tool = content.get("tool", {})
    table = tool.get("xttsbench", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"{file}: {_TABLE} is {table!r}; write it as a table, [{_TABLE}].")
    commands: Mapping[str, Any] = context.command.commands  # type: ignore[attr-defined]
    tables = {name: value for name, value in table.items() if isinstance(value, dict)}
    general = {name: value for name, value in table.items() if name not in tables}
    found = _of_commands(commands, tables, _TABLE, context, file)
    measuring = {name: _options(commands[name]) for name in _MEASURING}
    known = {option for options in measuring.values() for option in options}
    for key, value in general.items():
        option = _known(key, known, commands, f"[{_TABLE}]", file)
        for name, options in measuring.items():
            if option in options:
                taken = _value(options[option], value, f"[{_TABLE}] {key}", context, file)
                found.setdefault(name, {}).setdefault(options[option].name, taken)
    return found


def given(context: typer.Context) -> Iterator[str]:
    """The options of a command that the file gave, as words of a command line."""
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if source is None or source.name != "DEFAULT_MAP":
            continue
        value = context.params[str(parameter.name)]
        if isinstance(value, bool):
            yield from (parameter.opts if value else parameter.secondary_opts)[:1]
            continue
        for one in value if isinstance(value, list | tuple) else (value,):
            yield from (parameter.opts[0], str(one))


def _of_commands(
    commands: Mapping[str, Any], tables: Mapping[str, Any], path: str, context: typer.Context, file: Path
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, table in tables.items():
        if name not in commands:
            raise UsageError(f"{file}: [{path}.{name}]: no command is called {name!r}{_nearest(name, commands)}")
        where, command = f"{path}.{name}", commands[name]
        if hasattr(command, "commands"):
            odd = next((key for key, value in table.items() if not isinstance(value, dict)), None)
            if odd is not None:
                raise UsageError(f"{file}: [{where}] {odd}: give it to one command: [{where}.COMMAND].")
            found[name] = _of_commands(command.commands, table, where, context, file)
            continue
        options = _options(command)
        found[name] = {}
        for key, value in table.items():
            parameter = options[_known(key, options, (), f"[{where}]", file)]
            found[name][parameter.name] = _value(parameter, value, f"[{where}] {key}", context, file)
    return found


def _options(command: Any) -> dict[str, Any]:
    """Long option without its dashes -> parameter."""
    return {
        name.removeprefix("--"): parameter
        for parameter in command.params
        if parameter.param_type_name == "option"
        for name in parameter.opts
        if name.startswith("--") and name.removeprefix("--") not in _NO_DEFAULT
    }


def _known(key: str, options: Iterable[str], commands: Iterable[str], where: str, file: Path) -> str:
    name = key.replace("_", "-")
    if name in options:
        return name
    raise UsageError(f"{file}: {where} {key}: there is no such option{_nearest(name, (*options, *commands))}")


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.4)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(names)}."


def _value(parameter: Any, value: Any, where: str, context: typer.Context, file: Path) -> Any:
    """The value as the command line would bring it, where the option takes it."""
    if isinstance(value, dict) or (isinstance(value, list) and not parameter.multiple):
        raise UsageError(f"{file}: {where} = {value!r}: give it one value.")
    if parameter.is_flag != isinstance(value, bool):
        raise UsageError(f"{file}: {where} = {value!r}: give it {'true or false' if parameter.is_flag else 'a value'}.")
    several = value if isinstance(value, list) else [value]
    words = value if parameter.is_flag else [str(one) for one in several] if parameter.multiple else str(value)
    try:
        parameter.process_value(context, words)
    except typer.BadParameter as error:
        raise UsageError(f"{file}: {where} = {value!r}: {error.message.rstrip('.')}.") from error
    return words
