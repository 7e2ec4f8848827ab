"""``xttsbench doctor``: what is wrong with this machine for TensorFlow, each with its remedy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from xttsbench.cli.options import AsJson, Debug, Quiet, Verbose, detail, typed
from xttsbench.cli.output import rendered


def doctor(
    context: typer.Context,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="A data set, to read a sample of its files cold and warm.", show_default=False
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="A run with these data, which says how fast they are needed.", show_default=False
        ),
    ] = None,
    patience: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long TensorFlow may take to start and compute.")
    ] = 180.0,
    verbose: Verbose = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say what is wrong with this machine for TensorFlow, each with its remedy: GPU, XLA, threads, memory, disks.

    Exit code 0: nothing is broken; 1: something is.

    Example:  xttsbench doctor --data my_data
    """
    from xttsbench.errors import UsageError
    from xttsbench.reporting.sections.doctor import doctor_document
    from xttsbench.workflows.doctor import Request
    from xttsbench.workflows.doctor import doctor as examine

    if run is not None and data is None:
        raise UsageError("--run says how fast files are needed: name them with --data, too.")
    found = examine(Request(data=data, run=run, patience_s=patience, command=typed(context)))
    if as_json:
        sys.stdout.write(found.model_dump_json(indent=2) + "\n")
    else:
        sys.stdout.write(rendered(doctor_document(found), detail(verbose, quiet=quiet)))
    sys.stdout.flush()
    raise typer.Exit(1 if found.of("broken") else 0)
