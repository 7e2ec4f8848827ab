"""A tf.data service on this machine: dispatcher and workers in processes of their own, which end with this one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
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


@contextlib.contextmanager
def loopback(
    workers: int = 1, *, cores: float | None = None, worker_addresses: Sequence[str] = (), folder: Path | None = None
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
        cluster.open()
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
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._buffer = b""
        self._port = 0
        self.quota: str | None = None
        self.workers: list[int | None] = []
        self.dispatcher: int | None = None

    @property
    def target(self) -> str:
        """Address for ``tf.data.experimental.service.distribute(service=...)``."""
        return f"grpc://localhost:{self._port}"

    @property
    def pids(self) -> list[int]:
        """Process ids of the servers that run, the dispatcher's first."""
        return [pid for pid in (self.dispatcher, *self.workers) if pid is not None]

    def open(self) -> None:
        """Start the process that forks the servers, and the dispatcher."""
        ours, theirs = socket.socketpair()
        with theirs, (self._folder / "start.log").open("ab") as log:
            self._process = subprocess.Popen(
                server_command("xttsbench.service.nursery", str(theirs.fileno()), str(self._folder)),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=server_environment(),
            )
        self._control = ours
        self._answer("The process of the tf.data service", "start.log", _IMPORT_S)
        self.restart_dispatcher()

    def add_worker(self) -> int:
        """Start one more worker; returns its index."""
        index = len(self.workers)
        self.workers.append(
            self._start("worker", f"worker-{index}.log", dispatcher=f"localhost:{self._port}", cores=self._cores)[0]
        )
        return index

    def kill_worker(self, index: int, number: int = signal.SIGKILL) -> None:
        """Kill a worker, or send it another signal (SIGSTOP, SIGCONT)."""
        if (pid := self.workers[index]) is not None:
            self._ask({"end": pid, "signal": number})
            if number == signal.SIGKILL:
                self.workers[index] = None

    def limit_worker(self, index: int, cores: float) -> None:
        """Change the quota of a running worker, or give it one."""
        if (pid := self.workers[index]) is not None:
            self._ask({"limit": pid, "cores": cores})

    def stop_dispatcher(self) -> None:
        """Kill the dispatcher; its journal stays."""
        if self.dispatcher is not None:
            self._ask({"end": self.dispatcher, "signal": signal.SIGKILL})
            self.dispatcher = None

    def restart_dispatcher(self) -> None:
        """Start the dispatcher on the port that it had, with what its journal says."""
        journal = str(self._folder / "journal")
        self.dispatcher, self._port = self._start(
            "dispatcher", "dispatcher.log", port=self._port, work_dir=journal, workers=self._addresses, cores=None
        )

    def close(self) -> None:
        """End all processes."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _start(self, what: str, log: str, **options: Any) -> tuple[int, int]:
        self._send({"start": what, "log": log, **options})
        answer = self._answer(f"The {what} of the tf.data service", log, _START_S)
        return answer["pid"], answer["port"]

    def _ask(self, request: dict[str, Any]) -> None:
        self._send(request)
        self._answer("The process of the tf.data service", "start.log", _START_S)

    def _send(self, request: dict[str, Any]) -> None:
        assert self._control is not None
        with contextlib.suppress(OSError):  # it is gone, and the answer says so
            self._control.sendall(json.dumps(request).encode() + b"\n")

    def _answer(self, what: str, log: str, timeout_s: float) -> dict[str, Any]:
        assert self._control is not None
        path = self._folder / log
        while b"\n" not in self._buffer:
            if not readable([self._control], timeout_s):
                raise ServiceError(f"{what} did not answer within {timeout_s:.0f} s; its log is {path}.")
            try:
                data = self._control.recv(65536)
            except OSError:
                data = b""
            if not data:
                raise ServiceError(f"{what} has ended; its log is {path}.")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if (error := answer.get("error")) is not None:
            raise ServiceError(f"{what} did not start ({error}); its log is {path}.")
        self.quota = answer.get("quota") or self.quota
        return answer
