"""Processes that train together: named by ``TF_CONFIG``, or by the step of Slurm that this process is a task of."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final, NamedTuple

from xttsbench.errors import UsageError

TF_CONFIG: Final = "TF_CONFIG"
_JOBS: Final = ("chief", "worker")
"""Jobs whose tasks train, in TensorFlow's order."""
_FIRST_PORT: Final = 20_000
_JOBS_APART: Final = 750
_PORTS: Final = 16
"""Ports of a job of Slurm on a node; all are below those that the kernel gives to connections (from 32,768 on)."""
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
        while not (gone := [number for number in others if not _takes_connections(self.addresses[number])]):
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
        return _of_config(json.loads(text or ""))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = "it is not set" if text is None else f"it is {text!r} ({type(error).__name__}: {error})"
        raise UsageError(
            f"--strategy multi_worker reads {TF_CONFIG}, and {why}; set it to "
            '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}, each process with '
            "its own index, or start the processes with srun."
        ) from error


def _of_config(config: Any) -> Cluster:
    jobs, task = config["cluster"], config["task"]
    if other := [job for job in jobs if job not in _JOBS]:
        raise ValueError(f"the job {other[0]!r} has no part in this training")
    addresses = [address for job in _JOBS for address in jobs.get(job, ())]
    for address in addresses:
        if not re.fullmatch(r"\S+:\d+", address):
            raise ValueError(f"{address!r} is no host:port")
    if len(set(addresses)) < len(addresses):
        raise ValueError("an address is there twice")
    job, index = task["type"], int(task["index"])
    if not 0 <= index < len(jobs[job]):
        raise ValueError(f"the task's index is {index}, and the job {job!r} has {len(jobs[job])} task(s)")
    return Cluster(tuple(addresses), addresses.index(jobs[job][index]))


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


def _takes_connections(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with closing(socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S)):
            return True
    except OSError:
        return False
