"""``xttsbench explain NAME``: a verdict, a rule or a fix in words."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict
from typing import Annotated

import typer


def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A verdict (dispatch), a rule (no-prefetch) or a fix (batch-first), as a report has it.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON on standard output.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Explain a verdict, a rule or a fix: what it means, its evidence, from where on it fires, and what to do.

    Example:  xttsbench explain no-prefetch
    """
    from xttsbench.cli.output import page
    from xttsbench.workflows.explain import explain as explained

    found = explained(name)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
        return
    width, _ = page()
    typer.echo(f"{found.name} ({found.kind}; {found.about[0].lower()}{found.about[1:]})")
    typer.echo(textwrap.fill(found.summary, width))
    for heading, text in found.parts.items():
        body = text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")
        typer.echo(f"\n{heading}\n{textwrap.fill(body, width, initial_indent='  ', subsequent_indent='  ')}")
