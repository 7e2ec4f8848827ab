"""``xttsbench optimize TARGET``: fixes, each verified, as a patch and as a call."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def optimize(
    target: Annotated[str, typer.Argument(help="module:callable or file.py:callable.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A keyword argument of the target; repeatable."),
    ] = None,
    accelerator: Annotated[
        str, typer.Option(help="real, emulated:MS (milliseconds a step) or emulated:FILE (recorded step times).")
    ] = "real",
    steps: Annotated[
        int | None, typer.Option(min=4, help="Steps to measure where time allows (default 400).", show_default=False)
    ] = None,
    budget: Annotated[float, typer.Option(min=60, help="Seconds for everything.")] = 300.0,
    any_order: Annotated[
        bool,
        typer.Option("--any-order", help="Fixes may give up the order of the elements (other batches)."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="The run's own directory (default reports/<UTC time>-<name>/).", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of TensorFlow, NumPy and the order of trials.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="The record on standard output.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks with errors.")] = False,
) -> None:
    """Apply fixes to a target, prove what each is worth and that it leaves the data as they are.

    Accepted is what was faster beyond doubt in turns with the original, with the same elements.
    The run's directory holds the patch of the source (patch.diff) and the plan (optimized.yaml).

    Exit code 0: fixes were accepted, or there is nothing to mend; 3: what was tried could not be decided.

    Example:  xttsbench optimize my_project/data.py:make_dataset --accelerator emulated:10
    """
    from xttsbench.cli.output import Lines, show
    from xttsbench.targets.spec import parse_setting
    from xttsbench.workflows.optimize import Request
    from xttsbench.workflows.optimize import optimize as run

    request = Request(
        target=target,
        kwargs=dict(parse_setting(text) for text in settings or []),
        accelerator=accelerator,
        steps=steps,
        budget_s=budget,
        out=out,
        seed=seed,
        any_order=any_order,
        print_to_stderr=as_json,
        command=" ".join(["xttsbench", *sys.argv[1:]]),
    )
    outcome = run(request, progress=Lines())
    show(outcome, as_json=as_json)
    if debug and (error := outcome.report.target.get("error")):
        sys.stderr.write(str(error.get("traceback", "")))
    raise typer.Exit(outcome.exit_code)
