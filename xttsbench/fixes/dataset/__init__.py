"""A dataset around the batches that a script makes itself in the thread that trains, so that they are made ahead."""

from __future__ import annotations

from typing import Final

from xttsbench.fixes.spec import Spec

AHEAD: Final = 2
"""Batches that are made ahead."""
HANDED_OVER_S: Final = 0.0007
"""Seconds that `from_generator` takes for a batch by itself, measured on two cores of a virtual machine with batches of
a few hundred numbers; making such a dataset takes some 0.2 s, and each start of it 0.05 s."""
WORTH_S: Final = 0.005  # A batch that takes less is made sooner than handed over, beside a step that needs the lock


def expected(wall_s: float, wait_s: float) -> float:
    """Speed-up of steps of ``wall_s`` that wait ``wait_s`` for their batch, where making one leaves the step alone."""
    return wall_s / max(wait_s + HANDED_OVER_S, wall_s - wait_s, 1e-9)


DATASET: Final = Spec(
    name="dataset",
    words="a dataset around the loop's batches",
    does="a `tf.data.Dataset` with a prefetch around the batches that a script's training loop makes itself, so that "
    "they are made while a step runs; not where what makes them depends on what the step or the loop does",
    mends=("no-dataset",),
    runs_ahead=True,
    keeps_conditions=True,
    patch="xttsbench.fixes.dataset.patch:around_loop",
)
