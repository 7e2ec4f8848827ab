"""Rows of a segment on their way to the parent: sent twice a second, or after each step where steps are slow."""

from __future__ import annotations

import time
from typing import Any, Final

import tensorflow as tf

from xttsbench.records.step_row import COLUMNS, StepRow
from xttsbench.worker.channel import Channel

_NAMES: Final = tuple(COLUMNS)
_FLUSH_NS: Final = 500_000_000
_SLOW_NS: Final = 10_000_000
"""Steps of this length are sent one by one: sending takes a tenth of a millisecond, and a kill then costs none."""
_HELD: Final = 256
"""Tensors of lengths that are held at most: they may be parts of larger ones, which they keep alive."""


class Recorder:
    """Collects the rows of one segment; what was sent survives whatever happens to this process.

    The lengths of a batch may still be under way on a device when its step ends. So the tensor is kept as it is, and
    fetched when the rows are sent, which is in no step's time.
    """

    def __init__(self, channel: Channel, segment: str) -> None:
        self.rows = 0
        self._channel = channel
        self._segment = segment
        self._pending: list[tuple[StepRow, Any]] = []
        self._flushed_ns = time.perf_counter_ns()

    def add(self, row: StepRow, lengths: Any = None) -> None:
        """Keep one row.

        Args:
            row: all of it but ``valid_frames``.
            lengths: true lengths of the clips, shape [batch], whose sum is ``valid_frames``; ``None`` gives 0.
        """
        self._pending.append((row, lengths))
        self.rows += 1

    def due(self, now_ns: int, step_ns: int) -> bool:
        """Whether it is time to send, at the end of a step of that length."""
        if step_ns > _SLOW_NS or now_ns - self._flushed_ns > _FLUSH_NS:
            return True
        return len(self._pending) >= _HELD and self._pending[-1][1] is not None

    def flush(self) -> None:
        """Send what is pending."""
        if self._pending:
            rows = [row._replace(valid_frames=_sum(lengths)) for row, lengths in self._pending]
            columns = dict(zip(_NAMES, zip(*rows, strict=True), strict=True))
            self._channel.send({"rows": self._segment, "columns": columns})
            self._pending.clear()
        self._flushed_ns = time.perf_counter_ns()

    def warmup(self, steps: int) -> None:
        """Mark the first rows as the segment's own warm-up."""
        self._channel.send({"warmup": steps, "segment": self._segment})


def _sum(lengths: Any) -> int:
    """The sum of a tensor of lengths; 0 where there is none, or where its device failed: the row must not be lost."""
    if lengths is None:
        return 0
    try:
        return int(lengths.numpy().sum())
    except tf.errors.OpError:
        return 0
