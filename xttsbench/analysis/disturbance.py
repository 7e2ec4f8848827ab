"""Load of other processes during a measurement, the rounds that it spoilt, and phrases for it: pure.

All shares are of the capacity, which is the processors that the target may use times the seconds. The gate that
leaves rounds out is blind to the outcome: it looks at the neighbours and at the canary, never at the target's times,
so that it cannot choose the result (an outlier is a result until something else says that it is not one).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Final

import numpy as np

from xttsbench.analysis.readings import Span, turns_of
from xttsbench.analysis.steps import Steps
from xttsbench.records.readings import MACHINE_COLUMNS, HostReadings
from xttsbench.records.report import Disturbance
from xttsbench.records.trial import TrialRecord

ABOVE_QUIET: Final = 0.05
"""Share of the capacity: a round in which others took that much more than in the session's quiet rounds is invalid."""
_SLOW_CANARY: Final = 1.10  # Times the canary of the session's quiet rounds, from which a round is invalid
_QUIET: Final = 0.25
"""The quiet level is the lower quartile: three rounds of four may be disturbed, and it is still a quiet one's."""
_WIDENED: Final = 0.5
_PIECE_S: Final = 1.0
"""A turn is told in pieces of this length: the kernel counts in ticks of 10 ms, too coarse for shorter ones."""
_WORTH_SAYING: Final = 0.10
_QUIETLY: Final = 0.02
_MANY: Final = 3  # One round in so many is disturbed from which that is worth saying
_LEAST_LEFT: Final = 0.05

RoundKey = tuple[int, int]
"""Block and round."""


@dataclass(frozen=True)
class Shares:
    """Use of the processors during some stretch of time, in shares of the capacity; ``None`` if not read.

    Attributes:
        seconds: how long it was.
        own: processor time of the target and its children.
        steal: what the hypervisor ran something else in.
        foreign: processor time of others that the target could have used.
        throttled: what the control group's quota stopped the target's threads for.
        run_delay: what the target's threads waited for a processor, summed over threads, so that it may exceed 1.
    """

    seconds: float
    own: float | None = None
    steal: float | None = None
    foreign: float | None = None
    throttled: float | None = None
    run_delay: float | None = None

    @property
    def taken(self) -> float | None:
        """Share that others took, beside the target or beneath its machine; ``None`` if not read."""
        return None if self.steal is None or self.foreign is None else self.steal + self.foreign

    @property
    def left(self) -> float:
        """The capacity that others left; all of it where that was not read."""
        return max(1.0 - (self.taken or 0.0), _LEAST_LEFT)


def shares(host: HostReadings | None, spans: Sequence[Span]) -> Shares:
    """Use of the processors during these stretches together, from the readings beside one process."""
    seconds = sum(span.seconds for span in spans)
    if host is None or seconds <= 0:
        return Shares(seconds)

    def grown(name: str) -> float | None:
        found = [(span.seconds, span.growth(host, name)) for span in spans]
        seen_s = sum(length for length, value in found if value is not None)
        return sum(value or 0.0 for _, value in found) * seconds / seen_s if 2 * seen_s >= seconds else None

    own, steal, idle = (grown(name) for name in ("cpu_s", "machine_steal_s", "machine_idle_s"))
    machine = _processors(host) * seconds
    capacity = host.allowed_cpus * seconds if host.allowed_cpus else machine
    if capacity <= 0:
        return Shares(seconds)
    stolen = foreign = None
    if machine > 0 and own is not None and steal is not None and idle is not None:
        # The kernel takes idle and stolen time from clocks and what is used from ticks, 2 to 4 % off in a second.
        busy = max(machine - steal - idle, 0.0)
        # Under a quota there are processors beyond the capacity: what others do on as many takes nothing away, and of
        # the stolen time it is the part of the processors that the target can use.
        foreign = max(busy - own - (grown("parent_cpu_s") or 0.0), 0.0)
        foreign = max(foreign - max(machine - capacity, 0.0), 0.0) / capacity
        stolen = steal * min(capacity / (busy + steal), 1.0) / capacity if steal > 0 else 0.0
    own, stopped, delayed = (
        None if used is None else used / capacity for used in (own, grown("throttled_s"), grown("run_delay_s"))
    )
    return Shares(seconds, own, stolen, foreign, stopped, delayed)


def _processors(host: HostReadings) -> int:
    """Number of processors in the machine's counters: all kinds of time sum to the elapsed time of each.

    0 if not read.
    """
    columns: list[tuple[float, ...]] = [getattr(host, name) for name in MACHINE_COLUMNS]
    if len(host.t_ns) < 2 or any(len(values) != len(host.t_ns) for values in columns):
        return 0
    return round(sum(values[-1] - values[0] for values in columns) / ((host.t_ns[-1] - host.t_ns[0]) / 1e9))


@dataclass(frozen=True)
class Gate:
    """Rounds that were disturbed, of all that were measured.

    Attributes:
        rounds: all that were measured.
        disturbed: those in which others took too much, or the canary was slow.
        slow: those of the disturbed ones that the canary alone shows.
        quiet: share of the capacity that others take in quiet rounds; ``None`` where that was not read.
        left: configuration -> round -> logarithm of the share of the processors that neighbours left in its turn,
            where processes take turns; without rounds of which nothing was read.
        paired: those in which the step was measured beside its input and alone.
        invalid: those to leave out: the disturbed ones, or none where that would be more than half, or every pair.
    """

    rounds: frozenset[RoundKey]
    disturbed: frozenset[RoundKey]
    slow: frozenset[RoundKey] = frozenset()
    quiet: float | None = None
    left: Mapping[str, Mapping[RoundKey, float]] = field(default_factory=dict)
    paired: frozenset[RoundKey] = frozenset()

    @property
    def widened(self) -> bool:
        """Whether too many were disturbed, so that all are kept and the noise scale is to be widened."""
        no_pair = bool(self.paired) and self.paired <= self.disturbed
        return no_pair or len(self.disturbed) > _WIDENED * len(self.rounds)

    @property
    def invalid(self) -> frozenset[RoundKey]:
        """Rounds to leave out."""
        return frozenset() if self.widened else self.disturbed


def gate(trials: Sequence[TrialRecord]) -> Gate:
    """Judge the rounds of trials that are compared with one another; a trial without turns is its block's round 0.

    What others took in a round is what they took in all of its turns together: in the longest of one turn it varies so
    much where time is stolen at random, and steadily, that every third round would be left out. The canary is slow
    where it is so at both ends of a turn. A round of which nothing was read is valid. Quiet is what it is on the
    round's own machine: another one may be slower, and have other neighbours.
    """
    rounds = set()
    machines: dict[RoundKey, str | None] = {}
    read: dict[RoundKey, list[tuple[float, float]]] = defaultdict(list)
    canary: dict[RoundKey, float] = {}
    left: dict[str, dict[RoundKey, float]] = defaultdict(dict)
    for trial in trials:
        for number, spans, canaries in _turns(trial):
            key = (trial.spec.block, number)
            rounds.add(key)
            machines[key] = node_of(trial)
            if canaries:
                canary[key] = max(canary.get(key, 0.0), min(canaries))
            if (share := (seen := shares(trial.readings.host, spans)).taken) is not None:
                read[key].append((seen.seconds, share))
                if trial.spec.turns:
                    left[trial.spec.arm or ""][key] = math.log(seen.left)
    taken = {key: _weighted(values) for key, values in read.items()}
    quiet = _quiet(taken.values()) if taken else None
    usual, pace = _quiet_by(taken, machines), _quiet_by(canary, machines)
    disturbed = {key for key, share in taken.items() if share > usual[machines[key]] + ABOVE_QUIET}
    slow = {key for key, took in canary.items() if took > pace[machines[key]] * _SLOW_CANARY} - disturbed
    disturbed |= slow
    paired = {(one.spec.block, mark.round) for one in trials for mark in one.rounds if mark.input_idle is not None}
    return Gate(frozenset(rounds), frozenset(disturbed), frozenset(slow), quiet, left, frozenset(paired))


def node_of(trial: TrialRecord) -> str | None:
    """Machine of a cluster that measured a trial; ``None`` for the run's own."""
    return trial.machine.node if trial.machine is not None else None


def _quiet_by(values: Mapping[RoundKey, float], machines: Mapping[RoundKey, str | None]) -> Mapping[str | None, float]:
    """Quiet level of each machine."""
    found: dict[str | None, list[float]] = defaultdict(list)
    for key, value in values.items():
        found[machines[key]].append(value)
    return {machine: _quiet(own) for machine, own in found.items()}


def without(steps: Steps, block: int, rounds: Collection[RoundKey]) -> Steps:
    """The steps of a block's process but for those of some rounds."""
    gone = [number for own, number in rounds if own == block]
    return steps[~np.isin(steps.round, gone)] if gone else steps


def disturbance_of(trials: Sequence[TrialRecord]) -> Disturbance | None:
    """Disturbance of the machine for the report; ``None`` without readings."""
    pieces = sorted(_pieces(trials), key=lambda piece: piece.start_s)
    if not pieces:
        return None
    groups = {trial.spec.group for trial in trials}
    gates = [gate([trial for trial in trials if trial.spec.group == group]) for group in groups]
    rounds, disturbed = sum(len(found.rounds) for found in gates), sum(len(found.disturbed) for found in gates)
    widened = any(found.widened for found in gates)
    quota = [shares(trial.readings.host, turns_of(trial)) for trial in trials]
    stopped = [(one.seconds, one.throttled) for one in quota if one.throttled is not None]
    throttled = _weighted(stopped) if stopped else None
    # Each machine of a cluster has a clock of its own.
    words = [_machine(pieces) if len({node_of(trial) for trial in trials}) < 2 else _who(pieces)]
    if throttled is not None and throttled >= _QUIETLY:
        words.append(f"the processor quota stopped its threads for {_percent(throttled)} of the time")
    if widened or disturbed * _MANY >= max(rounds, 1):  # a few of many change neither the verdict nor its interval
        words[0] = words[0].removeprefix("quiet, ")
        were, do = ("was", "does") if disturbed == 1 else ("were", "do")
        consequence = ", all are kept, and intervals are wider" if widened else f" and {do} not count"
        slow = sum(len(found.slow) for found in gates)
        cause = f" ({slow} by a slower processor: its clock, or another machine on its cores)" if slow else ""
        words.append(f"{disturbed} of {rounds} rounds {were} disturbed{cause}{consequence}")
    return Disturbance(
        steal_share=_mean(pieces, "steal"),
        foreign_share=_mean(pieces, "foreign"),
        throttled_share=throttled,
        rounds=rounds,
        invalid_rounds=disturbed,
        widened=widened,
        sentence="; ".join(words),
    )


@dataclass(frozen=True)
class _Piece:
    start_s: float
    end_s: float
    steal: float
    foreign: float

    @property
    def taken(self) -> float:
        return self.steal + self.foreign


def _turns(trial: TrialRecord) -> Iterator[tuple[int, Sequence[Span], list[float]]]:
    """Number of the round, its stretches, and what the canary took at its ends."""
    for mark in trial.rounds:
        took = [float(ns) for ns in (mark.canary_before_ns, mark.canary_after_ns) if ns is not None]
        yield mark.round, (Span(mark.start_ns, mark.end_ns),), took
    if not trial.rounds and (spans := turns_of(trial)):
        yield 0, spans, []


def _pieces(trials: Sequence[TrialRecord]) -> Iterator[_Piece]:
    """The turns in pieces of a second, in seconds since the first reading of the session."""
    zero_ns = min((host.t_ns[0] for trial in trials if (host := trial.readings.host) and host.t_ns), default=0)
    for trial in trials:
        for span in turns_of(trial):
            edges = np.linspace(span.start_ns, span.end_ns, max(round(span.seconds / _PIECE_S), 1) + 1).astype(np.int64)
            for start_ns, end_ns in pairwise(edges.tolist()):
                found = shares(trial.readings.host, (Span(start_ns, end_ns),))
                if found.steal is not None and found.foreign is not None:
                    yield _Piece((start_ns - zero_ns) / 1e9, (end_ns - zero_ns) / 1e9, found.steal, found.foreign)


def _machine(pieces: Sequence[_Piece]) -> str:
    quiet = _quiet(piece.taken for piece in pieces)
    loud = [piece for piece in pieces if piece.taken > quiet + _WORTH_SAYING]
    if quiet >= _WORTH_SAYING or 2 * _length(loud) > _length(pieces):
        return f"{_who(pieces)} throughout"
    if not loud:
        return _who(pieces)
    runs = [list(run) for is_loud, run in groupby(pieces, key=lambda piece: piece in loud) if is_loud]
    if len(runs) == 1:
        return f"{_who(loud)} between {loud[0].start_s:.0f} s and {loud[-1].end_s:.0f} s"
    return f"{_who(loud)} in {len(runs)} stretches, {_length(loud):.0f} s of the {_length(pieces):.0f} s measured"


def _who(pieces: Sequence[_Piece]) -> str:
    foreign, steal = _mean(pieces, "foreign"), _mean(pieces, "steal")
    said = []
    if foreign >= _QUIETLY:
        said.append(f"others used {_percent(foreign)} of the processor")
    if steal >= _QUIETLY:
        said.append(f"{_percent(steal)} {'of it' if said else 'of the processor'} was stolen by other virtual machines")
    return " and ".join(said) or f"quiet, others used less than {_percent(_QUIETLY)} of the processor"


def _mean(pieces: Sequence[_Piece], name: str) -> float:
    return _weighted([(piece.end_s - piece.start_s, getattr(piece, name)) for piece in pieces])


def _weighted(values: Sequence[tuple[float, float]]) -> float:
    """The mean of values that each held for some seconds."""
    return sum(length * value for length, value in values) / sum(length for length, _ in values)


def _length(pieces: Sequence[_Piece]) -> float:
    return sum(piece.end_s - piece.start_s for piece in pieces)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _quiet(values: Iterable[float]) -> float:
    """The lower quartile, an observed value, so that with two or three rounds it is the quietest one's."""
    ranked = sorted(values)
    return ranked[int(_QUIET * (len(ranked) - 1))]
