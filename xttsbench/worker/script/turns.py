"""Steps of a script's training loop in turns with other processes: between two steps it stands still.

A turn is a number of steps, after some that are not counted. It ends where the loop asks for its next batch, with the
device idle; the whole process is stopped there until it has its turn again, so that no buffer fills meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from xttsbench.records.rows import RowMemory, SegmentRows, StepRow
from xttsbench.records.script import ScriptAgain
from xttsbench.step.watch import Watch
from xttsbench.worker.arm import SETTLING, TURN_START
from xttsbench.worker.script.loops.loop import Loop, Loops
from xttsbench.worker.script.recorder import Recorder, Results
from xttsbench.worker.script.report import ScriptReport

_MEASURED: Final = "as_is"


class Turns:
    """Whose steps are counted as what: those of a turn's start are not."""

    def __init__(self, report: ScriptReport) -> None:
        self.segment, self.round = SETTLING, 0
        self._channel = report.channel
        self._stretch: tuple[int, ...] = ()
        self._began_ns = self._until = self._batches = 0
        self._name = _MEASURED

    def over(self, steps: int) -> bool:
        """Whether a stretch is over once so many steps have ended."""
        return steps >= self._until

    def next(self, steps: int, over: Callable[[], None]) -> bool | None:
        """Begin the next stretch: the counted part of this turn, or the next turn once it comes.

        Args:
            steps: of the loop that have ended.
            over: called between two turns, off the clock.

        Returns:
            Whether the process stood still; ``None`` where there are no more turns.
        """
        now = time.perf_counter_ns()
        if self._batches:
            self.segment, self._until, self._began_ns, self._batches = self._name, steps + self._batches, now, 0
            return False
        over()
        turn = self._channel.next_turn(*((self._began_ns, now) if self._began_ns else ()))
        if turn is None:
            return None
        self._name = SETTLING if turn.round < 0 else _MEASURED
        self.round = max(turn.round, 0)
        self._batches = turn.batches
        if turn.discarded:
            self.segment, self._until = SETTLING if turn.round < 0 else TURN_START, steps + turn.discarded
        else:
            self.next(steps, over)
        return True


class AgainLoops(Loops):
    """The loops of a script that runs again, of which it is known what the training loop iterates.

    Args:
        again: what is known of the script.
        memory: gets the rows.
        turns: where the script takes turns.
    """

    def __init__(self, again: ScriptAgain, memory: RowMemory, turns: Turns | None) -> None:
        super().__init__(2**62, memory)
        self._again = again
        self._turns = turns

    def choose(self, *, over: bool = False) -> Loop | None:
        """The training loop: by its gradients, or where it takes none by its dataset."""
        if self.main is None:
            for loop in self.all():
                # Of a loop in a graph gradients are seen only when its call returns.
                known = not self._again.trains or "tf.function" in loop.how
                loop.trains = loop.trains or (known and loop.steps > 0 and self.is_own(loop))
        return super().choose(over=over)

    def is_own(self, loop: Loop) -> bool:
        """Whether a loop iterates the dataset that the trial is about."""
        return loop.data is not None and loop.data.kind == self._again.data.kind

    def add(self, loop: Loop, row: StepRow, *, traced: bool) -> tuple[SegmentRows, int] | None:
        """Write one step's row into the segment of the turn."""
        turns = self._turns
        if turns is None or loop is not self.main or loop.warming:
            return super().add(loop, row, traced=traced)
        loop.count(row, traced=traced)
        segment = loop.segments.get(turns.segment)
        if segment is None:
            segment = loop.segments[turns.segment] = self._memory.segment(turns.segment)
        return segment, segment.append(row._replace(round=turns.round))


class AgainResults(Results):
    """The rows of a script that runs again."""

    def __init__(self, report: ScriptReport, watch: Watch, loops: AgainLoops) -> None:
        super().__init__(report, watch)
        self.loops: AgainLoops = loops
        self._has_turns = report.spec.turns

    def enough(self) -> bool:
        """Of one stretch as of any script; turns end when the parent says so."""
        return not self._has_turns and super().enough()


class AgainRecorder(Recorder):
    """Records a script that runs again, in turns where that was asked for, else in one stretch.

    Args:
        report: of the script's run.
        again: what is known of the script.
    """

    grace_s = 0.5
    between_calls = True

    def __init__(self, report: ScriptReport, again: ScriptAgain) -> None:
        super().__init__(report)
        self.windows.leave_out()
        self.turns = Turns(report) if report.spec.turns else None
        self.loops = AgainLoops(again, report.channel.rows, self.turns)
        self.turn_over: Callable[[], None] = lambda: None
        """Called between two turns, off the clock."""

    def make_results(self) -> Results:
        """The results, of the loops that take turns."""
        return AgainResults(self.report, self.watch, self.loops)

    def wants_rows(self, loop: Loop, steps: int) -> bool:
        """As soon as a stretch may be over."""
        turns = self.turns
        return turns is not None and (loop.warming or turns.over(loop.steps + steps))

    def after_step(self, loop: Loop) -> bool:
        """Between two steps: stand still where the turn is over, or have the script stop where enough was measured."""
        turns = self.turns
        if turns is None:
            return super().after_step(loop)
        if loop is not self.results.loops.main or loop.warming or self.stopping_since is not None:
            return False
        stood = turns.next(loop.steps, self.turn_over) if turns.over(loop.steps) else False
        if stood is None:
            self.stop()
        return bool(stood)


class FewSteps(AgainRecorder):
    """Has a script stop after so many steps of its training loop, once its data have been read.

    Args:
        report: of the script's run.
        again: what is known of the script.
        steps: see above.
        at_last: called once they have ended, with the script as it is then.
    """

    grace_s = 3.0

    def __init__(self, report: ScriptReport, again: ScriptAgain, steps: int, at_last: Callable[[], None]) -> None:
        super().__init__(report, again)
        self._steps = steps
        self._at_last = at_last
        self.ended = 0

    def wants_rows(self, loop: Loop, steps: int) -> bool:
        """Always: steps are counted."""
        return True

    def after_step(self, loop: Loop) -> bool:
        """Count a step."""
        if self.loops.is_own(loop):
            self.ended = loop.steps
            if loop.steps >= self._steps and self.stopping_since is None:
                self._at_last()
                self.stop()
        return False
