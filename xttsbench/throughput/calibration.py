"""From measured costs of the tf.data service to what a batch of a given size needs, with its uncertainty: pure.

A cost is a + b * bytes: something for each batch, and something for each byte. Processor time is more where a process
slept before the batch, since it wakes to cold caches. The fit is of relative errors (weighted least squares), and its
draws are those of the coefficients: Student's t with as many degrees of freedom as stretches are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from xttsbench.records.scale import ServiceCost
from xttsbench.throughput.pace import FloatArray

_PAYLOAD: Final = 1448 / 1538
"""Share of what an Ethernet sends that is payload: frames of 1,500 bytes with headers, preamble and gap."""
_PAYLOAD_SPREAD: Final = 0.02  # larger frames, options of TCP, lost packets
_LEAST: Final = 1e-7  # seconds of the cheapest cost


@dataclass(frozen=True)
class Calibrated:
    """Costs of a batch of one size on its way through the service, draws of shape ``(n,)``; see :class:`Needs`."""

    request_s: FloatArray
    worker_cpu_s: FloatArray
    client_cpu_s: FloatArray
    split_dispatcher_s: FloatArray
    """Processor time of the dispatcher for one split."""
    split_worker_s: FloatArray
    """Processor time of a worker for asking for one split."""
    wire_bytes: FloatArray


def calibrated(costs: Sequence[ServiceCost], size_bytes: float, draws: int, rng: np.random.Generator) -> Calibrated:
    """Needs of a batch of that size, from stretches that were all compressed, or all not, and those with splits."""
    whole = [one for one in costs if not one.splits]
    full = [one for one in whole if not one.paced]
    splits = [one for one in costs if one.splits]
    at = np.array([1.0, size_bytes, 1.0])  # of who waits before each batch, as where the other side is the slower one

    def fitted(name: str, rows: Sequence[ServiceCost], terms: int = 3) -> FloatArray:
        values = np.array([getattr(one, name) for one in rows])
        return _draws(values, np.array([[1.0, one.bytes, one.paced] for one in rows])[:, :terms], draws, rng)

    def of_split(name: str) -> FloatArray:
        values = np.array([getattr(one, name) for one in splits])
        if not len(values):
            return np.zeros(draws)
        spread = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
        return np.asarray(values.mean() + spread * np.append(0.0, rng.standard_normal(draws - 1)))

    worker, client = fitted("worker_cpu_s", whole), fitted("client_cpu_s", whole)
    frames = np.append(1.0, np.exp(_PAYLOAD_SPREAD * rng.standard_normal(draws - 1)))
    ratios = [one.wire_bytes / one.bytes for one in full if one.bytes]
    return Calibrated(
        request_s=np.maximum(fitted("wall_s", full, 2) @ at[:2], _LEAST),
        worker_cpu_s=np.maximum(worker @ at, _LEAST),
        client_cpu_s=np.maximum(client @ at, _LEAST),
        split_dispatcher_s=np.maximum(of_split("dispatcher_cpu_s"), 0.0),
        split_worker_s=np.maximum(of_split("worker_cpu_s") - worker[:, 0], 0.0),
        wire_bytes=size_bytes * (float(np.mean(ratios)) if ratios else 1.0) / _PAYLOAD * frames,
    )


def _draws(values: FloatArray, terms: FloatArray, draws: int, rng: np.random.Generator) -> FloatArray:
    """Coefficients of the fit of relative errors, shape ``(draws, terms)``: the estimate first, then its draws."""
    scaled = terms / values[:, np.newaxis]
    unit = np.maximum(np.linalg.norm(scaled, axis=0), 1e-300)  # else a cost by the byte vanishes in rounding
    scaled /= unit
    found = np.linalg.lstsq(scaled, np.ones(len(values)), rcond=None)[0]
    free = max(len(values) - len(found), 1)
    residual = float(np.sum((scaled @ found - 1) ** 2)) / free
    covariance = residual * np.linalg.pinv(scaled.T @ scaled)
    noise = rng.multivariate_normal(np.zeros(len(found)), covariance, draws, method="svd")
    noise *= np.sqrt(free / rng.chisquare(free, draws))[:, np.newaxis]
    noise[0] = 0.0
    return np.asarray((found + noise) / unit)
