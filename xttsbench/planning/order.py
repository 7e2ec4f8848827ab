"""The order of a block's trials: complete, random from the seed, the accelerators apart.

Drift of the machine (heat, neighbours, a filling page cache) is shared by the arms of a block that stand close
together, so the arms of one accelerator follow one another, in an order drawn anew for each block (randomised complete
blocks, Fisher 1935). With two arms the orders come in pairs, each the reverse of the other (ABBA), so that a drift
within the block is in both arms alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xttsbench.records.plan import Accelerator, Comparison, PlannedArm

_ABBA: int = 2
"""Arms, the baseline's second run not counted, up to which orders come in pairs."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One trial of a block: which arm on which accelerator."""

    arm: PlannedArm
    accelerator: Accelerator


def block_order(comparison: Comparison, block: int, seed: int) -> tuple[Slot, ...]:
    """Every arm on every accelerator once. A block's order depends on the seed and its number alone."""
    paired = sum(arm.role != "aa" for arm in comparison.arms) <= _ABBA
    rng = np.random.default_rng([seed, block // 2 if paired else block])
    groups = [
        [Slot(comparison.arms[arm], accelerator) for arm in rng.permutation(len(comparison.arms))]
        for accelerator in comparison.accelerators
    ]
    slots = [slot for group in rng.permutation(len(groups)) for slot in groups[group]]
    return tuple(reversed(slots) if paired and block % 2 else slots)
