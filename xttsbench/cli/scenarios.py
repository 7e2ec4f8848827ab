"""``xttsbench run SCENARIO`` and ``xttsbench sweep --grid NAME``: a scenario's configurations."""

from __future__ import annotations

from typing import Annotated

import typer

from xttsbench.cli.options import (
    AsJson,
    Budget,
    Data,
    Debug,
    Open,
    Out,
    Quiet,
    Resume,
    Seed,
    Settings,
    Strict,
    TrialSteps,
    Verbose,
    arguments_of,
    detail,
    names,
    typed,
)
from xttsbench.cli.output import Lines, Watched, end


def run(
    context: typer.Context,
    scenario: Annotated[
        str,
        typer.Argument(
            help="Name of a shipped scenario (xttsbench list scenarios), or a YAML file.",
            autocompletion=names("scenarios"),
        ),
    ],
    settings: Settings = None,
    accelerator: Annotated[
        list[str] | None,
        typer.Option(
            help="real, emulated:MS or emulated:FILE in place of the scenario's; repeatable, a group for each."
        ),
    ] = None,
    blocks: Annotated[int | None, typer.Option(min=1, max=100, help="Rounds of each configuration, at most.")] = None,
    steps: TrialSteps = None,
    budget: Budget = None,
    data: Data = None,
    out: Out = None,
    seed: Seed = None,
    resume: Resume = False,
    strict: Strict = False,
    browse: Open = False,
    verbose: Verbose = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure the configurations of a scenario against its baseline: what each is worth, with an interval.

    Exit code 0: done; with --strict 3 where one is undecided; 5: one changes the data.

    Example:  xttsbench run loader --blocks 8 --out reports/loaders
    """
    from xttsbench.workflows.scenario import Request
    from xttsbench.workflows.scenario import run as run_scenario

    request = Request(
        scenario=scenario,
        blocks=blocks,
        steps=steps,
        seed=seed,
        budget_s=budget,
        accelerators=tuple(accelerator or ()),
        data=data,
        settings=arguments_of(settings),
        out=out,
        resume=resume,
        print_to_stderr=as_json,
        command=typed(context),
    )
    with Watched() as watched:
        outcome = run_scenario(request, progress=Lines(quiet=quiet), data_progress=watched)
    end(outcome, as_json=as_json, debug=debug, detail=detail(verbose, quiet=quiet), browse=browse, strict=strict)


def sweep(
    context: typer.Context,
    grid: Annotated[
        str,
        typer.Option(
            help="Name of a shipped grid (prefetch, workers, loader, mode, batch, full), or a YAML file.",
            autocompletion=names("scenarios"),
        ),
    ],
    settings: Settings = None,
    accelerator: Annotated[
        str | None, typer.Option(help="real, emulated:MS or emulated:FILE in place of the grid's.")
    ] = None,
    blocks: Annotated[
        int | None, typer.Option(min=2, max=100, help="Processes of each configuration, at most.")
    ] = None,
    steps: TrialSteps = None,
    budget: Budget = None,
    data: Data = None,
    out: Out = None,
    seed: Seed = None,
    resume: Resume = False,
    strict: Strict = False,
    browse: Open = False,
    verbose: Verbose = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure the configurations of a grid until one has won or none can, and write best.yaml.

    Exit code 0: done; with --strict 3 where no winner could be decided.

    Example:  xttsbench sweep --grid prefetch --out reports/prefetch
    """
    from xttsbench.workflows.scenario import Request
    from xttsbench.workflows.scenario import sweep as run_sweep

    request = Request(
        scenario=grid,
        blocks=blocks,
        steps=steps,
        seed=seed,
        budget_s=budget,
        accelerators=(accelerator,) if accelerator else (),
        data=data,
        settings=arguments_of(settings),
        out=out,
        resume=resume,
        print_to_stderr=as_json,
        command=typed(context),
    )
    with Watched() as watched:
        outcome = run_sweep(request, progress=Lines(quiet=quiet), data_progress=watched)
    end(outcome, as_json=as_json, debug=debug, detail=detail(verbose, quiet=quiet), browse=browse, strict=strict)
