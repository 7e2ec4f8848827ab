"""Readings as they come, hour after hour: the newest of each column, a window of it, what happened, and the sums.

Nothing here grows with time. A column is in a window as long as the others: where it was not read, its last value
stands, since most columns that are read more rarely change slowly.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.rhythm import MIN_STEPS, find_period
from xttsbench.records.machine import ColumnOscillation, Event, Reading, Signal, Value, is_number

_EVENTS: Final = 100
WINDOW: Final = 512
"""Readings in which an oscillation is looked for: its period may be a quarter of them."""
_LEAST_SWING: Final = {"share": 0.03, "utilization": 0.03, "cpus": 0.05, "s": 1e6}
"""Ending of a column's name -> root mean square of the part that repeats, in the column's unit, from which it matters.

Below it are the kernel's ticks, and whatever wakes up once a second, these readings included."""
_LEAST_OF_MEAN: Final = 0.10
_SAME: Final = 0.9  # Periods that differ by less are one


class Stream:
    """Statistics of readings as they arrive.

    Attributes:
        columns: all there are, in order.
        latest: the newest value of each that was read.
        events: what happened, the last hundred.
        oscillations: what oscillates now, by column.
        readings: how many there were.
        t_s: seconds from the first to the newest.
        interval_s: from one to the next, asked for.
    """

    def __init__(self, columns: Sequence[str], windows: Sequence[str], interval_s: float) -> None:
        """``windows``: those of which the newest :data:`WINDOW` values are kept."""
        self.columns, self.interval_s = tuple(columns), interval_s
        self.latest: dict[str, Value] = {}
        self.events = deque[Event](maxlen=_EVENTS)
        self.oscillations: dict[str, ColumnOscillation] = {}
        self.readings = 0
        self.t_s = 0.0
        self._windows = {name: deque[float](maxlen=WINDOW) for name in windows}
        self._slots: dict[str, tuple[int, float, int]] = {}
        self._sums: dict[str, tuple[int, float, float, float]] = {}

    def take(self, reading: Reading) -> None:
        """Add a reading, which has the time ``t_s``."""
        for name, value in reading.items():
            if is_number(value):
                count, total, low, high = self._sums.get(name, (0, 0.0, value, value))
                self._sums[name] = count + 1, total + value, min(low, value), max(high, value)
        self.latest.update(reading)
        self.readings += 1
        for name, window in self._windows.items():
            if name not in self._slots and is_number(value := self.latest.get(name)):
                window.append(value)
        self.t_s = self.number("t_s") or 0.0

    def take_samples(self, column: str, samples: Iterable[tuple[float, float]]) -> None:
        """Fill a column's window from samples, which may be finer than the readings, or come late.

        The window has their mean over each interval then, in place of the column's readings. A sample is seconds since
        the first reading, ascending, and a value.
        """
        window = self._windows[column]
        for t_s, value in samples:
            slot = math.floor(t_s / self.interval_s)
            known, total, count = self._slots.get(column, (slot, 0.0, 0))
            if slot > known:
                window.extend([total / count] * min(slot - known, WINDOW))
                known, total, count = slot, 0.0, 0
            self._slots[column] = known, total + value, count + 1

    def window(self, column: str, newest: int = WINDOW) -> list[float]:
        """The newest values of a column that has a window, oldest first."""
        found = self._windows.get(column, ())
        return list(islice(found, max(len(found) - newest, 0), None))

    def number(self, column: str) -> float | None:
        """The newest value of a column of numbers; ``None`` where it was not read."""
        value = self.latest.get(column)
        return value if is_number(value) else None

    def text(self, column: str) -> str:
        """The newest value of a column of words."""
        return str(self.latest.get(column) or "")

    def signals(self) -> dict[str, Signal]:
        """Summary of each numeric column, from the first reading on."""
        return {
            name: Signal(readings=count, mean=total / count, lowest=low, highest=high)
            for name, (count, total, low, high) in sorted(self._sums.items())
            if not name.endswith("_pid") and name != "t_s"
        }

    def swings(self, column: str) -> bool:
        """Whether a column varies enough for an oscillation that matters, or had one, so that it is worth a search."""
        series = np.array(self.window(column))
        return column in self.oscillations or float(series.std() if series.size else 0) >= _least_swing(column, series)

    def search(self, column: str) -> bool:
        """Look for an oscillation of a column in its window; True where it has begun, ended, or has another period."""
        before = self.oscillations.pop(column, None)
        found = oscillation(column, self.window(column), self.interval_s, self.t_s)
        if found is not None:
            self.oscillations[column] = found
        if found is None or before is None:
            return found is not before
        return not _SAME < found.period_s / before.period_s < 1 / _SAME


def oscillation(column: str, values: npt.ArrayLike, interval_s: float, t_s: float) -> ColumnOscillation | None:
    """Whether evenly spaced values of a column, shape ``(n,)``, repeat by as much as matters.

    They are ``interval_s`` apart and end ``t_s`` after the first reading of the run; the column's name ends in its
    unit.
    """
    series = np.asarray(values, dtype=np.float64)
    least = _least_swing(column, series)
    if interval_s <= 0 or float(series.std()) < least or (found := find_period(series)) is None:
        return None
    if float(series.std()) * found.variance_share**0.5 < least:
        return None
    return ColumnOscillation(
        column=column,
        t_s=round(t_s, 3),
        period_s=found.period_steps * interval_s,
        variance_share=found.variance_share,
        p_value=found.p_value,
    )


def _least_swing(column: str, series: npt.NDArray[np.float64]) -> float:
    """Root mean square from which what repeats matters; none is enough where the series is short."""
    if series.size < MIN_STEPS:
        return math.inf
    return max(_LEAST_SWING.get(column.rpartition("_")[2], 0.0), _LEAST_OF_MEAN * abs(float(series.mean())))
