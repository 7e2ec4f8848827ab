"""Limits of a trial in seconds, at the pace of the machine: what is slow is not taken for hung."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from xttsbench.analysis.disturbance import shares
from xttsbench.analysis.readings import turns_of
from xttsbench.planning import IMPORT_S
from xttsbench.records.trial import TrialRecord

PATIENCE: Final = 4.0
"""Times what it took before to start the target and to take its first step, silence is not taken for hanging."""
_MOST: Final = 10.0
"""A machine is not taken to be slower than that: a cold disk makes one import long, and nothing else."""
_LATELY: Final = 8  # trials that tell of the machine's pace now; those before tell of an earlier one


@dataclass(frozen=True)
class Limits:
    """Seconds on a machine of ordinary pace.

    Attributes:
        time_s: for the whole trial.
        stall_s: without any sign of life (a message, a step that ended).
        most_s: for the whole trial whatever the pace, such as what is left of a budget; ``None`` for no such end.
    """

    time_s: float
    stall_s: float
    most_s: float | None = None

    def __post_init__(self) -> None:
        if self.time_s <= 0 or self.stall_s <= 0:
            raise ValueError(f"limits must be positive, got time_s={self.time_s}, stall_s={self.stall_s}")


def pace(import_s: float, trials: Sequence[TrialRecord]) -> float:
    """Times as long as on a machine of ordinary pace things take here now, 1 at least and 10 at most.

    The largest of three: TensorFlow's import beside what it takes elsewhere; the canary at its slowest beside its
    quickest; and what others left of the processors in the trial in which they left least, of the last few.
    """
    canaries = [
        took
        for trial in trials[-_LATELY:]
        for mark in trial.rounds
        for took in (mark.canary_before_ns, mark.canary_after_ns)
        if took
    ]
    left = [shares(trial.readings.host, turns_of(trial)).left for trial in trials[-_LATELY:]]
    slow = [import_s / IMPORT_S, *(1 / share for share in left)]
    if canaries:
        slow.append(max(canaries) / min(canaries))
    return min(max(1.0, *slow), _MOST)


def at_pace(limits: Limits, import_s: float, trials: Sequence[TrialRecord]) -> Limits:
    """Limits as they are on this machine now, from what the trials so far took here.

    Silence may last as long as it took four times (:data:`PATIENCE`) to start a process, build the target and take the
    first step, with what it compiles. ``import_s`` is what the last import of TensorFlow took.
    """
    slower = pace(import_s, trials)
    firsts = [segment.columns for trial in trials for segment in trial.segments if segment.steps]
    first_s = max((columns["wait_ns"][0] + columns["step_ns"][0] for columns in firsts), default=0) / 1e9
    setup_s = max((trial.setup_s or 0.0 for trial in trials), default=0.0)
    stall_s = max(limits.stall_s * slower, PATIENCE * (import_s + setup_s + first_s))
    time_s = max(limits.time_s * slower, stall_s)
    return Limits(min(time_s, limits.most_s or time_s), stall_s, limits.most_s)
