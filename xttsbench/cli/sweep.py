"""``xttsbench sweep --grid NAME``: the fastest of many configurations, confirmed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from xttsbench.cli.scenario_options import AsJson, Budget, Data, Debug, Out, Resume, Seed, Settings, Steps, end


def sweep(
    grid: Annotated[
        str, typer.Option(help="Name of a shipped grid (prefetch, workers, loader, mode, batch, full), or a YAML file.")
    ],
    settings: Settings = None,
    accelerator: Annotated[
        str | None,
        typer.Option(help="real, emulated:MS or emulated:FILE in place of the grid's.", show_default=False),
    ] = None,
    blocks: Annotated[
        int | None,
        typer.Option(min=2, max=100, help="Processes of each configuration, at most.", show_default=False),
    ] = None,
    steps: Steps = None,
    budget: Budget = None,
    data: Data = None,
    out: Out = None,
    seed: Seed = None,
    resume: Resume = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure the configurations of a grid until one has won or none can, and write best.yaml.

    Exit code 0: a winner is proven, or the baseline is kept; 3: it could not be decided.

    Example:  xttsbench sweep --grid prefetch --out reports/prefetch
    """
    from xttsbench.cli.output import Lines
    from xttsbench.cli.progress import Watched
    from xttsbench.targets.spec import parse_setting
    from xttsbench.workflows.run.begin import Request
    from xttsbench.workflows.sweep.sweep import sweep as run_sweep

    request = Request(
        scenario=grid,
        blocks=blocks,
        steps=steps,
        seed=seed,
        budget_s=budget,
        accelerators=(accelerator,) if accelerator else (),
        data=data,
        settings=dict(parse_setting(text) for text in settings or []),
        out=out,
        resume=resume,
        print_to_stderr=as_json,
        command=" ".join(["xttsbench", *sys.argv[1:]]),
    )
    with Watched() as watched:
        outcome = run_sweep(request, progress=Lines(), data_progress=watched)
    end(outcome, as_json=as_json, debug=debug)
