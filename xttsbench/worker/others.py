"""Other workers of a training: whether they train the same job, and which of them an error is due to."""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import Any, Final

import tensorflow as tf

from xttsbench import __version__
from xttsbench.cluster import read_cluster
from xttsbench.errors import InvalidInputError, XttsbenchError
from xttsbench.records.training import TrainJob
from xttsbench.training.course import Origin
from xttsbench.training.step import Workers
from xttsbench.worker.failure import said

_STAYS_S: Final = 2.0
"""Time in which a worker that ends with an error takes connections yet, so that the others see who ended first."""
_DIGITS: Final = 12
"""Hexadecimal digits of a hash that a float64 holds exactly."""
_OF_OTHERS: Final = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
    tf.errors.CancelledError,
)


def agree(workers: Workers, origin: Origin, job: TrainJob) -> None:
    """Compare the job with those of all workers, before the first variable is made.

    Raises:
        InvalidInputError: they differ, so that the workers would wait for each other or train on different batches.
    """
    parts: dict[str, Any] = {
        "xttsbench": __version__,
        "tensorflow": tf.__version__,
        **origin.model_dump(mode="json"),
        **job.recipe["training"],
        "mode": job.config["mode"],
        "accelerator": job.accelerator_ms,
    }
    if len(set(workers.gather(_number(parts)))) == 1:
        return
    differing = [name for name, value in parts.items() if len(set(workers.gather(_number(value)))) > 1]
    raise InvalidInputError(
        f"the workers were given different jobs, which differ in {', '.join(differing)}; start each with the same "
        "options, data and versions"
    )


def _number(value: object) -> float:
    text = json.dumps(value, sort_keys=True)
    return int(hashlib.sha256(text.encode()).hexdigest()[:_DIGITS], 16)


def explained_by_others(error: BaseException) -> BaseException:
    """Return an error that names the lost workers where one is due to them, else the error itself.

    It takes two seconds.
    """
    cluster = read_cluster(os.environ)
    found = error
    if isinstance(error, _OF_OTHERS):
        lost = cluster.lost(str(error))
        named = " and ".join(f"{number} ({cluster.addresses[number]})" for number in lost)
        who = {0: "another worker does", 1: f"worker {named} does"}.get(len(lost), f"workers {named} do")
        found = XttsbenchError(
            f"{who} not answer any more, and the others cannot go on without it ({said(error)}); see "
            "how it ended, and start all workers again with the same --out: the run resumes from its newest checkpoint"
        )
        found.__cause__ = error
    time.sleep(_STAYS_S)
    return found
