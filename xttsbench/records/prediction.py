"""What a model of the pipeline says it would give: as it is, with each candidate fix, and if the input cost nothing."""

from __future__ import annotations

from xttsbench.records.base import Estimate, Record


class Prediction(Record):
    """The throughput that the model predicts under one condition, beside what was measured where it was.

    ``name`` is ``as it is``, ``input costs nothing``, or the fixes joined by `` + ``. A fix is ``parallel-map``,
    ``parallel-interleave``, ``prefetch``, ``thread-pool:<n>``, ``cache@<op>``, ``drop-prefetch``, ``filter-first``,
    ``batch-first``, ``processes:<n>`` (a Python function in a pool of processes) or ``any-order``.
    """

    name: str
    fixes: tuple[str, ...] = ()
    batches_per_s: float | None
    """Batches (steps, where there is a step) a second; ``None`` where costs are missing."""
    speedup: float | None = None
    """Against the prediction for the target as it is."""
    limited_by: str = ""
    """What sets the pace: an op's name, ``step``, ``processors``, ``interpreter lock`` or ``thread pool``."""
    measured_per_s: Estimate | None = None
    why_not: str | None = None
    """Why nothing is predicted, or why the fix would change the data."""
