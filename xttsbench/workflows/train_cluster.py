"""Which of several processes that train together this one is, and where its run lies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from xttsbench.errors import UsageError
from xttsbench.workflows.train_job import TrainRequest


def worker_number(cluster: str | None) -> int:
    """Return the number of this process among the workers; 0 is the one that writes checkpoints.

    Args:
        cluster: the content of ``TF_CONFIG``, or ``None`` where it is not set.

    Raises:
        UsageError: it names no worker.
    """
    try:
        task = json.loads(cluster or "")["task"]
        number = int(task["index"])
        if task["type"] != "worker" or number < 0:
            raise ValueError(task)
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"--strategy multi_worker reads TF_CONFIG, and it is {cluster!r}; set it to "
            '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}, each process with '
            "its own index."
        ) from error
    return number


def follower(request: TrainRequest, number: int) -> tuple[TrainRequest, Path]:
    """Return the request of a worker that does not write checkpoints, and the run that does.

    Its own journal and report lie beside that run, in a directory of their own: two processes never write one file.

    Raises:
        UsageError: the run is not named.
    """
    if request.out is None:
        raise UsageError(
            f"worker {number} needs --out, the same directory for all processes and on storage that they share: it "
            "holds the checkpoints."
        )
    return replace(request, out=request.out.with_name(f"{request.out.name}.worker-{number}")), request.out
