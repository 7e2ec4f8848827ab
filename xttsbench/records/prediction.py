"""What a model of the pipeline says it would give: as it is, with each candidate fix, and if the input cost nothing."""

from __future__ import annotations

from xttsbench.records.base import Estimate, Record


class Prediction(Record):
    """The throughput that the model predicts under one condition, beside what was measured where it was.

    ``name`` is ``as it is``, ``input costs nothing``, or the fixes joined by `` + ``. A fix is ``parallel-map``,
    ``parallel-interleave``, ``parallel-batch`` or ``prefetch``, each with its number (``parallel-map:16``) or without
    (AUTOTUNE); ``calls:<n>`` (of maps that are parallel already), ``buffer:<n>`` (of the last prefetch),
    ``thread-pool:<n>``, ``processes:<n>`` (Python functions in a pool of processes); ``cache@<op>`` in memory or
    ``cache-file@<op>`` on disk; ``drop-prefetch``, ``filter-first``, ``batch-first`` or ``any-order``. Those of the
    step are ``step:graph``, ``step:xla`` and ``step:buckets``.
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
