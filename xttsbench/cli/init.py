"""``xttsbench init [FILE]``: a target file to start from."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from xttsbench.cli.options import AsJson, Debug


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("xttsbench_target.py"),
    dataset: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="What returns your tf.data.Dataset: module:function or file.py:function; without it an example.",
            show_default=False,
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET", help="Your function that takes a batch and trains one step.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="TARGET", help="What returns your compiled Keras model.", show_default=False),
    ] = None,
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
