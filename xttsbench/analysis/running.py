"""A run of any length in memory of a fixed size: sums of its stretches, a histogram of its steps, its stalls by cause.

Steps come in as they end, a batch of them at a time, each once. Nothing here grows with their number: stretches are
merged in pairs where there are too many, causes of stalls are counted, and quantiles are read from a histogram whose
classes are 1 % wide.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.steps import Steps, in_seconds
from xttsbench.analysis.variation import trend
from xttsbench.records.rows import COLUMNS, WORDS, Ring
from xttsbench.records.watch import Drift, Memory, StallCause, Stalls, Stretch

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MOST_STRETCHES: Final = 128
_CLASS: Final = 0.01
_FASTEST_S: Final = 1e-6
_CLASSES: Final = 2400  # Of the histogram: from a microsecond to seven hours
_QUANTILES: Final[Mapping[str, float]] = {"p05": 0.05, "median": 0.5, "p95": 0.95, "p99": 0.99}
_FACTOR: Final = 1.5
_SIGMAS: Final = 5.0  # Of a stall, see `xttsbench.analysis.variation.stragglers`
_FEW: Final = 20
_CAUSES: Final = 48  # Causes that are counted apart; what comes later is counted together
_OTHERS: Final = "other causes"
UNSEEN: Final = "nothing that was seen"
_HELD: Final = 64  # Step numbers of a cause that are kept, to see whether they are regular
_SEEN: Final = 3
_REGULAR: Final = 0.8
_HANDOFF_S: Final = 2.5e-4
_SUMS: Final = ("wall_s", "wait_s", "step_s", "emulated_s", "outside_s", "cpu_s", "gc_s", "sync_s")
_COUNTS: Final = ("traces", "xla_compiles")


def rows_since(ring: Ring, since: int) -> tuple[Steps, int]:
    """The rows of a segment after the first ``since``, and how many of them are not there any more.

    The steps are in seconds, ``start_s`` on the clock of the rows.
    """
    first = max(since, ring.count - ring.rows + 1, 0)
    numbers = np.arange(first, ring.count)
    table = np.frombuffer(ring.words, dtype=np.int64).reshape(-1, WORDS)[numbers % ring.rows]
    table = table[table[:, -1] == numbers + 1]
    columns = dict(zip(COLUMNS, table.T, strict=False))
    return Steps(in_seconds(columns)), ring.count - since - len(table)


class Histogram:
    """Step times by classes of equal width in the logarithm."""

    def __init__(self) -> None:
        self.counts = np.zeros(_CLASSES, dtype=np.int64)

    def add(self, seconds: FloatArray) -> None:
        """Count them."""
        classes = (np.log(np.maximum(seconds, _FASTEST_S) / _FASTEST_S) / _CLASS).astype(np.int64)
        np.add.at(self.counts, np.minimum(classes, _CLASSES - 1), 1)

    def quantile(self, share: float) -> float | None:
        """The time that this share of the steps stays below, to half a class; ``None`` without steps."""
        total = int(self.counts.sum())
        if not total:
            return None
        at = int(np.searchsorted(np.cumsum(self.counts), share * total, side="left"))
        return float(_FASTEST_S * np.exp((min(at, _CLASSES - 1) + 0.5) * _CLASS))

    @property
    def stall_threshold_s(self) -> float | None:
        """From where on a step has stalled; ``None`` where there are too few steps to say."""
        if self.counts.sum() < _FEW:
            return None
        low, median, high = (self.quantile(share) or 0.0 for share in (0.25, 0.5, 0.75))
        return max(_FACTOR * median, median + _SIGMAS * (high - low) / 1.349)


@dataclass
class _Cause:
    count: int = 0
    lost_s: float = 0.0
    first: int = 0
    slowest_s: float = 0.0
    numbers: deque[int] = field(default_factory=lambda: deque(maxlen=_HELD))

    def record(self, what: str) -> StallCause:
        return StallCause(
            what=what,
            count=self.count,
            lost_s=self.lost_s,
            every_steps=_regular(list(self.numbers)),
            first_step=self.first,
            last_step=self.numbers[-1],
            slowest_s=self.slowest_s,
        )


def _regular(numbers: Sequence[int]) -> float | None:
    """The distance of numbers that come regularly, a miss or two aside; ``None`` where they do not."""
    gaps = np.diff(numbers)
    if len(gaps) < 3:
        return None
    usual = float(np.median(gaps))
    whole = np.maximum(np.rint(gaps / usual), 1.0)
    near = np.abs(gaps - whole * usual) <= np.maximum(0.05 * usual, 1.0)
    return usual if usual >= 2 and near.mean() >= _REGULAR else None


def _explained(causes: Mapping[str, _Cause]) -> dict[str, _Cause]:
    """The causes with the steps of which nothing was seen added to the one whose rhythm they complete.

    Samples are rare: of checkpoints that take some milliseconds they see every second or third.
    """
    unseen = causes.get(UNSEEN)
    if unseen is None:
        return dict(causes)
    for what, cause in sorted(causes.items(), key=lambda one: -one[1].count):
        both = sorted({*cause.numbers, *unseen.numbers})
        if cause is not unseen and len(cause.numbers) >= _SEEN and _regular(both):
            together = _Cause(
                cause.count + unseen.count,
                cause.lost_s + unseen.lost_s,
                min(cause.first, unseen.first),
                max(cause.slowest_s, unseen.slowest_s),
                deque(both, maxlen=2 * _HELD),
            )
            return {name: one for name, one in causes.items() if one is not unseen} | {what: together}
    return dict(causes)


class Running:
    """Statistics of a run so far.

    Attributes:
        steps: that were added.
        lost: steps that could not be read any more.
    """

    def __init__(self) -> None:
        self.steps = self.lost = self.epochs = 0
        self.histogram = Histogram()
        self._waits = Histogram()
        self._stretches: list[Stretch] = []
        self._open: list[Stretch] = []
        self._pieces = 1
        self._first_s: float | None = None
        self._epoch: int | None = None
        self._causes: dict[str, _Cause] = {}
        self._stalled = 0
        self._lost_s = self._wall_s = 0.0

    def add(self, steps: Steps, why: Callable[[float, float], str | None], rss_bytes: int | None = None) -> None:
        """Add steps that have ended, in order, ``start_s`` on the clock of the rows.

        ``why`` names the user's line that was seen between two times of that clock, for steps that stalled;
        ``rss_bytes`` is the resident memory by now.
        """
        if not len(steps):
            return
        self.histogram.add(steps.wall_s)
        self._waits.add(steps.wait_s)
        median_s = self.histogram.quantile(0.5) or 0.0
        self._charge(steps, median_s)
        self._add_stretch(steps, rss_bytes)
        self._add_stalls(steps, median_s, why)
        self.steps += len(steps)
        self.epochs = int(steps.epoch[-1]) + 1
        self._epoch = int(steps.epoch[-1])

    def add_lost(self, count: int) -> None:
        """Steps that were overwritten before they were read: they are counted, and are in nothing else."""
        self.lost += count
        self.steps += count

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """The run in at most :data:`MOST_STRETCHES` parts of about equal duration."""
        return (*self._stretches, *([_merged(self._open)] if self._open else []))

    @property
    def quantiles_s(self) -> dict[str, float]:
        """Quantiles of the step time, in seconds; empty without steps."""
        found = {name: self.histogram.quantile(share) for name, share in _QUANTILES.items()}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def handoff_s(self) -> float:
        """The part of each wait that handing over a batch takes that is ready: what next to every step waits.

        It was not measured on batches that are known to be ready, so no more than :data:`_HANDOFF_S` is believed.
        """
        return min(self._waits.quantile(0.05) or 0.0, _HANDOFF_S)

    @property
    def stalls(self) -> Stalls:
        """The steps that stalled, by cause."""
        causes = [cause.record(what) for what, cause in _explained(self._causes).items()]
        return Stalls(
            count=self._stalled,
            lost_s=self._lost_s,
            share_of_time=self._lost_s / self._wall_s if self._wall_s else 0.0,
            threshold_s=self.histogram.stall_threshold_s,
            causes=tuple(sorted(causes, key=lambda cause: -cause.lost_s)),
        )

    def _charge(self, steps: Steps, median_s: float) -> None:
        """Say what of each step is compilation: a few steps at a time have no median of their own to compare with."""
        if not steps.compiling.any():
            steps.compile_s = np.zeros(len(steps))
        elif (~steps.compiling).sum() < _FEW:
            known = median_s if self.steps >= _FEW else np.inf
            excess = np.maximum(steps.step_s - known, steps.trace_s + steps.xla_s)
            steps.compile_s = np.clip(np.where(steps.compiling, excess, 0.0), 0.0, steps.step_s)

    def _add_stretch(self, steps: Steps, rss_bytes: int | None) -> None:
        if self._first_s is None:
            self._first_s = float(steps.start_s[0])
        start_s = float(steps.start_s[0]) - self._first_s
        sums = {name: float(getattr(steps, name).sum()) for name in _SUMS}
        made = Stretch(
            start_s=start_s,
            end_s=float(steps.start_s[-1] + steps.wall_s[-1]) - self._first_s,
            steps=len(steps),
            samples=int(steps.batch_size.sum()),
            compile_s=float(steps.compile_s.sum()),
            compiling_steps=int(steps.compiling.sum()),
            slowest_s=float(steps.wall_s.max()),
            rss_bytes=rss_bytes,
            **sums,
            **{name: int(getattr(steps, name).sum()) for name in _COUNTS},
        )
        self._wall_s += sums["wall_s"]
        self._open.append(made)
        if len(self._open) < self._pieces:
            return
        self._stretches.append(_merged(self._open))
        self._open.clear()
        if len(self._stretches) >= MOST_STRETCHES:
            pairs = zip(self._stretches[::2], self._stretches[1::2], strict=True)
            self._stretches = [_merged(pair) for pair in pairs]
            self._pieces *= 2

    def _add_stalls(self, steps: Steps, median_s: float, why: Callable[[float, float], str | None]) -> None:
        threshold_s = self.histogram.stall_threshold_s
        if threshold_s is None:
            return
        begins = np.diff(steps.epoch, prepend=steps.epoch[0] if self._epoch is None else self._epoch) > 0
        usual = float(np.median(steps.batch_elements))
        for at in np.flatnonzero(steps.wall_s > threshold_s):
            excess_s = float(steps.wall_s[at]) - median_s
            end_s = float(steps.start_s[at] - steps.pause_s[at] + steps.wall_s[at])
            what = _cause(steps, int(at), excess_s, begins=bool(begins[at]), usual=usual)
            if what is None:
                what = why(float(steps.start_s[at]), end_s) or UNSEEN
            key = what if what in self._causes or len(self._causes) < _CAUSES else _OTHERS
            cause = self._causes.setdefault(key, _Cause(first=self.steps + int(at)))
            cause.count += 1
            cause.lost_s += excess_s
            cause.slowest_s = max(cause.slowest_s, float(steps.wall_s[at]))
            cause.numbers.append(self.steps + int(at))
            self._stalled += 1
            self._lost_s += excess_s


def _cause(steps: Steps, at: int, excess_s: float, *, begins: bool, usual: float) -> str | None:
    """Cause of a step's stall from its own columns; ``None`` where they show none."""
    if steps.compiling[at]:
        return "tracing or compiling"
    if steps.gc_s[at] >= 0.3 * excess_s:
        return "Python's garbage collection"
    if steps.wait_s[at] >= 0.5 * excess_s:
        return "waiting for input at the begin of an epoch" if begins else "waiting for input"
    if usual > 0 and steps.batch_elements[at] >= _FACTOR * usual:
        return "larger batches"
    return None


def _merged(parts: Sequence[Stretch]) -> Stretch:
    if len(parts) == 1:
        return parts[0]
    added = ("steps", "samples", "compile_s", "compiling_steps", *_SUMS, *_COUNTS)
    return Stretch(
        start_s=parts[0].start_s,
        end_s=parts[-1].end_s,
        slowest_s=max(part.slowest_s for part in parts),
        rss_bytes=parts[-1].rss_bytes,
        **{name: sum(getattr(part, name) for part in parts) for name in added},
    )


_DRIFT: Final = 0.05
_DRIFT_LEVEL: Final = 0.01
_GROWN_BYTES: Final = 32 << 20
_GROWN_SHARE: Final = 0.02


def drift_of(stretches: Sequence[Stretch]) -> Drift | None:
    """Whether steps became slower or faster all along: 5 % at least, at p below 1 %; ``None`` where they did not."""
    parts = [part for part in stretches if part.steps]
    numbers = np.cumsum([part.steps for part in parts], dtype=np.float64)

    def mean(of: Callable[[Stretch], float]) -> FloatArray:
        return np.array([of(part) / part.steps for part in parts])

    own = mean(lambda part: part.wall_s - part.compile_s)
    found = trend(own, numbers) if parts else None
    median_s = float(np.median(own)) if parts else 0.0
    if found is None or median_s <= 0 or found.p_value >= _DRIFT_LEVEL:
        return None
    change = found.slope * float(numbers[-1] - numbers[0]) / median_s
    if abs(change) < _DRIFT:
        return None
    sides = {
        "input": mean(lambda part: part.wait_s),
        "host": mean(lambda part: part.outside_s),
        "step": mean(lambda part: part.step_s - part.compile_s - part.outside_s),
    }
    slopes = {name: one.slope * np.sign(found.slope) for name, own in sides.items() if (one := trend(own, numbers))}
    side: Any = max(slopes, key=lambda name: slopes[name])
    return Drift(change=change, p_value=found.p_value, side=side)


def memory_of(stretches: Sequence[Stretch]) -> Memory | None:
    """Resident memory at the begin and the end; a growth where it rises through the whole of the run's later half.

    ``None`` where it was not read. What fills up and then stays (buffers, a cache, an allocator's pools) is no growth.
    """
    read = [(part, part.rss_bytes) for part in stretches if part.rss_bytes is not None]
    if len(read) < 2:
        return None
    levels = np.array([rss for _, rss in read], dtype=np.float64)
    numbers = np.cumsum([part.steps for part, _ in read], dtype=np.float64)
    later = len(levels) // 2
    grown = float(levels[-1] - levels[later])
    found = trend(levels[later:], numbers[later:])
    grows = (
        found is not None
        and found.p_value < _DRIFT_LEVEL
        and found.tau >= 0.7
        and grown >= max(_GROWN_BYTES, _GROWN_SHARE * float(levels[-1]))
    )
    return Memory(
        first_bytes=int(levels[0]),
        last_bytes=int(levels[-1]),
        bytes_per_step=found.slope if found is not None and grows else None,
    )
