"""Commands on finished runs: ``xttsbench compare A B``, ``report DIR`` and ``export RUN``."""

from __future__ import annotations

import json
import math
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from xttsbench.cli.options import AsJson, Debug, Redact, detail, shared, typed
from xttsbench.cli.output import end, open_page, put, rendered, say
from xttsbench.errors import UsageError

if TYPE_CHECKING:
    from xttsbench.records.comparison_result import Limit
    from xttsbench.workflows.compare import Compared
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import asdict


class Format(StrEnum):
    """Output formats of ``xttsbench export``."""

    perfetto = "perfetto"
    csv = "csv"
    parquet = "parquet"


class Rows(StrEnum):
    """Tables of a run."""

    steps = "steps"
    configurations = "configurations"
    findings = "findings"
    trials = "trials"


_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}
_NUMBER: Final = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*([a-zµ%]*)\s*")
_STDOUT: Final = "-"


@shared("redact", "verbose", "quiet", "as_json", "debug")
def compare(
    context: typer.Context,
    a: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="A run's directory or report.json, before: PATH, PATH:CONFIGURATION or PATH:CONFIGURATION@DEVICE.",
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The run after; both may be configurations of one run.")],
    max_regression: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Share of the speed that B may lose: 10% or 0.1.")
    ] = None,
    max_step_time: Annotated[str | None, typer.Option(metavar="TIME", help="Longest mean step of B: 120ms.")] = None,
    min_throughput: Annotated[float | None, typer.Option(metavar="N", help="Fewest samples per second of B.")] = None,
    min_utilization: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Least accelerator utilization of B: 90%.")
    ] = None,
    max_cv: Annotated[str | None, typer.Option(metavar="SHARE", help="Largest CV of B's step time: 0.2.")] = None,
    max_input_wait: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Largest share of B's time that waits for input: 10%.")
    ] = None,
    across: Annotated[
        bool, typer.Option("--across", help="Compare although machine, data or settings differ, which is named.")
    ] = False,
    session_noise: Annotated[
        str,
        typer.Option(metavar="SHARE", help="Standard deviation of the same code's speed from session to session here."),
    ] = "2%",
    markdown: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a comment for a pull request; - for standard output.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write JUnit XML.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write report.json and report.md there.")] = None,
) -> None:
    """Compare two runs: how fast B is against A, with an interval, a result and gates for CI.

    Exit code 0: decided, or every gate passed; 1: a gate failed; 3: undecided, or a gate without a measurement;
    4: nothing was measured; 5: the two cannot be read or compared.

    Example:  xttsbench compare reports/before reports/after --max-regression 10%
    """
    from xttsbench.workflows.compare import Request
    from xttsbench.workflows.compare import compare as compare_runs

    as_json = context.params["as_json"]
    if as_json and markdown == _STDOUT:
        raise UsageError("--json and --markdown - both write to standard output; give --markdown a file.")
    limits: dict[Limit, float | None] = {
        "max-regression": share("--max-regression", max_regression, below=1),
        "max-step-time": seconds("--max-step-time", max_step_time),
        "min-throughput": _positive(min_throughput),
        "min-utilization": share("--min-utilization", min_utilization),
        "max-cv": share("--max-cv", max_cv, most=100),
        "max-input-wait": share("--max-input-wait", max_input_wait),
    }
    request = Request(
        a=a,
        b=b,
        limits={name: limit for name, limit in limits.items() if limit is not None},
        across=across,
        session_noise=share("--session-noise", session_noise, below=1) or 0.0,
        out=out,
        markdown=Path(markdown) if markdown not in (None, _STDOUT) else None,
        junit=junit,
        command=typed(),
        redact=context.params["redact"],
    )
    _show(compare_runs(request), as_json=as_json, as_markdown=markdown == _STDOUT, detail=detail(context))


def share(option: str, text: str | None, *, most: float = 1.0, below: float | None = None) -> float | None:
    """``5%`` or ``0.05`` as a share; ``None`` where nothing was given.

    Raises:
        UsageError: it is neither, or out of range.
    """
    if text is None:
        return None
    value, unit = _number(option, text, "a share such as 5% or 0.05")
    if unit not in ("", "%"):
        raise UsageError(f"{option} {text!r}: use a share such as 5% or 0.05.")
    value = value / 100 if unit else value
    if value > most or (below is not None and value >= below):
        raise UsageError(f"{option} {text!r}: the share must be below {below or most:g}; 5 percent is 5% or 0.05.")
    return value


def seconds(option: str, text: str | None) -> float | None:
    """``120ms``, ``0.12s`` or ``0.12`` in seconds; ``None`` where nothing was given.

    Raises:
        UsageError: it is none of them.
    """
    if text is None:
        return None
    form = "a time such as 120ms or 0.12s"
    value, unit = _number(option, text, form)
    if unit not in _SECONDS or value == 0:
        raise UsageError(f"{option} {text!r}: use {form}.")
    return value * _SECONDS[unit]


def _number(option: str, text: str, form: str) -> tuple[float, str]:
    found = _NUMBER.fullmatch(text)
    value = float(found[1]) if found else math.nan
    if found is None or not math.isfinite(value):
        raise UsageError(f"{option} {text!r}: use {form}.")
    return value, found[2]


def _positive(value: float | None) -> float | None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise UsageError(f"--min-throughput {value}: use a number of samples per second above 0.")
    return value


def _show(compared: Compared, *, as_json: bool, as_markdown: bool, detail: int) -> None:
    """Print the record, the comment or the table, then what is for standard error; and end with the exit code."""
    from xttsbench.reporting.page import to_json
    from xttsbench.reporting.sections.compare import comparison_document
    from xttsbench.workflows.compare import comment

    report = compared.report
    if as_json:
        sys.stdout.write(to_json(report))
    elif as_markdown:
        sys.stdout.write(comment(report))
    else:
        sys.stdout.write(rendered(comparison_document(report), detail))
    sys.stdout.flush()
    if as_json or as_markdown:
        for warning in report.warnings:
            say(f"Warning: {warning}")
    if compared.directory is not None:
        say(f"Report: {compared.directory}/report.json (and report.md)")
    if compared.message:
        say(compared.message)
    raise typer.Exit(compared.exit_code)


@shared("redact", "browse", "verbose", "quiet", "as_json", "debug")
def report(
    context: typer.Context,
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="A run's directory, e.g. one under reports/; or a CSV of monitor; or the watched runs of a job's "
            "ranks, or the directory that holds them.",
        ),
    ],
) -> None:
    """Build the report again from the raw samples, without TensorFlow; of a monitor's CSV a page, FILE.html beside it.

    Watched runs of several ranks are judged together, while they run or afterwards: which of them is late, hangs, died,
    or has another's samples.

    Example:  xttsbench report reports/20261121T080000Z-diagnose-make
    """
    from xttsbench.cli.measure import show_ranks, show_run

    as_json, quiet, redact, browse = (context.params[name] for name in ("as_json", "quiet", "redact", "browse"))
    directory = directories[0]
    if show_ranks(directories, as_json=as_json, quiet=quiet, redact=redact):
        return
    if directory.suffix == ".csv" and not directory.is_dir():
        _report_log(directory, as_json=as_json, detail=detail(context), browse=browse)
        return
    from xttsbench.workflows.runs import rebuild

    if show_run(directory, as_json=as_json, quiet=quiet, redact=redact):
        if browse:
            open_page(directory / "report.html")
        return
    end(rebuild(directory, redact=redact), context)


def _report_log(log: Path, *, as_json: bool, detail: int, browse: bool) -> None:
    from xttsbench.workflows.monitor.log import write_page

    page = write_page(log)
    put(page.record, page.document, as_json=as_json, detail=detail)
    if detail >= 0:
        say(f"Page: {page.file}")
    if browse:
        open_page(page.file)


def export(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory, e.g. one under reports/.")],
    form: Annotated[
        Format,
        typer.Option("--format", help="perfetto: a time line for ui.perfetto.dev; csv and parquet: a table."),
    ] = Format.perfetto,
    rows: Annotated[Rows, typer.Option("--table", help="Which table of the run, as CSV or Parquet.")] = Rows.steps,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The file to write (default: trace.json or TABLE.FORMAT in RUN); - for standard output, not Parquet.",
        ),
    ] = None,
    redact: Redact = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write a run for other programs: its steps on a time line, or a table.

    Example:  xttsbench export reports/20261121T080000Z-diagnose-make --format csv
    """
    from xttsbench.files import atomic_write
    from xttsbench.workflows.tables import exported

    to_stdout = str(out) == _STDOUT
    if as_json and to_stdout:
        raise UsageError("--json and --out - both write to standard output; give --out a file.")
    if to_stdout and form is Format.parquet:
        raise UsageError("--format parquet is for a file; give --out one, or take --format csv.")
    if form is Format.perfetto and rows is not Rows.steps:
        raise UsageError(f"--table {rows.value} is no time line; take --format csv or --format parquet.")
    content, held = exported(directory, form.value, rows.value, redact=redact)
    if to_stdout:
        sys.stdout.write(content.decode())
        return
    file = out or directory / ("trace.json" if form is Format.perfetto else f"{rows.value}.{form.value}")
    try:
        atomic_write(file, content)
    except OSError as error:
        raise UsageError(f"--out {str(file)!r} cannot be written: {error.strerror or error}. Name another.") from error
    if as_json:
        typer.echo(json.dumps({"file": str(file), "format": form.value} | held))
        return
    of = f" of {held['trials']} trials" if rows is Rows.steps else ""
    say(f"{held[rows.value]:,} {rows.value}{of}: {file}")
    if form is Format.perfetto:
        say("Open it at https://ui.perfetto.dev, or in chrome://tracing; it stays on this machine.")


class Kind(StrEnum):
    """Kinds of names that ``xttsbench list`` lists."""

    scenarios = "scenarios"
    grids = "grids"
    recipes = "recipes"
    rules = "rules"
    fixes = "fixes"
    symptoms = "symptoms"


def _names(incomplete: str) -> Iterator[str]:
    from xttsbench.workflows.explain import explanations

    return (one.name for one in explanations() if one.name.startswith(incomplete))


def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A verdict (input), a rule (no-prefetch), a fix (batch-first), or a symptom ('gpu at 20 %').",
            autocompletion=_names,
        ),
    ],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Explain a verdict, rule, fix or symptom: what it means, and what to do.

    Example:  xttsbench explain no-prefetch
    """
    from xttsbench.cli.output import page
    from xttsbench.reporting.words import part
    from xttsbench.workflows.explain import explain as explained

    found = explained(name)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
        return
    width, _ = page()
    spoken = part(found.name) if found.kind == "verdict" else found.name
    name = spoken if spoken == found.name else f'{spoken}, "{found.name}" in report.json'
    typer.echo(f"{name} ({found.kind}; {found.about[0].lower()}{found.about[1:]})")
    typer.echo(textwrap.fill(found.summary, width))
    for heading, text in found.parts.items():
        if isinstance(text, str):
            lines = textwrap.wrap(text[0].upper() + text[1:] + "." * (text[-1] != "."), width - 2)
        else:
            lines = list(text)
        typer.echo("\n  ".join(("", heading, *lines)).replace("\n  ", "\n", 1))


def list_(
    what: Annotated[Kind, typer.Argument(metavar="WHAT", help="scenarios, grids, recipes, rules, fixes or symptoms.")],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List what the command line takes by name, a line each: scenarios, grids, recipes, rules, fixes or symptoms.

    Example:  xttsbench list rules
    """
    from xttsbench.cli.output import page
    from xttsbench.workflows.explain import entries

    found = entries(what.value)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=2, ensure_ascii=False))
        return
    width, _ = page()
    column = 2 + max(len(one.name) for one in found)
    for one in found:
        typer.echo(textwrap.fill(one.name.ljust(column) + one.summary, width, subsequent_indent=" " * column))
    use = {Kind.scenarios: "xttsbench run NAME", Kind.grids: "xttsbench sweep --grid NAME"}
    use[Kind.recipes] = "xttsbench train NAME"
    typer.echo(f"\nUse one:  {use.get(what, 'xttsbench explain NAME')}")


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("xttsbench_target.py"),
    dataset: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="What returns your tf.data.Dataset: module:function or file.py:function; without it an example.",
        ),
    ] = None,
    step: Annotated[
        str | None, typer.Option(metavar="TARGET", help="Your function that takes a batch and trains one step.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="TARGET", help="What returns your compiled Keras model.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write a target file around your dataset, ready for 'xttsbench diagnose'; a file that is there is left alone.

    Example:  xttsbench init --dataset my_project/data.py:make_dataset
    """
    from xttsbench.workflows.explain import ENTRY, Parts, write_target

    write_target(file, Parts(dataset, step, model))
    target = f"{file}:{ENTRY}"
    command = ["xttsbench", "diagnose", target]
    if dataset and not step and not model:
        command += ["--accelerator", "emulated:20"]
    if as_json:
        typer.echo(json.dumps({"file": str(file), "target": target, "command": shlex.join(command)}))
        return
    typer.echo(f"{file} is written. Next:  {shlex.join(command)}")
