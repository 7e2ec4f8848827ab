"""``xttsbench diagnose [TARGET]``, the main job; ``optimize TARGET``: its fixes, each verified; ``watch SCRIPT``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xttsbench import BUDGET_S
from xttsbench.cli.options import (
    Accelerator,
    AssumePure,
    Budget,
    Data,
    KeepWrites,
    On,
    Repeat,
    Resume,
    Seed,
    Settings,
    Steps,
    TrialSteps,
    arguments_of,
    asked,
    names,
    shared,
)
from xttsbench.cli.output import Lines, Watched, end, put, rendered, say
from xttsbench.cli.target import check_arguments, chosen, job_of

if TYPE_CHECKING:
    from xttsbench.records.watch import WatchSummary


_TARGET = "module:callable, file.py:callable or a script; nothing for the bundled workload."
Target = Annotated[str | None, typer.Argument(help=_TARGET)]
Arguments = Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of a script.")]


class Level(StrEnum):
    """Severities that ``--fail-on`` takes."""

    info = "info"
    warning = "warning"
    critical = "critical"


@shared("out", "redact", "strict", "show_output", "browse", "verbose", "quiet", "as_json", "debug")
def diagnose(
    context: typer.Context,
    target: Target = None,
    arguments: Arguments = None,
    settings: Settings = None,
    accelerator: Accelerator = "real",
    steps: Steps = None,
    budget: Annotated[
        float, typer.Option(min=10, help="Seconds for everything; a verdict is due after 60, or all where undecided.")
    ] = BUDGET_S,
    data: Data = None,
    best: Annotated[Path | None, typer.Option(help="A sweep's best.yaml or directory: diagnose what it chose.")] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Keep a TensorFlow profile of steady steps.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of TensorFlow, NumPy and random draws.")] = 0,
    fail_on: Annotated[
        Level | None,
        typer.Option(
            help="Exit with 1 if a bottleneck's finding is this severe or worse, with 3 where none can be named."
        ),
    ] = None,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Stop at the verdict; fixes are estimated only.")
    ] = False,
    assume_pure: AssumePure = None,
    keep_writes: KeepWrites = False,
    repeat: Annotated[
        bool, typer.Option("--repeat", help="A script may run again: a second time, and with fixes.")
    ] = False,
) -> None:
    """Find why a training step takes as long as it does: the cause, the evidence, and what removing it would give.

    Example:  xttsbench diagnose train.py -- --epochs 1

    Example:  xttsbench diagnose data.py:make --set batch_size=16 --out reports/first
    """
    from xttsbench.workflows.diagnose import Request
    from xttsbench.workflows.diagnose import diagnose as run
    from xttsbench.workflows.runs import DONE, GATE

    check_arguments(target, arguments, settings)
    kwargs: Mapping[str, object] = arguments_of(settings)
    if best is not None:
        target, kwargs = chosen(best, target, kwargs)
    target, kwargs, comparison = job_of(target, kwargs, data, accelerator)
    request = asked(
        context,
        Request,
        target=target,
        kwargs=kwargs,
        arguments=tuple(arguments or ()),
        budget_s=budget,
        comparison=comparison,
        assume_pure=tuple(assume_pure or ()),
        verify=not no_verify,
    )
    outcome = run(request, progress=Lines(quiet=context.params["quiet"]))
    if outcome.exit_code == DONE and fail_on is not None:
        order = list(Level)
        least = order.index(fail_on)
        bad = [one for one in outcome.report.findings if one.limiting and order.index(Level(one.severity)) >= least]
        if bad:
            message = f"--fail-on {fail_on}: {bad[0].rule}: {bad[0].title}"
            outcome = replace(outcome, exit_code=GATE, message=message)
    end(outcome, context)


class Allowed(StrEnum):
    """Changes that fixes could be allowed to make; there is no such fix any more."""

    BATCHES = "batches"


@shared("out", "redact", "strict", "show_output", "browse", "verbose", "quiet", "as_json", "debug")
def optimize(
    context: typer.Context,
    target: Target = None,
    arguments: Arguments = None,
    settings: Settings = None,
    accelerator: Accelerator = "real",
    steps: Steps = None,
    budget: Annotated[float, typer.Option(min=60, help="Seconds for everything.")] = BUDGET_S,
    data: Data = None,
    any_order: Annotated[bool, typer.Option("--any-order", hidden=True)] = False,
    allow: Annotated[Allowed | None, typer.Option(hidden=True)] = None,
    assume_pure: AssumePure = None,
    tries: Annotated[
        list[str] | None,
        typer.Option(
            "--try", metavar="FIX", help="Verify this fix whatever it is expected to give: service:2. Repeatable."
        ),
    ] = None,
    keep_writes: KeepWrites = False,
    repeat: Repeat = False,
    seed: Annotated[int, typer.Option(help="Seed of TensorFlow, NumPy and the order of trials.")] = 0,
) -> None:
    """Apply fixes to a target, and measure what each is worth and whether it leaves the data as they are.

    A fix is accepted where it was measured to be faster, and its data were found to be the same. The run's
    directory then holds the plan (optimized.yaml) and, where one can be written, the patch of the source (patch.diff).

    Exit code 0: done; with --strict 3 where what was tried could not be decided.

    A script may run several times, as it is and with fixes.

    Example:  xttsbench optimize my_project/data.py:make_dataset --accelerator emulated:10

    Example:  xttsbench optimize train.py -- --epochs 1

    Example:  xttsbench optimize --set loader=numpy_wav --accelerator emulated:10
    """
    check_arguments(target, arguments, settings)
    from xttsbench.fixes.registry import checked
    from xttsbench.workflows.diagnose import Request
    from xttsbench.workflows.diagnose import optimize as run

    for fix in tries or ():
        checked(fix)
    if any_order or allow is not None:
        say("No fix but service changes the order or the batches: --any-order and --allow have no effect.")
    target, kwargs, _ = job_of(target, arguments_of(settings), data, accelerator, compared=False)
    request = asked(
        context,
        Request,
        target=target,
        kwargs=kwargs,
        arguments=tuple(arguments or ()),
        budget_s=budget,
        assume_pure=tuple(assume_pure or ()),
        tries=tuple(tries or ()),
    )
    end(run(request, progress=Lines(quiet=context.params["quiet"])), context)


@shared("out", "redact", "strict", "quiet", "as_json", "debug")
def watch(
    context: typer.Context,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python file, run as python would.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of the script.")] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GATE",
            help="Exit with 1 where this is true of the run: input>20%, step-time>120ms, p99>1s, stalls>5%, host>10%; "
            "against --baseline step-time>+5%, input>+5%; or the least severity of a bottleneck's finding, such as "
            "warning. Repeatable.",
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="SUMMARY", help="An earlier run's summary.json; alone it asks for step-time>+5% and input>+5%."
        ),
    ] = None,
    tensorboard: Annotated[Path | None, typer.Option(metavar="DIR", help="Also write scalars for TensorBoard.")] = None,
) -> None:
    """Run a script to its end as python would, and say at the end where its steps went and which of them stalled.

    kill -USR1 shows it while it runs, and so does xttsbench report DIR from another terminal.

    Exit code 0: done; 1: a --fail-on is true; 3: one is undecided or was not measured; 4: no step was seen, and no
    --fail-on was given; 5: the script failed.

    Example:  xttsbench watch train.py --fail-on "input>20%" -- --epochs 3
    """
    from xttsbench.execution import held_back

    with held_back():  # before what is imported here makes threads
        from xttsbench.workflows.runs import DONE
        from xttsbench.workflows.watch import Request
        from xttsbench.workflows.watch import watch as run

        request = asked(context, Request, arguments=tuple(arguments or ()), fail_on=tuple(fail_on or ()))
        done = run(request, shown=lambda summary: _show(summary, ""))
    options = context.params
    if options["as_json"]:
        sys.stdout.write(done.summary.model_dump_json(indent=2) + "\n")
        sys.stdout.flush()
    else:
        _show(done.summary, os.path.relpath(done.directory), quiet=options["quiet"])
    if done.exit_code != DONE and done.message:
        say(done.message)
    if options["debug"] and done.summary.error:
        say(done.summary.error)
    undecided = options["strict"] and done.exit_code == DONE and done.summary.bottleneck == "inconclusive"
    raise typer.Exit(3 if undecided else done.exit_code)


def _show(summary: WatchSummary, place: str, *, quiet: bool = False) -> None:
    from xttsbench.reporting.sections.brief import watch_document

    sys.stderr.write("\n" + rendered(watch_document(summary, place), -1 if quiet else 0, sys.stderr))
    sys.stderr.flush()


def show_ranks(directories: Sequence[Path], *, as_json: bool, quiet: bool, redact: bool = False) -> bool:
    """Show the runs of a job's ranks, judged together; whether they are such runs."""
    from xttsbench.reporting.sections.ranks import ranks_document
    from xttsbench.workflows.ranks import ranks_in, report_ranks

    ranks = ranks_in(directories)
    if ranks:
        found = report_ranks(ranks, directories[0] if len(directories) == 1 else None, redact=redact)
        put(found, ranks_document(found), as_json=as_json, detail=-1 if quiet else 0)
    return bool(ranks)


def show_run(directory: Path, *, as_json: bool, quiet: bool, redact: bool = False) -> bool:
    """Show a watched run, whether it goes on, has ended, or was killed with everything; whether it is one.

    Of a run that has ended the report is built again as well.
    """
    from xttsbench.execution.journal import TRIALS
    from xttsbench.records.watch import SUMMARY_FILE
    from xttsbench.reporting.sections.brief import watch_document
    from xttsbench.workflows.runs import rebuild
    from xttsbench.workflows.watch import read_summary

    if not (directory / SUMMARY_FILE).exists():
        return False
    summary = read_summary(directory)
    put(summary, watch_document(summary, str(directory)), as_json=as_json, detail=-1 if quiet else 0)
    if (directory / TRIALS).exists():
        for warning in rebuild(directory, redact=redact).warnings:
            say(f"Warning: {warning}")
        if (directory / "report.html").exists():  # of a run that lives yet nothing is written
            say(f"Report: {directory}/report.html (and report.json, report.md, plots/)")
    return True


@shared("out", "redact", "strict", "browse", "verbose", "quiet", "as_json", "debug")
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
    seed: Seed = None,
    on: On = None,
    resume: Resume = False,
) -> None:
    """Measure the configurations of a scenario against its baseline: what each is worth, with an interval.

    Exit code 0: done; with --strict 3 where one is undecided; 5: one changes the data or the losses.

    Example:  xttsbench run loader --blocks 8 --out reports/loaders
    """
    from xttsbench.workflows.scenario import Request
    from xttsbench.workflows.scenario import run as run_scenario

    request = asked(
        context,
        Request,
        scenario=scenario,
        budget_s=budget,
        accelerators=tuple(accelerator or ()),
        settings=arguments_of(settings),
    )
    with Watched() as watched:
        end(run_scenario(request, progress=Lines(quiet=context.params["quiet"]), data_progress=watched), context)


@shared("out", "redact", "strict", "browse", "verbose", "quiet", "as_json", "debug")
def sweep(
    context: typer.Context,
    grid: Annotated[
        str,
        typer.Option(
            help="Name of a shipped grid (batch, full, loader, mode, precision, prefetch, threads, workers), or a YAML "
            "file.",
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
    seed: Seed = None,
    on: On = None,
    resume: Resume = False,
) -> None:
    """Measure the configurations of a grid until one has won or none can, and write best.yaml.

    Exit code 0: done; with --strict 3 where no winner could be decided.

    Example:  xttsbench sweep --grid prefetch --out reports/prefetch
    """
    from xttsbench.workflows.scenario import Request
    from xttsbench.workflows.scenario import sweep as run_sweep

    request = asked(
        context,
        Request,
        scenario=grid,
        budget_s=budget,
        accelerators=(accelerator,) if accelerator else (),
        settings=arguments_of(settings),
    )
    with Watched() as watched:
        end(run_sweep(request, progress=Lines(quiet=context.params["quiet"]), data_progress=watched), context)
