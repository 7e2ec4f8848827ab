"""``xttsbench service``: servers of TensorFlow's tf.data service, and files that start them on a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from xttsbench.cli.options import shared
from xttsbench.cli.output import printable, say
from xttsbench.cluster import host_and_port, unreachable
from xttsbench.errors import ServiceError, UsageError
from xttsbench.probes.environment import package_versions, require_tensorflow
from xttsbench.service.cluster import server_command, server_environment
from xttsbench.service.manifests import FORMATS, write

_CONNECT_S: Final = 5.0

app = typer.Typer(
    name="service",
    no_args_is_help=True,
    help="\n\n".join(
        (
            "Run input pipelines on other machines: the dispatcher and the workers of TensorFlow's tf.data service.",
            "Workers run TensorFlow's own ops, in C++. A pipeline with a Python function (py_function, "
            "numpy_function, from_generator) is refused at its first batch. Variables and lookup tables are copied as "
            "they are when the dataset is made. All sides have the same version of TensorFlow and see the same files.",
            "The service promises no order. With ShardingPolicy.OFF every worker yields the whole data set, so a "
            "sample comes once for each worker, and again from a worker that is started again. With DYNAMIC each "
            "sample comes at most once an epoch; a worker or a client that is killed loses what it holds. With "
            "FILE and DATA a worker that is started again yields its part again. An epoch ends only where every "
            "worker that the dispatcher has met is there: start one that died again with the same --host and "
            "--port, or clients wait for ever.",
            "Whoever reaches a port can have it run ops: there is no password and no encryption.",
        )
    ),
)

Port = Annotated[int, typer.Option(min=0, max=65535, help="Port, on all interfaces (default: any that is free).")]
Host = Annotated[str | None, typer.Option(metavar="NAME", help="How others reach this machine (default: by name).")]
TensorFlow = Annotated[str | None, typer.Option(metavar="VERSION", help="Refuse to start with another TensorFlow.")]
Dispatcher = Annotated[str, typer.Option(metavar="HOST:PORT", help="Address that the dispatcher prints.")]
Journal = Annotated[Path | None, typer.Option(metavar="DIR", help="Started again with it and --port, epochs go on.")]
Fixed = Annotated[list[str] | None, typer.Option(metavar="HOST:PORT", help="Each worker, for FILE and DATA sharding.")]
Wait = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long the dispatcher may take to answer.")]
Drain = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to serve, asked to end, what is read.")]
Number = Annotated[int, typer.Option("--workers", min=1, max=1000, help="Number of workers.")]
Folder = Annotated[Path, typer.Option(metavar="DIR", help="Directory for the file, made if missing.")]
Format = Annotated[str, typer.Option("--format", metavar="|".join(FORMATS), help="For which cluster.")]
Cores = Annotated[int, typer.Option(min=1, help="Cores of each worker.")]
Memory = Annotated[int, typer.Option(min=1, metavar="GB", help="Memory of each worker.")]
Image = Annotated[str, typer.Option(help="Container image with xttsbench and TensorFlow.")]


@app.command("dispatcher")
@shared("as_json", "debug")
def dispatcher(
    context: typer.Context,
    port: Port = 0,
    host: Host = None,
    work_dir: Journal = None,
    worker: Fixed = None,
    tensorflow: TensorFlow = None,
) -> None:
    """Run the dispatcher until SIGTERM or Ctrl-C; prints the address for clients and workers as its only line.

    Exit code: 143 or 130 when ended by that signal, 1 where it does not start.

    Example:  xttsbench service dispatcher --port 5050 --work-dir service
    """
    journal = None if work_dir is None else str(work_dir)
    _serve(context, "dispatcher", host, tensorflow, 0.0, port=port, work_dir=journal, workers=worker or [])


@app.command("worker")
@shared("as_json", "debug")
def worker(
    context: typer.Context,
    dispatcher: Dispatcher,
    port: Port = 0,
    host: Host = None,
    wait: Wait = 60.0,
    drain: Drain = 20.0,
    tensorflow: TensorFlow = None,
) -> None:
    """Run a worker until SIGTERM or Ctrl-C; prints its address as its only line.

    It runs TensorFlow's own ops and needs no module of yours; Python functions and generators are refused. Asked to
    end, it serves the epochs that are being read until they are over, but no longer than --drain; what it holds after
    that is lost to them, and they wait until a worker with the same --host and --port is there again. A second signal
    ends it at once.

    Exit code: 143 or 130 when ended by that signal, 1 where the dispatcher does not answer or it does not start.

    Example:  xttsbench service worker --dispatcher localhost:5050
    """
    address = dispatcher.removeprefix("grpc://")
    try:
        host_and_port(address)
    except ValueError as error:
        raise UsageError(f"--dispatcher is HOST:PORT, not {address!r}.") from error
    end = time.monotonic() + wait
    # For a server of another kind TensorFlow would wait without end.
    while (why := unreachable(address, _CONNECT_S, grpc=True)) is not None:
        if time.monotonic() > end:
            raise ServiceError(f"no dispatcher answered at {address} within {wait:g} s ({why}); start it first.")
        time.sleep(0.2)
    _serve(context, "worker", host, tensorflow, drain, port=port, dispatcher=address)


@app.command("manifests")
@shared("as_json", "debug")
def manifests(
    context: typer.Context,
    workers: Number,
    out: Folder,
    kind: Format = "kubernetes",
    cores: Cores = 4,
    memory: Memory = 8,
    image: Image = "xttsbench:latest",
) -> None:
    """Write a file that starts dispatcher and workers on Kubernetes, or a Slurm batch script that also runs training.

    The file asks for the version of TensorFlow that is installed here. The Kubernetes file was checked against the
    schema and never run on a cluster.

    Example:  xttsbench service manifests --workers 4 --out deploy --format slurm
    """
    path = write(kind, out, workers, cores, memory, image, package_versions()["tensorflow"])
    typer.echo(json.dumps({"file": str(path.resolve())}) if context.params["as_json"] else printable(str(path)))


def _serve(
    context: typer.Context, what: str, host: str | None, tensorflow: str | None, drain_s: float, **options: Any
) -> None:
    """Become the server: the process that was started is the one that serves and has the signals."""
    require_tensorflow()
    if tensorflow not in (None, own := package_versions()["tensorflow"]):
        raise ServiceError(f"TensorFlow here is {own}, and --tensorflow asks for {tensorflow}.")
    with contextlib.suppress(OSError):  # this machine's name leads nowhere
        socket.getaddrinfo(socket.gethostname(), None)
        host = host or socket.gethostname()
    options |= {"host": host or "localhost", "drain_s": drain_s, "as_json": context.params["as_json"]}
    say(f"Starting the {what}; importing TensorFlow takes some seconds.")
    sys.stderr.flush()
    command = server_command("xttsbench.service", what, json.dumps(options))
    os.execve(command[0], command, {"TF_CPP_MIN_LOG_LEVEL": "1", **server_environment()})
