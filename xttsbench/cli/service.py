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

from xttsbench.cli.options import AsJson, Debug
from xttsbench.cli.output import printable, say
from xttsbench.errors import ServiceError, UsageError
from xttsbench.probes.environment import package_versions, require_tensorflow
from xttsbench.service.cluster import server_command, server_environment
from xttsbench.service.manifests import FORMATS, write

app = typer.Typer(
    name="service",
    no_args_is_help=True,
    help="""Run input pipelines on other machines: the dispatcher and the workers of TensorFlow's tf.data service.

    Workers run TensorFlow's own ops, in C++. A pipeline with a Python function (py_function, numpy_function,
    from_generator) is refused by a worker, and lookup tables are by DYNAMIC sharding. All sides have the same version
    of TensorFlow and see the same files.

    The service promises no order. With ShardingPolicy.OFF every worker yields the whole data set, so a sample comes
    once for each worker, and again from a worker that is started again. With DYNAMIC each sample comes at most once an
    epoch; a worker or a client that is killed loses what it holds. With FILE and DATA a worker that is started again
    yields its part again. Whoever reaches a port can have it run ops: there is no password and no encryption.""",
)

Host = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Name or address under which other machines reach this one (default: its name)."),
]
TensorFlow = Annotated[
    str | None, typer.Option("--tensorflow", metavar="VERSION", help="Refuse to start with another TensorFlow.")
]
_ANY_PORT: Final = "Port to listen on, on all interfaces (default: any that is free)."


@app.command("dispatcher")
def dispatcher(
    port: Annotated[int, typer.Option(min=0, max=65535, help=_ANY_PORT)] = 0,
    host: Host = None,
    work_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Keeps a journal there; started again with it, on the same port, it goes on in epochs."
        ),
    ] = None,
    worker: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="All workers there will be, for FILE and DATA sharding; repeatable."),
    ] = None,
    tensorflow: TensorFlow = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run the dispatcher until SIGTERM or Ctrl-C; prints the address for clients and workers as its only line.

    Exit code: 143 or 130 when ended by that signal, 1 where it does not start.

    Example:  xttsbench service dispatcher --port 5050 --work-dir service
    """
    _free(port)
    options = {"port": port, "work_dir": None if work_dir is None else str(work_dir), "workers": worker or []}
    _serve("dispatcher", host, tensorflow, as_json, 0.0, options)


@app.command("worker")
def worker(
    dispatcher: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address that the dispatcher prints.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help=_ANY_PORT)] = 0,
    host: Host = None,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long the dispatcher may take to answer.")
    ] = 60.0,
    drain: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="How long, asked to end, to serve the epochs that are being read."),
    ] = 20.0,
    tensorflow: TensorFlow = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run a worker until SIGTERM or Ctrl-C; prints its address as its only line.

    It runs TensorFlow's own ops and needs no module of yours; Python functions and generators are refused. Asked to
    end, it serves the epochs that are being read until they are over, but no longer than --drain; what it holds after
    that is lost to them. A second signal ends it at once.

    Exit code: 143 or 130 when ended by that signal, 1 where the dispatcher does not answer or it does not start.

    Example:  xttsbench service worker --dispatcher localhost:5050
    """
    address = dispatcher.removeprefix("grpc://")
    _free(port)
    _answers(address, wait)
    _serve("worker", host, tensorflow, as_json, drain, {"port": port, "dispatcher": address})


@app.command("manifests")
def manifests(
    workers: Annotated[int, typer.Option(min=1, max=1000, help="Number of workers.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory for the file, made if missing.")],
    kind: Annotated[str, typer.Option("--format", metavar="|".join(FORMATS), help="For which cluster.")] = "kubernetes",
    cores: Annotated[int, typer.Option(min=1, help="Cores of each worker.")] = 4,
    memory: Annotated[int, typer.Option(min=1, metavar="GB", help="Memory of each worker.")] = 8,
    image: Annotated[
        str, typer.Option(help="Container image with xttsbench, TensorFlow and your data's credentials.")
    ] = "xttsbench:latest",
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write a file that starts dispatcher and workers on Kubernetes, or a Slurm batch script that also runs training.

    The file asks for the version of TensorFlow that is installed here. The Kubernetes file was checked against the
    schema and never run on a cluster.

    Example:  xttsbench service manifests --workers 4 --out deploy --format slurm
    """
    path = write(
        kind,
        out,
        workers=workers,
        cores=cores,
        memory_gb=memory,
        image=image,
        tensorflow=package_versions()["tensorflow"],
    )
    typer.echo(json.dumps({"file": str(path.resolve())}) if as_json else printable(str(path)))


def _serve(
    what: str, host: str | None, tensorflow: str | None, as_json: bool, drain_s: float, options: dict[str, Any]
) -> None:
    """Become the server: the process that was started is the one that serves and has the signals."""
    require_tensorflow()
    if tensorflow not in (None, own := package_versions()["tensorflow"]):
        raise ServiceError(f"TensorFlow here is {own}, and --tensorflow asks for {tensorflow}.")
    common = {"host": host or _own_name(), "as_json": as_json, "drain_s": drain_s}
    say(f"Starting the {what}; importing TensorFlow takes some seconds.")
    command = server_command("xttsbench.service", what, json.dumps(options | common))
    sys.stderr.flush()
    os.execve(command[0], command, {"TF_CPP_MIN_LOG_LEVEL": "1", **server_environment()})


def _own_name() -> str:
    """Name of this machine, where that has an address; else ``localhost``."""
    with contextlib.suppress(OSError):
        socket.getaddrinfo(socket.gethostname(), None)
        return socket.gethostname()
    return "localhost"


def _free(port: int) -> None:
    if port:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError as error:
                raise UsageError(f"--port {port} cannot be used: {error.strerror}; name another, or 0.") from None


def _answers(address: str, wait_s: float) -> None:
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit() and int(port) < 65536):
        raise UsageError(f"--dispatcher is HOST:PORT, not {address!r}.")
    end = time.monotonic() + wait_s
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise ServiceError(
                    f"no dispatcher answered at {address} within {wait_s:g} s ({error}); start it first, or check its "
                    "--host and the network between."
                ) from None
        time.sleep(0.2)
