"""From rates by round to ratios beside their goals, and from batches as written to how far they are from the truth."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from manifest import Manifest, element

from xttsbench.analysis.evidence import LEAST_SCALE, interval

TOLERANCE = 1e-4  # between log-mels that two programs computed from the same sound

Rates = Mapping[str, Sequence[float]]
"""Samples per second of each contestant, one for each round, in the order of the rounds."""


def ratio(rates: Rates, over: str, under: str) -> dict[str, float]:
    """Return the ratio of two contestants' rates, with the paired interval over rounds where there are two or more."""
    logs = np.log(np.asarray(rates[over]) / np.asarray(rates[under]))
    if len(logs) < 2:
        return {"estimate": round(float(np.exp(logs[0])), 3)}
    found = interval(logs, LEAST_SCALE)
    return {name: round(getattr(found, name), 3) for name in ("estimate", "low", "high")}


def best(rates: Rates, names: Sequence[str]) -> str:
    """Return the name with the highest median."""
    return max(names, key=lambda name: statistics.median(rates[name]))


def judged(value: Mapping[str, float] | None, goal: float, *, reason: str = "") -> dict[str, Any]:
    """Return a value beside its goal; ``met`` is ``None``, with the reason, where there is no value."""
    if value is None:
        return {"goal": goal, "value": None, "met": None, "reason": reason}
    # The interval's lower end tells whether another run would meet it too.
    return {"goal": goal, "value": value, "met": value["estimate"] >= goal, "surely": value.get("low", 0.0) >= goal}


def difference(manifest: Manifest, directory: Path, *, tolerance: float) -> float:
    """Return the largest difference between a contestant's batches and the truth.

    Args:
        manifest: what was to be read.
        directory: one ``.npz`` file for each batch, as :mod:`contest` writes them.
        tolerance: of the mels; all else has to be the same.

    Raises:
        ValueError: a batch is missing, or differs; the message says which, and where.
    """
    largest = 0.0
    for batch in range(len(manifest)):
        truth = element(manifest, batch, lambda clip: np.load(manifest.files[clip], allow_pickle=False))
        with np.load(directory / f"{batch}.npz", allow_pickle=False) as found:
            if set(found.files) != set(truth):
                raise ValueError(f"batch {batch} has {sorted(found.files)}, expected {sorted(truth)}")
            for name, expected in truth.items():
                array = found[name]
                if array.shape != expected.shape or array.dtype != expected.dtype:
                    raise ValueError(
                        f"batch {batch}: {name} is {array.dtype} {array.shape}, "
                        f"expected {expected.dtype} {expected.shape}"
                    )
                apart = float(np.max(np.abs(array - expected), initial=0.0))
                if not apart <= (tolerance if array.dtype == np.float32 else 0):
                    raise ValueError(f"batch {batch}: {name} is {apart:g} away from the truth")
                largest = max(largest, apart)
    return largest
