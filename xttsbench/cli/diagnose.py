"""``xttsbench diagnose [TARGET]``: the main job."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from xttsbench.errors import UsageError


class Level(StrEnum):
    """Severities that ``--fail-on`` takes."""

    info = "info"
    warning = "warning"
    critical = "critical"


def diagnose(
    target: Annotated[
        str | None,
        typer.Argument(
            help="module:callable or file.py:callable; nothing for the bundled workload.", show_default=False
        ),
    ] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of a script.", show_default=False)
    ] = None,
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
    budget: Annotated[float, typer.Option(min=10, help="Seconds for everything; a verdict comes by 60.")] = 300.0,
    data: Annotated[
        Path | None, typer.Option(help="Data directory of the bundled workload.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The run's own directory (default reports/<UTC time>-<name>/).", show_default=False),
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Keep a TensorFlow profile of steady steps.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of TensorFlow, NumPy and the bootstrap.")] = 0,
    fail_on: Annotated[
        Level | None,
        typer.Option(help="Exit with 1 if a limiting finding is this severe or worse.", show_default=False),
    ] = None,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Stop at the verdict (this version always does).")
    ] = False,
    repeat: Annotated[
        bool, typer.Option("--repeat", help="A script may be run more than once (callables always are).")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON on standard output.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Find why a training step takes as long as it does: the cause, the evidence, and what removing it would give.

    Example:  xttsbench diagnose train.py:make --set batch_size=16 --out reports/first
    """
    from xttsbench.cli.output import Lines, say, show
    from xttsbench.targets.spec import parse_setting
    from xttsbench.workflows.diagnose import Request
    from xttsbench.workflows.diagnose import diagnose as run
    from xttsbench.workflows.outcome import GATE

    if arguments:
        raise UsageError(
            f"Arguments after -- ({' '.join(arguments)}) are for scripts; "
            "give a callable's arguments with --set KEY=VALUE."
        )
    kwargs = dict(parse_setting(text) for text in settings or [])
    if target is None:
        target, kwargs = _bundled(kwargs, data)
    elif data is not None:
        raise UsageError("--data is for the bundled workload; give your target its data with --set KEY=VALUE.")
    request = Request(
        target=target,
        kwargs=kwargs,
        accelerator=accelerator,
        steps=steps,
        budget_s=budget,
        out=out,
        profile=profile,
        seed=seed,
        print_to_stderr=as_json,
        command=" ".join(["xttsbench", *sys.argv[1:]]),
    )
    outcome = run(request, progress=Lines())
    show(outcome, as_json=as_json)
    if debug and (error := outcome.report.target.get("error")):
        say_traceback(str(error.get("traceback", "")))
    if outcome.exit_code == 0 and fail_on is not None:
        order = list(Level)
        bad = [
            f for f in outcome.report.findings if f.limiting and order.index(Level(f.severity)) >= order.index(fail_on)
        ]
        if bad:
            say(f"--fail-on {fail_on}: {bad[0].rule}: {bad[0].title}")
            raise typer.Exit(GATE)
    raise typer.Exit(outcome.exit_code)


def say_traceback(text: str) -> None:
    """Print the traceback of the target on standard error."""
    sys.stderr.write(text)


def _bundled(kwargs: dict[str, object], data: Path | None) -> tuple[str, dict[str, object]]:
    """The job of ``scenarios/diagnose.yaml``, with ``--set`` and ``--data`` on top of its base."""
    import yaml

    from xttsbench.shipped import shipped

    job = yaml.safe_load(shipped("scenarios", "diagnose").read_text(encoding="utf-8"))
    base = dict(job.get("base") or {})
    if data is not None:
        base["data"] = str(data)
    return str(job["target"]), base | kwargs
