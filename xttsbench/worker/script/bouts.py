"""What a script's own steps do, sampled and counted in two short bouts that no timing uses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from xttsbench.records.trial import Anatomy
from xttsbench.step.watch import Watch
from xttsbench.worker.script.loops import Loop

if TYPE_CHECKING:
    from xttsbench.step.sampler import StackSampler
    from xttsbench.worker.anatomy import OpCounter

_FIRST_STEPS: Final = 8
_SECOND_AFTER: Final = 60
_BOUT_S: Final = 1.5
_BOUTS: Final = 2
_UNKNOWN_AFTER: Final = 30
"""A loop that takes no gradients has an anatomy only after so many steps: it may be over soon."""


class Bouts:
    """The first bout takes a few steps after the warm-up, so that a short script has some left to time.

    A loop that goes on gets a second, longer one, whose result replaces the first's.
    """

    def __init__(self, watch: Watch) -> None:
        self.running = False
        self._loop: Loop | None = None
        self._asking = False
        self._watch = watch
        self._done = 0
        self._steps = 0
        self._ops: OpCounter | None = None
        self._sampler: StackSampler | None = None
        self._until = 0.0
        self._calls = 0

    def leave_out(self) -> None:
        """Begin no more of them: what they add to a step is in no step that is timed."""
        self._done = _BOUTS

    def due(self, loop: Loop, *, main: bool) -> bool:
        """Whether a bout should begin with the next step of this loop."""
        if self.running or loop.warming or not (main or loop.trains or loop.steps >= _UNKNOWN_AFTER):
            return False
        return self._done == 0 or (self._done == 1 and loop.measured >= _SECOND_AFTER)

    def begin(self, loop: Loop) -> None:
        """Begin with the next step of that loop; this pauses the script, and imports Keras where the script did not."""
        from xttsbench.step.sampler import StackSampler
        from xttsbench.worker.anatomy import OpCounter

        self._watch.watch_calls()
        self._ops, self._sampler = OpCounter(), StackSampler(input_runs=True)
        self._steps, self._calls = 0, self._watch.counters()[0]
        self._ops.__enter__()
        self._sampler.__enter__()
        self._sampler.step = 0
        self._until = time.perf_counter() + _BOUT_S
        self._loop, self._asking, self.running = loop, False, True

    def asking(self, now: bool) -> None:
        """The script asks for data from now on (or has it): that is no part of its step."""
        if self._sampler is not None and self._ops is not None and now != self._asking:
            self._asking = now
            self._sampler.step = None if now else self._steps
            if now:
                self._ops.__exit__()
            else:
                self._ops.__enter__()

    def step_ended(self, loop: Loop) -> Anatomy | None:
        """Count a step of the bout; its anatomy once the bout is over, which a step of another loop makes it too."""
        if loop is not self._loop:
            return self.finish()
        self._steps += 1
        if self._sampler is not None:
            self._sampler.step = self._steps
        if time.perf_counter() < self._until and (self._done or self._steps < _FIRST_STEPS):
            return None
        return self.finish()

    def finish(self) -> Anatomy | None:
        """End the bout; ``None`` where no step of it ended."""
        if self._ops is None or self._sampler is None:
            return None
        from xttsbench.worker.anatomy import summarise

        if not self._asking:
            self._ops.__exit__()
        self._sampler.__exit__()
        ops, sampler, self._ops, self._sampler, self.running = self._ops, self._sampler, None, None, False
        self._done += 1
        if not self._steps:
            return None
        return summarise(ops, sampler, self._steps, self._watch.counters()[0] - self._calls)
