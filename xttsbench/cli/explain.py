"""``xttsbench explain NAME``, ``list WHAT`` and ``init [FILE]``: what has a name, in words, a file to start from."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from xttsbench.cli.options import AsJson, Debug


class Kind(StrEnum):
    """What ``xttsbench list`` lists."""

    scenarios = "scenarios"
    grids = "grids"
    recipes = "recipes"
    rules = "rules"
    fixes = "fixes"


def _names(incomplete: str) -> Iterator[str]:
    """Names to explain, for the completion of a shell."""
    from xttsbench.workflows.explain import explanations

    return (one.name for one in explanations() if one.name.startswith(incomplete))


def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A verdict (input), a rule (no-prefetch) or a fix (batch-first), as a report has it.",
            autocompletion=_names,
        ),
    ],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Explain a verdict, a rule or a fix: what it means, its evidence, from where on it fires, and what to do.

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
        body = text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")
        typer.echo(f"\n{heading}\n{textwrap.fill(body, width, initial_indent='  ', subsequent_indent='  ')}")


def list_(
    what: Annotated[Kind, typer.Argument(metavar="WHAT", help="scenarios, grids, recipes, rules or fixes.")],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List what the command line takes by name, a line each: scenarios, grids, recipes, rules or fixes.

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
    from xttsbench.workflows.starter import ENTRY, Parts, write_target

    write_target(file, Parts(dataset, step, model))
    target = f"{file}:{ENTRY}"
    command = ["xttsbench", "diagnose", target]
    if dataset and not step and not model:
        command += ["--accelerator", "emulated:20"]
    if as_json:
        typer.echo(json.dumps({"file": str(file), "target": target, "command": shlex.join(command)}))
        return
    typer.echo(f"{file} is written. Next:  {shlex.join(command)}")
