"""Orders of the arms within blocks, and from their rates to ratios beside goals. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xttsbench.analysis.evidence import LEAST_SCALE, interval

Rates = Mapping[int, float]  # samples per second of an arm by the number of the block


@dataclass(frozen=True)
class Timed:
    """The timed intervals of one process, in their order."""

    samples: tuple[int, ...]
    seconds: tuple[float, ...]
    shares: Mapping[str, float] | None = None  # of the time, by what the trainer's loop did in it

    def rate(self, intervals: int | None = None) -> float:
        """Return samples per second of all intervals, or of so many of the first ones."""
        return sum(self.samples[:intervals]) / sum(self.seconds[:intervals])


def orders(arms: Sequence[str], first_only: Mapping[str, int], blocks: int, seed: int) -> list[list[str]]:
    """Return the arms of each block: a random order, and in the next block its reverse, so that a drift cancels.

    Args:
        arms: all of them.
        first_only: arm -> how many of the first blocks it takes part in; the others are in all.
        blocks: how many.
        seed: of the orders.
    """
    rng, order, found = random.Random(seed), list(arms), []
    for number in range(blocks):
        order = order[::-1] if number % 2 else rng.sample(arms, len(arms))
        found.append([arm for arm in order if number < first_only.get(arm, blocks)])
    return found


def ratio(over: Rates, under: Rates) -> dict[str, float] | None:
    """Return the geometric mean of the rates' ratios over the blocks that both are in, and its 95 % interval.

    The interval is Student's, on the log ratios, with 3 % of noise known beforehand; one block has none, and none has
    no value.
    """
    shared = sorted(over.keys() & under.keys())
    logs = [float(np.log(over[block] / under[block])) for block in shared]
    if len(logs) < 2:
        return {"estimate": round(float(np.exp(logs[0])), 4)} if logs else None
    found = interval(logs, LEAST_SCALE)
    return {name: round(getattr(found, name), 4) for name in ("estimate", "low", "high")}


def figure(
    value: Mapping[str, float] | None, goal: float | None, *, low: float | None = None, at_most: bool = False
) -> dict[str, Any]:
    """Return a value beside its goal; ``met`` is ``None`` where there is no goal, or no value or interval to judge by.

    Args:
        value: ``estimate``, and ``low`` and ``high`` where there is an interval.
        goal: what the estimate has to reach.
        low: what the lower end of the interval has to reach as well.
        at_most: the estimate has to be the goal at most.
    """
    met = None
    if value is not None and goal is not None:
        met = value["estimate"] <= goal if at_most else value["estimate"] >= goal
        if low is not None:
            met = met and value["low"] >= low if "low" in value else None
    found: dict[str, Any] = {"value": value, "goal": goal, "met": met}
    if low is not None:
        found["goal_low"] = low
    return found | ({"at_most": True} if at_most else {})
