"""``xttsbench prove OLD NEW``: whether a change of a pipeline is safe and worth it."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from xttsbench import BUDGET_S
from xttsbench.cli import options
from xttsbench.cli.output import Lines, end
from xttsbench.cli.read import share
from xttsbench.cli.target import check_arguments


@options.shared("out", "redact", "strict", "show_output", "browse", "verbose", "quiet", "as_json", "debug")
def prove(
    context: typer.Context,
    old: Annotated[
        str,
        typer.Argument(metavar="OLD", help="A target or script before the edit; @REVISION takes that git revision."),
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The version after the edit, likewise.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of scripts.")] = None,
    settings: options.Settings = None,
    accelerator: options.Accelerator = "real",
    steps: options.Steps = None,
    budget: Annotated[float, typer.Option(min=20, help="Seconds for everything.")] = BUDGET_S,
    any_order: Annotated[bool, typer.Option("--any-order", help="The samples may come in another order.")] = False,
    assume_pure: options.AssumePure = None,
    margin: Annotated[
        str, typer.Option(metavar="SHARE", help="Share of the speed that NEW may lose: 10% or 0.1.")
    ] = "10%",
    no_timing: Annotated[bool, typer.Option("--no-timing", help="Compare the data only.")] = False,
    keep_writes: options.KeepWrites = False,
    repeat: options.Repeat = False,
    seed: Annotated[int, typer.Option(help="Seed of TensorFlow, NumPy and the order of trials.")] = 0,
) -> None:
    """Prove that an edit leaves the data as they are, or show the first difference; time both versions in turns.

    Exit code 0: the same data, not seen to be slower; 1: other data, another order without --any-order, or slower than
    the margin allows; 3: not proved, with what would prove it (and with --strict where the speed is undecided).

    Example:  xttsbench prove train.py@main train.py

    Example:  xttsbench prove data.py:make faster.py:make --any-order --accelerator emulated:10
    """
    check_arguments(old.rpartition("@")[0] or old, arguments, settings)
    from xttsbench.workflows.prove import Request
    from xttsbench.workflows.prove import prove as run
    from xttsbench.workflows.runs import DONE, INCONCLUSIVE

    assumed = tuple(assume_pure or ())
    given = {
        "target": old,
        "assume_pure": assumed,
        "budget_s": budget,
        "timed": not no_timing,
        "arguments": tuple(arguments or ()),
    }
    kept = share("--margin", margin, below=1) or 0.0
    request = options.asked(context, Request, kwargs=options.arguments_of(settings), margin=kept, **given)
    outcome = run(request, progress=Lines(quiet=context.params["quiet"]))
    proof = outcome.report.proof
    if context.params["strict"] and outcome.exit_code == DONE and proof is not None and proof.speed == "undecided":
        outcome = replace(outcome, exit_code=INCONCLUSIVE, message=outcome.report.verdict.summary)
    end(outcome, context)
