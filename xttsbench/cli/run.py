"""``xttsbench run SCENARIO``: one declarative scenario."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from xttsbench.cli.scenario_options import AsJson, Budget, Data, Debug, Out, Resume, Seed, Settings, Steps, end


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
    from xttsbench.cli.output import Lines
    from xttsbench.cli.progress import Watched
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
