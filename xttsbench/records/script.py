"""How a script that was run unchanged went: how it ended, and how it takes its steps."""

from __future__ import annotations

from typing import Literal

from xttsbench.records.base import Record

Ending = Literal["returned", "exited", "raised", "stopped", "killed"]


class ScriptRun(Record):
    """What was seen of a script besides its steps."""

    ended: Ending | None = None
    """``stopped``: by us, once enough steps were measured; ``exited``: by ``sys.exit``; ``None``: not yet."""
    exit_code: int | None = None
    """Its own; ``None`` where it was stopped or killed."""
    iterations: tuple[str, ...] = ()
    """How it takes batches: ``next()``, ``fit``, ``for in a tf.function``, ``next() in a tf.function``."""
    steps_per_call: int = 1
    """Steps in one call of the step function (``steps_per_execution``)."""
    step_function: str | None = None
    """``name (file:line)`` of the function that takes the batch, where one does."""
    datasets: int = 0
    """Datasets that it iterated."""
    steps_seen: int = 0
    unmeasured: dict[str, str] = {}
