"""What ``run`` and ``sweep`` have in common: options of a scenario, and how either ends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from xttsbench.workflows.outcome import Outcome

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A keyword argument for all arms; repeatable."),
]
Steps = Annotated[
    int | None,
    typer.Option(min=4, max=5000, help="Steps to measure in a trial, where its window allows.", show_default=False),
]
Budget = Annotated[
    float | None,
    typer.Option(min=10, help="Seconds for everything; no block begins that would not end.", show_default=False),
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
AsJson = Annotated[bool, typer.Option("--json", help="The report as JSON on standard output.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


def end(outcome: Outcome, *, as_json: bool, debug: bool) -> NoReturn:
    """Print what came of it, and leave with its exit code."""
    from xttsbench.cli.diagnose import say_traceback
    from xttsbench.cli.output import show

    show(outcome, as_json=as_json)
    if debug and (error := outcome.report.target.get("error")):
        say_traceback(str(error.get("traceback", "")))
    raise typer.Exit(outcome.exit_code)
