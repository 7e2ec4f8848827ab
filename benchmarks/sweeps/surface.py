"""True rates over a grid of 200 configurations, made up like a loader's: plateaus, slopes and an interaction."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

GRID = {"prefetch": (0, 1, 2, 4, 8), "workers": (1, 2, 3, 4, 6, 8, 12, 16), "threads": (1, 2, 4, 8, 16)}
COST = ("prefetch", "workers", "threads")


def configs() -> list[dict[str, Any]]:
    """The grid's product; the first is the slowest everywhere, and serves as the baseline."""
    return [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]


def rates(rng: np.random.Generator, span: float | None = None) -> list[float]:
    """Samples per second of each configuration on one surface drawn at random.

    Loading takes a few steps' time on one worker and shares it among workers and threads as Amdahl's law has it, up to
    the machine's cores: more workers help only where there are threads for them (the interaction). Prefetching hides
    the shorter of loading and step behind the longer, the better the deeper it is. Each worker and thread beyond the
    cores costs a little, so that there is an optimum and not only a plateau.

    Args:
        rng: draws the surface.
        span: squeezes it, so that the best is that many times as fast as the baseline: the flatter, the harder.
    """
    cores, loading, serial = rng.choice([4, 8, 16]), rng.uniform(1.5, 8.0), rng.uniform(0.02, 0.15)
    depth, crowding, idle = rng.uniform(0.5, 2.0), rng.uniform(0.002, 0.01), rng.uniform(0.0, 0.003)
    found = []
    for config in configs():
        hands = min(config["workers"], config["threads"] * 1.5, cores)
        load = loading * (serial + (1 - serial) / hands)
        hidden = min(load, 1.0) * (1 - np.exp(-config["prefetch"] / depth))
        extra = max(config["workers"] - cores, 0) + max(config["threads"] - cores, 0)
        waste = 1 + crowding * extra + idle * (config["workers"] + config["threads"])
        found.append(float(1000 / ((load + 1.0 - hidden) * waste)))
    if span is None:
        return found
    logs = np.log(np.asarray(found) / found[0])
    return [float(rate) for rate in found[0] * np.exp(logs / logs.max() * np.log(span))]
