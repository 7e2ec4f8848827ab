"""``xttsbench watch SCRIPT``: a run to its end, watched, with a screen of what its steps were like."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xttsbench.cli.options import AsJson, Debug, Out, Quiet, Strict, detail, typed
from xttsbench.cli.output import rendered, say

if TYPE_CHECKING:
    from xttsbench.records.watch import WatchSummary


def watch(
    context: typer.Context,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python file, run as python would.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of the script.", show_default=False)
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GATE",
            help="Exit with 1 where it is so: input>20%, step-time>120ms, p99>1s, stalls>5%, host>10%; against "
            "--baseline step-time>+5%, input>+5%; a severity of findings: warning. Repeatable.",
            show_default=False,
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="SUMMARY",
            help="An earlier run's summary.json; alone it means step-time>+5% and input>+5%.",
            show_default=False,
        ),
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write scalars for TensorBoard.", show_default=False)
    ] = None,
    out: Out = None,
    strict: Strict = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run a script to its end as python would, and say at the end where its steps went and which of them stalled.

    kill -USR1 shows it while it runs, and so does xttsbench report DIR from another terminal.

    Exit code 0: done; 1 a --fail-on failed; 3 it stayed open; 5 the script failed.

    Example:  xttsbench watch train.py --fail-on "input>20%" -- --epochs 3
    """
    from xttsbench.workflows.outcome import DONE
    from xttsbench.workflows.watch.watch import Request
    from xttsbench.workflows.watch.watch import watch as run

    request = Request(
        script=script,
        arguments=tuple(arguments or ()),
        out=out,
        tensorboard=tensorboard,
        fail_on=tuple(fail_on or ()),
        baseline=baseline,
        print_to_stderr=as_json,
        command=typed(context),
    )
    done = run(request, shown=lambda summary: _show(summary, ""))
    if as_json:
        sys.stdout.write(done.summary.model_dump_json(indent=2) + "\n")
        sys.stdout.flush()
    else:
        _show(done.summary, os.path.relpath(done.directory), quiet=quiet)
    if done.exit_code != DONE and done.message:
        say(done.message)
    if debug and done.summary.error:
        say(done.summary.error)
    undecided = strict and done.exit_code == DONE and done.summary.bottleneck == "inconclusive"
    raise typer.Exit(3 if undecided else done.exit_code)


def _show(summary: WatchSummary, place: str, *, quiet: bool = False) -> None:
    """On standard error: standard output is the script's."""
    from xttsbench.reporting.sections.watch import watch_document

    sys.stderr.write("\n" + rendered(watch_document(summary, place), detail(0, quiet=quiet), sys.stderr))
    sys.stderr.flush()


def show_run(directory: Path, *, as_json: bool, quiet: bool) -> bool:
    """Show a watched run, whether it goes on, has ended, or was killed with everything; whether it is one.

    Of a run that has ended the report is built again as well.
    """
    from xttsbench.execution import journal
    from xttsbench.records.watch import SUMMARY_FILE
    from xttsbench.reporting.sections.watch import watch_document
    from xttsbench.workflows.report import rebuild
    from xttsbench.workflows.watch.watch import read_summary

    if not (directory / SUMMARY_FILE).exists():
        return False
    summary = read_summary(directory)
    if as_json:
        sys.stdout.write(summary.model_dump_json(indent=2) + "\n")
    else:
        sys.stdout.write(rendered(watch_document(summary, str(directory)), detail(0, quiet=quiet)))
    sys.stdout.flush()
    if (directory / journal.NAME).exists():
        for warning in rebuild(directory).warnings:
            say(f"Warning: {warning}")
        say(f"Report: {directory}/report.html (and report.json, report.md, plots/)")
    return True
