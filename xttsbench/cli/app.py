"""The Typer application and its door ``main``, which turns errors into one sentence and an exit code."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from xttsbench import __version__
from xttsbench.cli.data import app as data
from xttsbench.cli.diagnose import diagnose, optimize
from xttsbench.cli.explain import explain
from xttsbench.cli.output import say
from xttsbench.cli.runs import compare, report
from xttsbench.cli.scenarios import run, sweep
from xttsbench.cli.train import synthesize, train, with_value_of_best
from xttsbench.errors import XttsbenchError

app = typer.Typer(
    name="xttsbench",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Find why a TensorFlow training step takes as long as it does, and prove it by experiment.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"xttsbench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of xttsbench itself."""


app.command("compare")(compare)
app.command("diagnose")(diagnose)
app.command("explain")(explain)
app.command("optimize")(optimize)
app.command("report")(report)
app.command("run")(run)
app.command("sweep")(sweep)
app.command("synthesize")(synthesize)
app.command("train")(train)
app.add_typer(data)


def main() -> None:
    """Run the command line; errors that are ours become one sentence on standard error."""
    debug = "--debug" in sys.argv
    arguments = sys.argv[1:]
    try:
        app(with_value_of_best(arguments) if arguments[:1] == ["train"] else arguments)
    except XttsbenchError as error:
        if debug:
            traceback.print_exc()
        say(f"Error: {error}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        say("Interrupted. Trials that ended are in the run's journal: 'xttsbench report DIR' writes their report.")
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nothing more to say to it.
        sys.stderr.close()
        sys.exit(1)
