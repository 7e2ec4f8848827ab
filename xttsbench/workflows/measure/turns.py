"""The arms of one accelerator in turns: opened one after another, then round after round on the same batches.

A round is one turn of each arm, in random order, so that whatever else the machine does hits all of them alike. All of
them draw as many batches, so that they are compared on the same ones; how many follows from the pace of the slowest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from xttsbench.analysis.disturbance import ABOVE_QUIET, gate
from xttsbench.comparison.arms import no_more_to_say
from xttsbench.errors import HelperError
from xttsbench.execution.ending import interruptible
from xttsbench.execution.limits import Limits
from xttsbench.execution.trial import LiveTrial
from xttsbench.planning import Slot, arm_trial, block_order
from xttsbench.records.plan import Accelerator, Comparison, PlannedVariant
from xttsbench.records.trial import TrialRecord, TrialSpec, Turn
from xttsbench.workflows.measure.session import Session

TURN_S: Final = 1.0
"""Seconds that the slowest configuration's turn should take: a neighbour's burst is longer, and hits all turns of a
round."""
_SETTLED_S: Final = 0.3
"""Before the first round the slowest configuration runs for so long at a stretch, so that its pipeline's tuning has
begun."""
_FEW: Final = 8  # batches of a turn, or as many as fit into twice that time: pipelines yield them in bursts
_LEAST: Final = 2
_MOST: Final = 400
"""Batches of a turn; the rows of twenty-four such turns are kept (:data:`xttsbench.records.rows.ROWS`)."""
_LEAST_S: Final = 0.3
"""Seconds that a turn lasts at least, where as many batches as the slowest configuration draws are over sooner."""
_GROWS: Final = 4
_SAME_SIZE: Final = 0.01  # batches whose mean sizes are closer than that are as large
_HANGS: Final = 30.0  # times what a turn is expected to take, after which its process is taken to hang
_HANGS_S: Final = 15.0
"""At least, unless less silence was asked for: a neighbour may take the processors away for seconds."""
_WAITS_S: Final = 30.0
"""For neighbours to be done, after rounds that they disturbed, in all; their bursts may be longer than that."""
_ROOM: Final = 1.3  # times what a configuration holds so far, for what another one may come to hold
_SPARE: Final = 0.1  # share of what is available that is left alone

Enough = Callable[[Sequence[TrialRecord]], Collection[str]]
"""From the trials so far, of processes that live as well, to the candidates that need no more rounds."""
AfterRound = Callable[[int, int, Sequence[TrialRecord]], None]
"""Called after each round with how many are done, of how many, and the trials so far."""


@dataclass(frozen=True)
class Rounds:
    """Order for rounds of measurement, in turns or in blocks.

    Attributes:
        comparison: the configurations, the accelerators, and the limits of a trial.
        refused: configurations with other data than the baseline's, which are not measured.
        block: number of the first processes: each configuration has one of that number.
        most: rounds at most; one that others have disturbed is measured again, as long as they are not twice as many.
        until_s: seconds of the session; no round begins that is not expected to end by then.
        setup_s: seconds that building a configuration took.
        window_s: seconds that a turn, or a trial by itself, may measure; ``None`` for what fits into the time.
        seed: of the order, and of the trials.
        enough: see :data:`Enough`; ``None`` for those that are clearly faster, clearly slower, or no different.
        after_round: see :data:`AfterRound`.
        ahead: by how much the numbers of the trials are ahead of those that the session has had.
    """

    comparison: Comparison
    refused: frozenset[str]
    block: int
    most: int
    until_s: float
    setup_s: float
    window_s: float | None
    seed: int
    enough: Enough | None
    after_round: AfterRound | None
    ahead: int = 0

    @property
    def arms(self) -> tuple[PlannedVariant, ...]:
        """The configurations that are measured, in the order of the plan."""
        return tuple(arm for arm in self.comparison.arms if arm.id not in self.refused)

    def done(self, accelerator: Accelerator, trials: Sequence[TrialRecord]) -> Collection[str]:
        """Candidates that need no more rounds on an accelerator."""
        if self.enough is not None:
            return self.enough(trials)
        return no_more_to_say(self.comparison.model_copy(update={"accelerators": (accelerator,)}), trials)


def goes_on(arms: Sequence[PlannedVariant], gone: Collection[str]) -> bool:
    """Whether there is something to compare: the baseline, in both of its runs, and a candidate if there was one."""
    candidates = [arm.id for arm in arms if arm.role == "candidate"]
    if any(arm.id in gone for arm in arms if arm.role != "candidate"):
        return False
    return not candidates or any(name not in gone for name in candidates)


@dataclass
class Group:
    """Processes of the configurations on one accelerator, which live side by side and take turns; by configuration.

    Of the time that is left once all are open they may take a ``share``; the rest is for others.
    """

    wanted: Rounds
    accelerator: Accelerator
    share: float
    session: Session
    lives: dict[str, LiveTrial] = field(default_factory=dict)
    pace_s: dict[str, float] = field(default_factory=dict)
    until_s: float = math.inf
    now: str | None = None  # the configuration that is being opened, or has its turn

    def measure(self) -> str | None:
        """Measure in turns; the trials are in the session and in the journal when all have ended.

        Each round is on disk before the next begins.

        Returns:
            Why the configurations cannot live side by side, in which case nothing was kept; ``None`` where they could.
        """
        numbered = enumerate(self.wanted.arms, start=len(self.session.trials) + self.wanted.ahead)
        specs = {arm.id: self._spec(arm, number) for number, arm in numbered}
        if self._had_before(specs):
            return None
        why = None
        try:
            with interruptible():
                why = self._open(specs)
            if self.session.source_changed(specs[self._baseline]):  # some may have loaded another one than others
                self._drop_all()
                return None
            now_s = self.session.spent_s
            self.until_s = now_s + self.share * (self.wanted.until_s - now_s)
            with interruptible():
                if why is None and self._settle():
                    self._go_round()
        except KeyboardInterrupt:
            self._interrupted(specs)
        except BaseException:
            self._drop_all()
            raise
        if why is not None:
            self._drop_all()
        for name in [*self.lives]:
            self._let_go(name)
        return why

    def _spec(self, arm: PlannedVariant, number: int) -> TrialSpec:
        plan, slot = self.wanted.comparison, Slot(arm, self.accelerator)
        block, seed = self.wanted.block, self.wanted.seed
        trial = arm_trial(plan, slot, number=number, block=block, window_s=plan.window_s, seed=seed)
        return trial.model_copy(update={"turns": True})

    def _let_go(self, name: str) -> None:
        """End a process; its record is kept, unless it was ended before it had measured anything."""
        live = self.lives.pop(name)
        if live.over or live.so_far().rounds:
            self.session.close(live, self._label(name))
        else:
            live.end()

    def _had_before(self, specs: Mapping[str, TrialSpec]) -> bool:
        """Whether a run before has had all of them; where one is missing all are measured again, to be paired."""
        had = [spec for spec in specs.values() if self.session.had(spec)]
        if len(had) == len(specs):
            for spec in had:
                self.session.run(spec, self._limits)
            return True
        for spec in specs.values():
            self.session.earlier.pop(spec.trial_id, None)
        return False

    def _open(self, specs: Mapping[str, TrialSpec]) -> str | None:
        """Open the processes; why they cannot live side by side, or ``None``.

        As many at a time as there are processors, since building and tracing keep one busy each. None has a turn before
        all are open. The first one shows what the others will need.
        """
        names = [*specs]
        started: list[str] = []
        for number, name in enumerate(names):
            if len(started) == self.session.processors:
                self._await(started.pop(0))
                if self.lives[names[0]].over:
                    return None  # without the baseline there is nothing to compare
                if why := self._too_large(len(names) - number):
                    return why
            self.now = name
            try:
                self.lives[name] = self.session.start(specs[name], f"warming up {self._label(name)}")
            except HelperError as error:
                return str(error)
            started.append(name)
        for name in started:
            self._await(name)
        others = [self.lives[name] for name in names[1:]]
        if others and all(live.over for live in others):
            return f"beside {names[0]} no other process could be opened ({others[0].so_far().cause})"
        return None

    def _await(self, name: str) -> None:
        self.now = name
        self.lives[name].open(self._limits)
        self.now = None

    def _too_large(self, more: int) -> str | None:
        each = _ROOM * max((live.own_bytes for live in self.lives.values()), default=0)
        available = self.session.available_bytes
        if more * each <= (1 - _SPARE) * available:
            return None
        return (
            f"{more} more processes of {each / 2**30:.1f} GiB do not fit into the {available / 2**30:.1f} GiB of "
            "memory that are available"
        )

    def _settle(self) -> bool:
        """Find the pace of each configuration, while its pipeline settles; whether there is something to compare."""
        batches = _LEAST
        while self._goes_on():
            for name in self._active():
                # The first batch of a pipeline may take as long as its set-up.
                limit_s = self._limit_s(name, batches) if name in self.pace_s else self._limits.time_s
                self._turn(name, Turn(round=-1, batches=batches), limit_s)
            if not self._goes_on():
                return False
            slowest_s = max(self.pace_s[name] * batches for name in self._active())
            if slowest_s >= _SETTLED_S or batches * _GROWS > _MOST or not self._time_for(slowest_s * len(self.lives)):
                return True
            batches = math.ceil(batches * min(_GROWS, max(_SETTLED_S / slowest_s, 1.5)))
        return False

    def _go_round(self) -> None:
        batches = self._batches()
        done: Collection[str] = ()
        round_s, waits_s, wanted = 0.0, _WAITS_S, self.wanted
        number, most = 0, wanted.most
        while number < most:
            begun = self.session.spent_s
            expected_s = round_s or sum(self.pace_s[name] * (batches[name] + 1) for name in self._active())
            if number and not self._time_for(expected_s):
                return
            self.session.announce(self._progress(number, most, done))
            for name in self._order(number):
                if name not in done and not self.lives[name].over and self._goes_on():
                    short = batches[name] * self.pace_s[name] < _LEAST_S
                    turn = Turn(round=number, batches=batches[name], least_s=_LEAST_S if short else 0.0)
                    self._turn(name, turn, self._limit_s(name, batches[name]))
            round_s = self.session.spent_s - begun
            if not self._goes_on():
                return
            number += 1
            own = [live.so_far() for live in self.lives.values()]
            self.session.keep_rounds(own)
            judged = gate(own)
            most = wanted.most + min(len(judged.invalid), wanted.most)
            trials = [*self.session.trials, *own]
            if wanted.after_round is not None:
                wanted.after_round(number, most, trials)
            done = wanted.done(self.accelerator, trials)
            candidates = self._candidates()
            if candidates and all(name in done for name in candidates):
                return
            if judged.quiet is not None and (wanted.block, number - 1) in judged.invalid and number < most:
                left_s = min(waits_s, self.until_s - self.session.spent_s - round_s)
                waits_s -= self.session.wait_for_quiet(judged.quiet + ABOVE_QUIET, left_s)

    def _turn(self, name: str, turn: Turn, limit_s: float) -> None:
        self.now = name
        seconds = self.lives[name].turn(turn, limit_s)
        if seconds is not None and not turn.least_s:  # else more batches were drawn
            self.pace_s[name] = seconds / turn.batches
        self.now = None

    def _batches(self) -> dict[str, int]:
        """Batches of each configuration's turn: as many for all of one size, as many samples for others."""
        sizes = {name: _mean_size(self.lives[name].so_far()) for name in self._active()}
        baseline = sizes[self._baseline]
        same = {name: abs(size / baseline - 1) <= _SAME_SIZE for name, size in sizes.items()}
        share = {name: 1.0 if same[name] else baseline / size for name, size in sizes.items()}
        slowest_s = max(self.pace_s[name] * share[name] for name in sizes)
        second = min(self.wanted.window_s or self.wanted.comparison.window_s, TURN_S) / slowest_s
        count = min(max(second, min(2 * second, _FEW), _LEAST), _MOST)
        return {name: max(round(round(count) * share[name]), _LEAST) for name in sizes}

    def _order(self, number: int) -> list[str]:
        alone = {"arms": self.wanted.arms, "accelerators": (self.accelerator,)}
        plan = self.wanted.comparison.model_copy(update=alone)
        return [slot.arm.id for slot in block_order(plan, number, self.wanted.seed + self.wanted.block)]

    def _active(self) -> list[str]:
        return [name for name, live in self.lives.items() if not live.over]

    def _candidates(self) -> list[str]:
        return [arm.id for arm in self.wanted.arms if arm.role == "candidate" and not self.lives[arm.id].over]

    @property
    def _baseline(self) -> str:
        return self.wanted.arms[0].id

    def _goes_on(self) -> bool:
        arms = self.wanted.arms
        return goes_on(arms, {arm.id for arm in arms if arm.id not in self.lives or self.lives[arm.id].over})

    def _time_for(self, seconds: float) -> bool:
        return self.session.spent_s + seconds <= self.until_s

    @property
    def _limits(self) -> Limits:
        limits = Limits(self.wanted.comparison.trial_s, self.wanted.comparison.stall_s)
        return self.session.at_pace(limits, [live.so_far() for live in self.lives.values()])

    def _limit_s(self, name: str, batches: int) -> float:
        """After which a turn is taken to hang: many times what it should take."""
        return max(_HANGS * self.pace_s[name] * batches, min(_HANGS_S, self._limits.stall_s))

    def _interrupted(self, specs: Mapping[str, TrialSpec]) -> None:
        """Keep what the others measured, and the configuration whose turn it was as the last one, as interrupted."""
        last = self.now or next(reversed(self.lives), None)
        for name in [one for one in self.lives if one != last]:
            self._let_go(name)
        if last is None or last not in self.lives:
            self.session.never_begun(specs[last or self._baseline])
            return
        live = self.lives.pop(last)
        live.collected.interrupted()
        self.session.close(live, self._label(last))

    def _drop_all(self) -> None:
        for name in [*self.lives]:
            self.lives.pop(name).end()

    def _label(self, name: str) -> str:
        return f"{name}, {self.accelerator.label}"

    def _progress(self, number: int, most: int, done: Collection[str]) -> str:
        count = sum(name not in done for name in self._active())
        return f"round {number + 1} of {most} at most: {count} configurations in turn, {self.accelerator.label}"


def _mean_size(trial: TrialRecord) -> float:
    """Mean samples of a batch while the pipelines settled; 1 where the elements have no batch dimension."""
    settling = trial.segment("settling")
    sizes = settling.columns.get("batch_size", ()) if settling is not None else ()
    return max(float(np.mean(sizes)), 1.0) if sizes else 1.0
