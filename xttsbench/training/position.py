"""Where a run is: everything that its input has for a state, since the batches are a function of seed and epoch."""

from __future__ import annotations

from xttsbench.records.base import Record


class Position(Record):
    """The next step, and the batch that it takes."""

    step: int = 0
    """Steps that ended, those left out included."""
    epoch: int = 0
    batch: int = 0
    """Number of the next batch in the plan of the epoch."""
