"""``xttsbench plan [RUN]``: what more cores, input workers, replicas or a faster accelerator would give."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from xttsbench.cli import options
from xttsbench.cli.output import Lines, end
from xttsbench.cli.read import seconds


class Sharding(StrEnum):
    """Ways in which the dispatcher divides the data among workers."""

    dynamic = "dynamic"
    off = "off"


@options.shared("out", "redact", "show_output", "browse", "verbose", "quiet", "as_json", "debug")
def plan(
    context: typer.Context,
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="A run of diagnose, or an earlier plan (default: the newest diagnose)."),
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML with machines for workers and their prices.")
    ] = None,
    cores: Annotated[
        float | None, typer.Option(min=0.05, help="Cores of each worker (default: as many as here).")
    ] = None,
    latency: Annotated[
        list[str] | None, typer.Option(metavar="TIME", help="Round trip of the network (default 0.2ms); repeatable.")
    ] = None,
    sharding: Annotated[
        Sharding, typer.Option(help="dynamic: each sample once; off: each worker has all of the data.")
    ] = Sharding.dynamic,
    measure: Annotated[
        int, typer.Option(min=0, max=8, metavar="N", help="Run the input on 1 to N workers here, a quarter core each.")
    ] = 0,
) -> None:
    """Plan what more cores, input workers, replicas, networks or a faster accelerator would give.

    It measures for some 25 s what a batch costs on its way through a tf.data service on this machine, and with
    --measure what so many workers really give, about half a minute for each.

    Example:  xttsbench plan reports/20261121T080000Z-diagnose-make --prices machines.yaml
    """
    from xttsbench.workflows.plan import Request
    from xttsbench.workflows.plan import plan as planned

    found = tuple(0.0 if text in ("0", "0ms", "0s") else seconds("--latency", text) or 0.0 for text in latency or ())
    request = options.asked(context, Request, latencies_s=found, sharding=sharding.value)
    end(planned(request, progress=Lines(quiet=context.params["quiet"])), context)
