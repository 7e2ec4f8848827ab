"""``xttsbench report DIR``: the report again, without TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run's directory, e.g. one under reports/.")],
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON on standard output.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Build the report again from the raw samples, without TensorFlow.

    Example:  xttsbench report reports/20261121T080000Z-diagnose-make
    """
    from xttsbench.cli.output import show
    from xttsbench.workflows.report import rebuild

    outcome = rebuild(directory)
    show(outcome, as_json=as_json)
    raise typer.Exit(outcome.exit_code)
