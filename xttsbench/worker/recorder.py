"""Rows of a segment on their way to the parent: sent twice a second, or after each step where steps are slow."""

from __future__ import annotations

import time
from typing import Final

from xttsbench.records.trial import COLUMNS
from xttsbench.worker.channel import Channel

_NAMES: Final = tuple(COLUMNS)
_FLUSH_NS: Final = 500_000_000
_SLOW_NS: Final = 10_000_000
"""Steps of this length are sent one by one: sending takes a tenth of a millisecond, and a kill then costs none."""


class Recorder:
    """Collects the rows of one segment; what was sent survives whatever happens to this process."""

    def __init__(self, channel: Channel, segment: str) -> None:
        self.rows = 0
        self._channel = channel
        self._segment = segment
        self._pending: list[tuple[int, ...]] = []
        self._flushed_ns = time.perf_counter_ns()

    def add(self, row: tuple[int, ...]) -> None:
        """Keep one row, in the order of :data:`xttsbench.records.trial.COLUMNS`."""
        self._pending.append(row)
        self.rows += 1

    def due(self, now_ns: int, step_ns: int) -> bool:
        """Whether it is time to send, at the end of a step of that length."""
        return step_ns > _SLOW_NS or now_ns - self._flushed_ns > _FLUSH_NS

    def flush(self) -> None:
        """Send what is pending."""
        if self._pending:
            columns = dict(zip(_NAMES, zip(*self._pending, strict=True), strict=True))
            self._channel.send({"rows": self._segment, "columns": columns})
            self._pending.clear()
        self._flushed_ns = time.perf_counter_ns()

    def warmup(self, steps: int) -> None:
        """Mark the first rows as the segment's own warm-up."""
        self._channel.send({"warmup": steps, "segment": self._segment})
