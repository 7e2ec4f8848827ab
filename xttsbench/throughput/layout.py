"""Throughput of a training that reads its input from workers of the tf.data service: pure, on draws of its needs.

An operational model, as :mod:`xttsbench.throughput.pace` has it: each resource needs a time for a batch, and the
slowest sets the pace. A worker makes batches with its processors and hands over one at a time to each client (tried on
TensorFlow 2.21: a client has one request at a worker under way, whatever the latency, and a request takes one round
trip), so that a worker's own limit is the longest of making, processor time over processors, and a request. Of a worker
with less than a core, what a request waits for is halted with the rest as far as its quota is used up. What all workers
give together is limited by the client's processors and network, by the dispatcher where it hands out splits, and by the
step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from xttsbench.throughput.pace import STEP, FloatArray

WORKERS: Final = "workers' processors"
PIPELINE: Final = "workers' pipeline"
REQUESTS: Final = "workers' requests"
NETWORK: Final = "network"
CLIENT: Final = "client's deserialisation"
DISPATCHER: Final = "dispatcher"
KNEE: Final = 0.95
"""Share of the highest throughput from which on more workers are not worth it."""
_TIE: Final = 1e-9
_BITS: Final = 8e-9  # Gbit of a byte


@dataclass(frozen=True)
class Needs:
    """Needs of one batch: seconds unless the name says otherwise, each a number or draws of shape ``(n,)``.

    Attributes:
        step_s: the step alone, the hand-over of a batch included; 0 for a bare dataset.
        step_cpu_s: processor time of the step on the client.
        making_s: the pipeline with processors enough, by the cores of a worker.
        worker_cpu_s: processor time of a worker for making, serialising and sending it.
        sending_s: the part of that for serialising and sending, which a request waits for.
        client_cpu_s: processor time of a client for receiving and deserialising it.
        request_s: one request between processes of one machine, from asking to having the batch.
        splits: that the dispatcher hands out for a batch; 0 where it hands out none.
        split_s: processor time of the dispatcher for one split.
        wire_bytes: of a batch on the network, with what frames and headers add.
    """

    step_s: FloatArray
    step_cpu_s: FloatArray
    making_s: Mapping[float, FloatArray]
    worker_cpu_s: FloatArray
    sending_s: FloatArray
    client_cpu_s: FloatArray
    request_s: FloatArray
    splits: float
    split_s: FloatArray
    wire_bytes: FloatArray


@dataclass(frozen=True)
class Layout:
    """Machines of a training: replicas that take batches, workers that make them, and the network between them.

    ``accelerator`` is how many times as fast the step is, ``gbit_s`` the speed of each machine's network, and
    ``latency_s`` its round trip beyond that within a machine.
    """

    workers: int = 1
    cores: float = 1.0
    replicas: int = 1
    client_cores: float = math.inf
    gbit_s: float = math.inf
    latency_s: float = 0.0
    accelerator: float = 1.0


@dataclass(frozen=True)
class Found:
    """Throughput of a layout, and what limits it.

    Attributes:
        rate_per_s: batches of all replicas a second.
        utilization: share of the time in which the replicas' steps run; 1 for a bare dataset that has no step.
        enough: workers from which on more of them give no more than 5 % (not rounded).
        limited_by: what sets the pace, by the first draw.
        ceiling_by: what would set it with any number of workers.
    """

    rate_per_s: FloatArray
    utilization: FloatArray
    enough: FloatArray
    limited_by: str
    ceiling_by: str


def found(needs: Needs, layout: Layout) -> Found:
    """Throughput of a layout by the needs of a batch."""
    moved_s = needs.wire_bytes * _BITS / layout.gbit_s
    halted_s = needs.sending_s * (1 / min(layout.cores, 1.0) - 1)
    busy_s = needs.worker_cpu_s / layout.cores
    request_s = _halted(needs.request_s + layout.latency_s + moved_s, halted_s, layout.replicas * busy_s)
    far = layout.latency_s + moved_s[0] > needs.request_s[0] + halted_s[0]
    worker = {
        WORKERS: busy_s,
        PIPELINE: needs.making_s[layout.cores],
        NETWORK if far else REQUESTS: np.maximum(request_s / layout.replicas, moved_s),
        DISPATCHER: needs.splits * (needs.split_s + layout.latency_s),
    }
    step_s = needs.step_s / layout.accelerator
    shared = {
        STEP: step_s / layout.replicas,
        CLIENT: (needs.client_cpu_s + needs.step_cpu_s) / layout.client_cores / layout.replicas,
        NETWORK: moved_s / layout.replicas,
        DISPATCHER: needs.splits * needs.split_s,
    }
    own_s, ceiling_s = (np.maximum.reduce(np.broadcast_arrays(*one.values())) for one in (worker, shared))
    ceiling_by = _largest(shared)
    own_by = _largest(worker)
    period_s = np.maximum(own_s / layout.workers, ceiling_s)
    return Found(
        rate_per_s=1 / period_s,
        utilization=np.where(step_s > 0, step_s / layout.replicas / period_s, 1.0),
        enough=KNEE * own_s / np.maximum(ceiling_s, 1e-12),
        limited_by=own_by if own_s[0] / layout.workers > ceiling_s[0] * (1 + _TIE) else ceiling_by,
        ceiling_by=ceiling_by,
    )


def _halted(alone_s: FloatArray, longer_s: FloatArray, busy_s: FloatArray) -> FloatArray:
    """Time of a request that is longer by ``longer_s`` where the quota is used up, and else by a share of that.

    The share is that of the time which the quota is used for: the solution of ``t = alone_s + longer_s * busy_s / t``.
    One below ``busy_s`` has no meaning: then it is the quota that limits.
    """
    return (alone_s + np.sqrt(alone_s**2 + 4 * longer_s * busy_s)) / 2


def _largest(times_s: Mapping[str, FloatArray]) -> str:
    return max(times_s, key=lambda name: float(np.atleast_1d(times_s[name])[0]))
