"""Options that several commands have, and what they mean: each is written once."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from xttsbench.cli.defaults import given
from xttsbench.shipped import Kind, available

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A keyword argument of the target; repeatable."),
]
Accelerator = Annotated[
    str, typer.Option(help="real, emulated:MS (milliseconds a step) or emulated:FILE (recorded step times).")
]
Steps = Annotated[
    int | None, typer.Option(min=4, help="Steps to measure where time allows (default 400).", show_default=False)
]
TrialSteps = Annotated[
    int | None,
    typer.Option(min=4, max=5000, help="Steps to measure in a trial, where its window allows.", show_default=False),
]
Budget = Annotated[
    float | None,
    typer.Option(min=10, help="Seconds for everything; no trial begins that would not end.", show_default=False),
]
Data = Annotated[Path | None, typer.Option(help="Data directory of the bundled workload.", show_default=False)]
Out = Annotated[
    Path | None,
    typer.Option(help="The run's own directory (default reports/<UTC time>-<name>/).", show_default=False),
]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Seed of the order, the trials and the bootstrap.", show_default=False)
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run that --out names.")]
Workers = Annotated[
    int | None, typer.Option(min=1, max=256, help="Processes (default: the allowed cores).", show_default=False)
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 3 if something stays undecided.")]
AsJson = Annotated[bool, typer.Option("--json", help="The record as JSON on standard output.")]
Open = Annotated[bool, typer.Option("--open", help="Open report.html in a browser at the end.")]
Verbose = Annotated[
    int,
    typer.Option(
        "-v",
        "--verbose",
        count=True,
        help="Also findings, fixes, experiments and pipeline; -vv: all.",
        show_default=False,
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="The answer in one line.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


def names(kind: Kind) -> Callable[[str], list[str]]:
    """What is shipped of a kind, for the completion of a shell."""
    return lambda incomplete: [name for name in available(kind) if name.startswith(incomplete)]


def detail(verbose: int, *, quiet: bool) -> int:
    """How much is printed: -1 one line, 0 the answer on one screen, 1 what stands behind it, 2 everything."""
    return -1 if quiet else min(verbose, 2)


def typed(context: typer.Context) -> str:
    """The command line as it can be typed again, with the options that ``pyproject.toml`` gave, for the report."""
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    return shlex.join(["xttsbench", *words[:end], *given(context), *words[end:]])


def arguments_of(settings: list[str] | None) -> dict[str, object]:
    """Keyword arguments of a target, from ``--set``.

    Raises:
        UsageError: one is not ``KEY=VALUE``.
    """
    from xttsbench.targets.spec import parse_setting

    return dict(parse_setting(text) for text in settings or [])
