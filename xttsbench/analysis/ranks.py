"""Ranks that train together: who is late for their collectives, whose samples are whose, and who hangs.

In synchronous training every rank has the same step time, so it tells nobody apart. What does is when each rank comes
to a collective (its arrival), and what it did before. For the collective number ``k`` with arrivals ``a[k, r]`` and
ends ``e[k, r]`` of the ranks ``r``, on one clock::

    wait of rank r   = max(a[k]) - a[k, r]
    cost             = median over r of e[k, r], less max(a[k]), and 0 at least
    cost, none late  = the lower tenth of the costs over all k
    held up by r     = max(a[k]) less the median arrival of the others where r is last, else 0

Assumed: collectives with the same number on each rank are the same one (TensorFlow has them in one order), and
processes of one host share their monotonic clock. The clocks of hosts are set by the ends: the median over ``k`` of
``e[k, r] - e[k, 0]`` is taken for the difference, which is off by what a collective ends later on one host than on
another. A job's mean per step is that per collective times the collectives of a step; collectives of a step that
overlap are counted each, so the sum is too large for those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.records.ranks import RankEpoch, RankRun

FloatArray = npt.NDArray[np.float64]
_QUIET: Final = 0.1
_BLOCKS: Final = 10
_MOST: Final = 8  # Blocks in which a rank is later than the least late one
_WORTH: Final = 0.1  # Share of a step from which being late is worth a word
_CLEARLY: Final = 3.0  # A rank that holds the others up this many times as long as another one
_FEW: Final = 20


@dataclass(frozen=True)
class Collectives:
    """Collectives that all ranks kept: seconds on one clock, a row for each and a column for each rank."""

    arrivals: FloatArray
    ends: FloatArray

    def __len__(self) -> int:
        return len(self.arrivals)

    @property
    def cost_s(self) -> FloatArray:
        """Time of each from its last arrival to its end."""
        return np.asarray(np.maximum(np.median(self.ends, axis=1) - self.arrivals.max(axis=1), 0.0))

    @property
    def quiet_s(self) -> float:
        """Cost of one with nobody late."""
        return float(np.quantile(self.cost_s, _QUIET))

    @property
    def waits_s(self) -> FloatArray:
        """Time that each rank waits for the last one."""
        return np.asarray(self.arrivals.max(axis=1, keepdims=True) - self.arrivals)

    @property
    def held_up_s(self) -> FloatArray:
        """Time that the last rank holds up the others, in its column."""
        last = self.arrivals.argmax(axis=1)
        found = np.zeros_like(self.arrivals)
        for rank in range(self.arrivals.shape[1]):
            others = np.median(np.delete(self.arrivals, rank, axis=1), axis=1)
            found[:, rank] = np.where(last == rank, self.arrivals[:, rank] - others, 0.0)
        return found


def together(runs: Sequence[RankRun]) -> Collectives:
    """The collectives of the measured steps that every rank kept; of one rank alone none, as nothing is beside it."""
    kept = [{number: (begin, end) for number, begin, end in run.collectives} for run in runs]
    numbers = sorted(set.intersection(*map(set, kept))) if len(kept) > 1 else []
    table = np.array([[one[number] for one in kept] for number in numbers], dtype=np.float64).reshape(
        len(numbers), len(runs), 2
    )
    since = np.array([run.since_ns for run in runs], dtype=np.float64)
    if len(table) and len({run.clock for run in runs}) > 1:
        offsets = np.median(table[:, :, 1] - table[:, :1, 1], axis=0)
        same = np.array([run.clock == runs[0].clock for run in runs])
        offsets[same] = 0.0
        table, since = table - offsets[None, :, None], since - offsets
    measured = (table[:, :, 0] >= since.max(initial=0.0)).all(axis=1) if len(table) and since.all() else slice(0)
    table = (table - table.min(initial=0.0 if not len(table) else np.inf))[measured] / 1e9
    return Collectives(table[:, :, 0], table[:, :, 1])


def stragglers(found: Collectives, step_s: float, per_step: float) -> dict[int, float]:
    """Ranks that hold up the others -> seconds a step by which they do.

    The run is cut into ten blocks, and the median block counts, so that a stall of a neighbour's in one of them does
    not. A rank is named where that is a tenth of a step or more, three times that of the least late rank, and where it
    is later than that one in eight blocks.
    """
    if len(found) < _FEW or step_s <= 0:
        return {}
    held = found.held_up_s * per_step
    blocks = np.array([one.mean(axis=0) for one in np.array_split(held, _BLOCKS)])
    usual = np.median(blocks, axis=0)
    least = int(usual.argmin())
    later = (blocks > blocks[:, [least]]).sum(axis=0)
    named = (usual >= _WORTH * step_s) & (usual >= _CLEARLY * usual[least]) & (later >= _MOST)
    return {int(rank): float(usual[rank]) for rank in np.flatnonzero(named)}


def parts_of(run: RankRun) -> dict[str, float]:
    """Seconds of a mean step that a rank spends for itself: ``input``, ``compute``, ``host``."""
    steps = max(run.steps, 1)
    return {"input": run.parts.input / steps, "compute": run.parts.compute / steps, "host": run.parts.host / steps}


def cause_of(rank: int, runs: Sequence[RankRun]) -> tuple[str, float]:
    """The part of its step in which a rank exceeds the median of the others most, and by how many seconds."""
    own, others = parts_of(runs[rank]), [parts_of(run) for at, run in enumerate(runs) if at != rank]
    excess = {name: value - float(np.median([one[name] for one in others])) for name, value in own.items()}
    name = max(excess, key=lambda one: excess[one])
    return name, excess[name]


@dataclass(frozen=True)
class Shards:
    """Samples of the ranks in the pass over the data that most is known of.

    Attributes:
        samples: of each rank, in a pass that all of them are through, or are in.
        common: share of the samples of one rank that another one had as well, of the pair that shares most; where not
            all samples were looked at, an estimate. ``None`` where that cannot be told.
        pair: that pair.
        why: why that cannot be told, or tells little.
    """

    samples: tuple[int, ...]
    common: float | None
    pair: tuple[int, int] = (0, 1)
    why: str = ""


_LEAST: Final = 64  # Hashes of a rank from which on something is said
_SHARED: Final = 4  # Hashes in common from which on they are no accident, such as two samples of silence
_EXPECTED: Final = 80  # That two ranks with the same samples would share, from which on fewer than those say something
_ALIKE: Final = 0.1


def shards_of(runs: Sequence[RankRun]) -> Shards | None:
    """Overlap of the ranks' samples in their first pass; ``None`` where no samples were seen, or one rank is alone."""
    first = [run.epochs[0] for run in runs if run.epochs]
    if len(first) < max(len(runs), 2):
        return None
    samples = tuple(one.samples for one in first)
    below = min(one.below for one in first)
    sets = [{value for value in one.hashes if value < below} for one in first]
    if min(map(len, sets)) < _LEAST:
        return Shards(samples, None, why="too few samples were looked at")
    if max(map(_repeated, first)) > _ALIKE:
        return Shards(samples, None, why="samples of one rank look alike, or come again within one pass")
    seen = [one.looked / max(one.samples, 1) for one in first]
    # Of the samples of the rank with fewer hashes, the other one's are a part of the size that it looked at.
    pairs = [sorted(pair, key=lambda rank: len(sets[rank])) for pair in combinations(range(len(sets)), 2)]
    both = [len(sets[few] & sets[many]) for few, many in pairs]
    due = [len(sets[few]) * seen[many] for few, many in pairs]
    shares = [one / of if one >= _SHARED else 0.0 for one, of in zip(both, due, strict=True)]
    most = int(np.argmax(shares))
    if not shares[most] and min(due) < _EXPECTED:
        return Shards(samples, None, why="too few samples were looked at")
    return Shards(samples, min(shares[most], 1.0), (min(pairs[most]), max(pairs[most])), _changing(runs, shares[most]))


def _repeated(one: RankEpoch) -> float:
    return one.repeats / max(one.repeats + len(one.hashes), 1)


def _changing(runs: Sequence[RankRun], common: float) -> str:
    """Why samples that have nothing in common may still be the same: a rank has none of them again in its next pass."""
    for run in runs:
        if common == 0 and len(run.epochs) > 1 and len(run.epochs[1].hashes) >= _LEAST:
            before, after = (set(one.hashes) for one in run.epochs[:2])
            if all(one.looked == one.samples for one in run.epochs[:2]) and not before & after:
                return "samples look different in each pass, as augmented ones do"
    return ""


_STARVED: Final = 0.9


def starved(samples: Sequence[int]) -> dict[int, float]:
    """Ranks with fewer samples than nine tenths of the median rank's, of two the other's -> their share of that."""
    usual = float(np.median(samples)) if len(samples) > 2 else max(samples, default=0)
    return {rank: count / usual for rank, count in enumerate(samples) if count < _STARVED * usual}


_HANG_S: Final = 5.0
_HANG_STEPS: Final = 20


def hanging(runs: Sequence[RankRun], running: Sequence[bool]) -> tuple[int, ...]:
    """Ranks for which others wait in a collective, much longer than their steps take; empty where nobody hangs.

    Only a rank that does not run, or is in no collective, can be one; where all of them are in collectives, the ranks
    that have entered fewest.
    """
    waiting = [run.position is not None and run.position.activity == "collective" for run in runs]
    idle_s = [run.position.idle_s if run.position is not None else 0.0 for run in runs]
    usual_s = max((run.wall_s / run.steps for run in runs if run.steps), default=0.0)
    limit_s = max(_HANG_S, _HANG_STEPS * usual_s)
    stuck = [at for at, one in enumerate(waiting) if one and running[at] and idle_s[at] >= limit_s]
    if not stuck:
        return ()
    missing = [at for at in range(len(runs)) if not running[at] or not waiting[at]]
    if missing:
        return tuple(missing)
    fewest = min(run.begun for run in runs)
    return tuple(at for at, run in enumerate(runs) if run.begun == fewest) if len({r.begun for r in runs}) > 1 else ()
