"""A tf.data service on this machine: dispatcher and workers in processes of their own, which end with this one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from xttsbench.errors import ServiceError
from xttsbench.processes import TRIALS, readable, with_package

_IMPORT_S: Final = 180.0  # importing TensorFlow takes 4-7 s on two cores; a cold disk can take much longer
_START_S: Final = 60.0
_END_S: Final = 10.0
_CLIENT_TIMEOUT_S: Final = 3600.0  # trials that take turns are stopped, and their clusters with them


@contextlib.contextmanager
def loopback(
    workers: int = 1,
    *,
    cores: float | None = None,
    worker_addresses: Sequence[str] = (),
    folder: Path | None = None,
) -> Iterator[Cluster]:
    """Run a dispatcher and workers on this machine.

    It is left in the thread that entered it, which has to live as long: the kernel ends the cluster with that thread.

    Args:
        workers: to begin with.
        cores: quota of each worker, 0.25 for a quarter of a core; ``None`` for no quota.
        worker_addresses: addresses ``HOST:PORT`` of all workers there will be, which the policies FILE and DATA need.
        folder: for the dispatcher's journal and the logs; by default one that is removed at the end.

    Raises:
        ServiceError: a server did not start; names its log, which is kept.
    """
    own = folder is None
    # Within a trial it goes with the helper, however the trial ends.
    kept = next(filter(os.path.isdir, [os.environ.get(TRIALS, "")]), None)
    folder = Path(tempfile.mkdtemp(prefix="xttsbench-service-", dir=kept)) if folder is None else folder
    cluster = Cluster(folder, cores, worker_addresses)
    try:
        cluster.answer(timeout_s=_IMPORT_S)
        cluster.restart_dispatcher()
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    except ServiceError:
        own = False
        raise
    finally:
        cluster.close()
        if own:
            shutil.rmtree(folder, ignore_errors=True)


def server_command(module: str, *arguments: str) -> list[str]:
    """Command line of a module of this package that serves."""
    return [sys.executable, "-P", "-m", module, *arguments]


def server_environment() -> dict[str, str]:
    """Environment variables of a server: input runs on processors, and a GPU's memory is the trainer's."""
    return with_package({**os.environ, "CUDA_VISIBLE_DEVICES": "-1"})


class Cluster:
    """A running service; :func:`loopback` makes one.

    Attributes:
        quota: what holds the workers to their cores (:class:`~xttsbench.service.quota.Quota`); ``None`` without quota.
        workers: process ids of the workers, in the order in which they were started; ``None`` for one that was killed.
        dispatcher: process id of the dispatcher; ``None`` while it is stopped.
    """

    def __init__(self, folder: Path, cores: float | None, worker_addresses: Sequence[str]) -> None:
        self._folder, self._cores, self._addresses = folder, cores, list(worker_addresses)
        self._port, self._worker_ports = 0, list[int]()
        self.quota: str | None = None
        self.workers: list[int | None] = []
        self.dispatcher: int | None = None
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = server_command("xttsbench.service.nursery", str(theirs.fileno()), str(folder))
        with theirs, (folder / "start.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env=server_environment(),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def target(self) -> str:
        """Address for ``tf.data.experimental.service.distribute(service=...)``."""
        return f"grpc://localhost:{self._port}"

    @property
    def pids(self) -> list[int]:
        """Process ids of the servers that run, the dispatcher's first."""
        return [pid for pid in (self.dispatcher, *self.workers) if pid is not None]

    def add_worker(self) -> int:
        """Start one more worker; returns its index."""
        self.workers.append(None)
        self._worker_ports.append(0)
        self.restart_worker(len(self.workers) - 1)
        return len(self.workers) - 1

    def restart_worker(self, index: int) -> None:
        """Start a worker that was killed, under the address that it had: only so will epochs that it served end."""
        options = {"dispatcher": f"localhost:{self._port}", "port": self._worker_ports[index], "cores": self._cores}
        self.workers[index], self._worker_ports[index] = self._start("worker", f"worker-{index}.log", options)

    def kill_worker(self, index: int) -> None:
        """Kill a worker."""
        if (pid := self.workers[index]) is not None:
            self._send({"kill": pid})
            self.answer()
            self.workers[index] = None

    def limit_worker(self, index: int, cores: float) -> None:
        """Change the quota of a running worker, or give it one."""
        if (pid := self.workers[index]) is not None:
            self._send({"limit": pid, "cores": cores})
            self.answer()

    def stop_dispatcher(self) -> None:
        """Kill the dispatcher; its journal stays."""
        if self.dispatcher is not None:
            self._send({"kill": self.dispatcher})
            self.answer()
            self.dispatcher = None

    def restart_dispatcher(self) -> None:
        """Start the dispatcher on the port that it had, with what its journal says."""
        options = {"port": self._port, "work_dir": str(self._folder / "journal"), "workers": self._addresses}
        options |= {"client_timeout_s": _CLIENT_TIMEOUT_S, "cores": None}
        self.dispatcher, self._port = self._start("dispatcher", "dispatcher.log", options)

    def close(self) -> None:
        """End all processes."""
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._process.kill()
        self._process.wait()

    def _start(self, what: str, log: str, options: dict[str, Any]) -> tuple[int, int]:
        self._send({"start": what, "log": log, **options})
        answer = self.answer(f"The {what} of the tf.data service", log)
        return answer["pid"], answer["port"]

    def _send(self, request: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it is gone, and the answer says so
            self._control.send(json.dumps(request).encode())

    def answer(
        self, what: str = "The process of the tf.data service", log: str = "start.log", timeout_s: float = _START_S
    ) -> dict[str, Any]:
        """Wait for the answer to the last request, or, at first, until TensorFlow is imported."""
        path = self._folder / log
        if not readable([self._control], timeout_s):
            raise ServiceError(f"{what} did not answer within {timeout_s:.0f} s; its log is {path}.")
        data = b""
        with contextlib.suppress(ConnectionResetError):  # it ended without reading the request
            data = self._control.recv(65536)
        if not data:
            raise ServiceError(f"{what} has ended; its log is {path}.")
        answer: dict[str, Any] = json.loads(data)
        if "error" in answer:
            raise ServiceError(f"{what} did not start ({answer['error']}); its log is {path}.")
        self.quota = answer.get("quota") or self.quota
        return answer
