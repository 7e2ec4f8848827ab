"""Processes that train together: named by ``TF_CONFIG``, or by the step of Slurm that this process is a task of."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from xttsbench.errors import UsageError
from xttsbench.records.ranks import RankTask

TF_CONFIG: Final = "TF_CONFIG"
_JOBS: Final = ("chief", "master", "worker")
"""Jobs whose tasks train, in TensorFlow's order."""
_LAUNCHERS: Final = (
    ("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("RANK", "RANK", "WORLD_SIZE"),
)
"""Variables of a process's number and of how many there are; a batch script of Slurm, which is no task of a step, has
the first alone. The last are those of Ray Train."""
_FIRST_PORT: Final = 20_000
_JOBS_APART: Final = 750
_PORTS: Final = 16
"""Ports of a job of Slurm on a node; all are below those that the kernel gives to connections (from 32,768 on)."""
_LAST_PORT: Final = 65_535
_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS: Final = b"\0\0\0\4\0\0\0\0\0"
"""The first frame of HTTP/2 that each side sends, here an empty one; its fourth byte says what it is."""
_CONNECT_S: Final = 2.0
_DIES_S: Final = 1.0
_UNHEALTHY: Final = re.compile(r"^/job:worker/replica:\d+/task:(\d+)$", re.MULTILINE)
"""A line of TensorFlow's coordination service on a task that sends no heartbeats."""
_COORDINATION: Final = "/tensorflow.CoordinationService/"
"""Calls of it go to the chief, which runs it."""


class Cluster(NamedTuple):
    """Workers of a run, and this process among them."""

    addresses: tuple[str, ...]
    """``host:port`` of each worker; the first is the chief, which writes the checkpoints."""
    number: int
    """Place of this process among them."""

    def tf_config(self) -> str:
        """Return the value of ``TF_CONFIG`` for this process; the first of the workers is the chief."""
        return json.dumps({"cluster": {"worker": self.addresses}, "task": {"type": "worker", "index": self.number}})

    def lost(self, said: str) -> list[int]:
        """Return the workers that an error of TensorFlow's is due to: those that it says are silent, else those gone.

        Of those gone some may only have heard earlier than this one. Who was just killed takes connections a moment
        longer, and a machine that is switched off answers none for two seconds.
        """
        others = [number for number in range(len(self.addresses)) if number != self.number]
        if silent := [number for number in others if str(number) in _UNHEALTHY.findall(said)]:
            return silent
        of_chief = [0] if _COORDINATION in said and self.number else []
        until = time.monotonic() + (0.0 if of_chief else _DIES_S)
        while not (gone := [number for number in others if unreachable(self.addresses[number], _CONNECT_S)]):
            if time.monotonic() >= until:
                return of_chief
            time.sleep(_DIES_S / 10)
        return gone


def read_cluster(variables: Mapping[str, str]) -> Cluster:
    """Return the cluster that a process's environment variables name.

    Raises:
        UsageError: they name none, or one that does not hold this process.
    """
    text = variables.get(TF_CONFIG)
    if not text and "SLURM_STEP_NODELIST" in variables:
        return _of_step(variables)
    try:
        config = json.loads(text or "")
        if other := [job for job in config["cluster"] if job not in _JOBS]:
            raise ValueError(f"the job {other[0]!r} has no part in this training")
        found = _of_config(config)
        for address in found.addresses:
            host_and_port(address)
        if len(set(found.addresses)) < len(found.addresses):
            raise ValueError("an address is there twice")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = "it is not set" if text is None else f"it is {text!r} ({type(error).__name__}: {error})"
        raise UsageError(
            f"--strategy multi_worker reads {TF_CONFIG}, and {why}; set it to "
            '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}, each process with '
            "its own index, or start the processes with srun."
        ) from error
    return found


def task_of(environ: Mapping[str, str]) -> RankTask | None:
    """The place of a process by its environment; ``None`` where it trains alone, or is a parameter server."""
    try:
        config = json.loads(environ.get(TF_CONFIG) or "{}")
        if config.get("cluster"):
            addresses, number = _of_config(config)
            return RankTask(rank=number, ranks=len(addresses), source=TF_CONFIG) if len(addresses) > 1 else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    for source, *names in _LAUNCHERS:
        numbers = [int(environ[name]) for name in names if environ.get(name, "").isdecimal()]
        if len(numbers) == len(names) and numbers[0] < numbers[1] > 1:
            return RankTask(rank=numbers[0], ranks=numbers[1], source=source)
    return None


def unreachable(address: str, timeout_s: float, *, grpc: bool = False) -> Exception | None:
    """Return what keeps an address from taking a connection; ``None`` where it takes one.

    With ``grpc`` it has to answer as a server of gRPC does, too.

    Raises:
        ValueError: it is no ``host:port``.
    """
    try:
        with socket.create_connection(host_and_port(address), timeout_s) as connection:
            if grpc:
                connection.sendall(_GREETING + _SETTINGS)
                if connection.recv(len(_SETTINGS))[3:4] != _SETTINGS[3:4]:
                    raise OSError("what answers there is no server of gRPC")
    except (OSError, UnicodeError) as error:  # UnicodeError: a name with an empty or too long part
        return error
    return None


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of ``host:port``.

    Raises:
        ValueError: it is none.
    """
    found = re.fullmatch(r"(\S+):([0-9]{1,5})", address)
    if found is None or int(found[2]) > _LAST_PORT:
        raise ValueError(f"{address!r} is no host:port")
    return found[1].strip("[]"), int(found[2])


def _of_config(config: Any) -> Cluster:
    """The cluster of a ``TF_CONFIG``; jobs whose tasks do not train are left out."""
    jobs, task = config["cluster"], config["task"]
    addresses = tuple(address for job in _JOBS for address in jobs.get(job, ()))
    job, index = task["type"], int(task["index"])
    if job not in _JOBS:
        raise ValueError(f"the job {job!r} has no part in this training")
    if not 0 <= index < len(jobs[job]):
        raise ValueError(f"the task's index is {index}, and the job {job!r} has {len(jobs[job])} task(s)")
    return Cluster(addresses, sum(len(jobs.get(one, ())) for one in _JOBS[: _JOBS.index(job)]) + index)


def _of_step(variables: Mapping[str, str]) -> Cluster:
    """Cluster of a step that ``srun`` started, whose tasks fill one node after the other, as they do by default."""
    nodes = variables["SLURM_STEP_NODELIST"]
    try:
        names = subprocess.run(
            ["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=True
        ).stdout.split()
        counts = [
            int(count)
            for count, repeat in re.findall(r"(\d+)(?:\(x(\d+)\))?", variables["SLURM_STEP_TASKS_PER_NODE"])
            for _ in range(int(repeat or 1))
        ]
        first_port = _FIRST_PORT + int(variables["SLURM_JOB_ID"]) % _JOBS_APART * _PORTS
        tasks = [(node, local) for node, count in enumerate(counts) for local in range(count)]
        number = int(variables["SLURM_PROCID"])
        if tasks[number] != (int(variables["SLURM_NODEID"]), int(variables["SLURM_LOCALID"])):
            raise ValueError("the tasks do not fill one node before the next: give srun '--distribution=block'")
        return Cluster(tuple(f"{names[node]}:{first_port + local}" for node, local in tasks), number)
    except (OSError, subprocess.SubprocessError, KeyError, ValueError, IndexError) as error:
        raise UsageError(
            f"the step of Slurm on {nodes} cannot be read ({type(error).__name__}: {error}); set {TF_CONFIG} in "
            "its place."
        ) from error
