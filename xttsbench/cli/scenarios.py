"""``xttsbench run SCENARIO`` and ``xttsbench sweep --grid NAME``: a scenario's configurations."""

from __future__ import annotations

import sys
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


def run(
    scenario: Annotated[str, typer.Argument(help="Name of a shipped scenario (loader, mode, ...), or a YAML file.")],
    settings: Settings = None,
    accelerator: Annotated[
        list[str] | None,
        typer.Option(
            help="real, emulated:MS or emulated:FILE in place of the scenario's; repeatable, a group of arms for each.",
            show_default=False,
        ),
    ] = None,
    blocks: Annotated[
        int | None,
        typer.Option(min=1, max=100, help="Rounds of each configuration, at most.", show_default=False),
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
    """Measure the arms of a scenario against its baseline: what each is worth, with an interval and a word for it.

    Exit code 0: every arm is decided; 3: one is not; 5: an arm changes the data.

    Example:  xttsbench run loader --blocks 8 --out reports/loaders
    """
    from xttsbench.cli.output import Lines, Watched
    from xttsbench.targets.spec import parse_setting
    from xttsbench.workflows.run.begin import Request
    from xttsbench.workflows.run.run import run as run_scenario

    request = Request(
        scenario=scenario,
        blocks=blocks,
        steps=steps,
        seed=seed,
        budget_s=budget,
        accelerators=tuple(accelerator or ()),
        data=data,
        settings=dict(parse_setting(text) for text in settings or []),
        out=out,
        resume=resume,
        print_to_stderr=as_json,
        command=" ".join(["xttsbench", *sys.argv[1:]]),
    )
    with Watched() as watched:
        outcome = run_scenario(request, progress=Lines(), data_progress=watched)
    end(outcome, as_json=as_json, debug=debug)


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
    from xttsbench.cli.output import Lines, Watched
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
