"""Which steps XLA compiled in, found with few looks at its counters: each takes milliseconds, and is paid by the loop.

A compilation makes a step slow, so steps that took longer than others with the same shape are remembered. The counters
are read when such a stretch is over, and before only as long as all looks within loops together stay a small share of
the time that went by. What they show is put down to the slowest of the steps since the look before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from xttsbench.records.row_memory import SegmentRows
from xttsbench.step.xla_metrics import XlaCounters, XlaMetrics

_SLOWER_NS: Final = 15_000_000
"""A step this much slower than the fastest with its shape may have compiled."""
_SHARE: Final = 0.0005
"""Of the time that went by, for looks within loops."""
_LOOKS: Final = 400
"""At most, since each leaves some memory behind."""
_SUSPECTS: Final = 64
_LEAST: Final = 0.3
"""Of the mean compilation, by which a step that compiled is slow."""


class Compilations:
    """Looks for them in the rows of any segment.

    Args:
        xla: whose counters are read.
        clock: nanoseconds.
    """

    def __init__(self, xla: XlaMetrics | None = None, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.xla = xla or XlaMetrics()
        self._clock = clock
        self._looks = 0
        self._known = XlaCounters()
        self._suspects: list[tuple[int, int, SegmentRows]] = []
        self._fastest_ns: dict[tuple[SegmentRows, int], int] = {}
        self._began_ns: int | None = None
        self._cost_ns = self._spent_ns = 0

    def begin(self) -> None:
        """A segment begins: what was compiled before is in none of its steps."""
        self._suspects.clear()
        self.look()

    def step_ended(self, rows: SegmentRows, index: int, step_ns: int, shape_id: int) -> None:
        """A step ended and its row was written; looks at the counters where it was slow and there is time for it."""
        fastest_ns = self._fastest_ns.get((rows, shape_id), 0)
        if not 0 < fastest_ns <= step_ns:
            self._fastest_ns[rows, shape_id] = step_ns
        excess_ns = step_ns - fastest_ns
        if excess_ns < _SLOWER_NS:
            return
        self._suspects.append((excess_ns, index, rows))
        if len(self._suspects) > _SUSPECTS:
            self._suspects.remove(min(self._suspects, key=lambda one: one[0]))
        now = self._clock()
        if self._began_ns is None:
            self._began_ns = now
        if self._spent_ns + self._cost_ns <= _SHARE * (now - self._began_ns):
            self.look()
            self._spent_ns += self._cost_ns

    def end(self) -> None:
        """A stretch of steps is over, and the clocks stand still."""
        if self._suspects:
            self.look()

    def look(self) -> None:
        """Read the counters, and put what was added down to the steps that it explains."""
        if not self.xla.available or self._looks >= _LOOKS:
            return
        began = self._clock()
        self._looks += 1
        found, before = self.xla.read(), self._known
        self._known, self._cost_ns = found, self._clock() - began
        compiles, compile_ns = found.compiles - before.compiles, found.compile_ns - before.compile_ns
        suspects = sorted(self._suspects, key=lambda one: one[0], reverse=True)[: max(compiles, 0)]
        self._suspects.clear()
        if not suspects:
            return
        mean_ns = compile_ns // compiles
        charged = [one for one in suspects if one[0] >= _LEAST * mean_ns] or suspects[:1]
        total_ns = max(sum(excess_ns for excess_ns, _, _ in charged), compile_ns, 1)
        for place, (excess_ns, index, rows) in enumerate(
            charged
        ):  # the slowest has those that have no step of their own
            rows.add_to(index, "xla_compiles", 1 if place else compiles - len(charged) + 1)
            rows.add_to(index, "xla_ns", compile_ns * excess_ns // total_ns)
