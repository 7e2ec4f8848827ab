"""A script that is run again to time its training loop, with a fix or without, in turns with other processes.

The fixed dataset takes the place of the one that feeds the training loop when the script begins to use it, repeated so
that the loop goes on as long as it is wanted. A turn is a number of steps, after some that are not counted. It ends
where the loop asks for its next batch, with the device idle; the whole process is stopped there until it has its turn
again, so that no buffer fills meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph import apply
from xttsbench.fixes.step.rewrite import change_keras
from xttsbench.records.code import ScriptAgain, ScriptData
from xttsbench.records.fix import FixSet
from xttsbench.records.rows import RowMemory, SegmentRows, StepRow
from xttsbench.worker.batches import fill_caches
from xttsbench.worker.channel import ScriptReport, StoppedByUs
from xttsbench.worker.contents import ScriptContents
from xttsbench.worker.failure import failure
from xttsbench.worker.ladder import SETTLING, TURN_START
from xttsbench.worker.script.loop import Loop, Loops
from xttsbench.worker.script.recorder import Recorder
from xttsbench.worker.script.watched import Watched

if TYPE_CHECKING:
    from xttsbench.worker.script.again.process import AgainProcess

_MEASURED: Final = "as_is"


class Turns:
    """Assignment of steps to turns; those of a turn's start are not counted."""

    def __init__(self, report: ScriptReport) -> None:
        self.segment, self.round = SETTLING, 0
        self._channel = report.channel
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
    """The loops of a script that runs again, of which it is known what the training loop iterates."""

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

    def counts_own(self, loop: Loop) -> bool:
        """Whether a loop that iterates that dataset is, or may still become, the main one."""
        return self.counts(loop) and self.is_own(loop)

    def is_own(self, loop: Loop) -> bool:
        """Whether a loop iterates the dataset that the trial is about, or trains where there is none."""
        if self._again.data is None:
            return loop.trains or not self._again.trains
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


class AgainRecorder(Recorder):
    """Records a script that runs again, in turns where that was asked for, else in one stretch."""

    grace_s = 0.5
    between_calls = True

    def __init__(self, report: ScriptReport, again: ScriptAgain) -> None:
        super().__init__(report)
        self.windows.leave_out()
        self.turns = Turns(report) if report.spec.turns else None
        self.loops = AgainLoops(again, report.channel.rows, self.turns)
        self.turn_over: Callable[[], None] = lambda: None
        """Called between two turns, off the clock."""

    def make_loops(self) -> Loops:
        """The loops that take turns."""
        return self.loops

    def enough(self) -> bool:
        """Whether enough steps were measured; turns end when the parent says so."""
        return self.turns is None and super().enough()

    def wants_rows(self, loop: Loop, steps: int) -> bool:
        """As soon as a stretch may be over."""
        return self.turns is not None and (loop.warming or self.turns.over(loop.steps + steps))

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


_FOR_EVER: Final = 10**6  # Epochs of a call of ``fit`` that is to go on as long as it is wanted


class Trial:
    """One trial of a script; :attr:`watched` sees it run."""

    def __init__(self, process: AgainProcess, recorder: AgainRecorder) -> None:
        self.spec, self.channel, self.again = process.spec, process.channel, process.again
        self.fixes = FixSet.parse(self.spec.fix)
        self.watched = Watched(process.report, process.end_at_once, recorder)
        self.watched.before_fit = self.before_fit
        self.watched.datasets.wanted = self.again.data
        self.watched.datasets.stand_in = self._stand_in
        self._began: float | None = process.began  # until the script begins to use its dataset
        self._failed: BaseException | None = None

    def before_fit(self, model: Any, arguments: dict[str, Any]) -> None:
        """Make a Keras model's step what a fix of it says."""
        for fix in self.fixes.of_step:
            change_keras(model, fix)

    def use(self, dataset: Any, fixed: Any) -> Any:
        """Replacement for the script's dataset, once that is known to feed the training loop."""
        raise NotImplementedError

    def asks(self) -> None:
        """The script asks for its data, or for a batch of its own."""
        if self._began is not None:
            self.channel.part("setup_s", time.perf_counter() - self._began)
            self._began = None

    def got(self, batch: Any) -> None:
        """A batch of its own has come."""

    def passed(self) -> None:
        """The iterable that gives such batches has ended."""

    def end(self) -> None:
        """The script is over, or was stopped."""
        self.watched.end()

    def failure(self, error: BaseException | None) -> dict[str, Any] | None:
        """Why the trial shows nothing, as a message to the parent; ``error`` is what the script raised, if it did."""
        if self._failed is not None or error is not None:
            return failure(self._failed or error)  # type: ignore[arg-type]
        if self._began is not None:
            return {"status": "empty", "cause": "the script ended before it used the dataset of its training loop"}
        return None

    def _stand_in(self, dataset: Any, mark: ScriptData) -> Any:
        watched, self.watched.active = self.watched.active, False
        try:
            if self.fixes.of_step and self.again.no_edit is not None and not self.spec.patched:
                raise InvalidInputError(self.again.no_edit)
            parts = self.fixes.of_dataset
            fixed = apply(dataset, parts) if parts else dataset
            if self.again.data is not None and mark.begun < self.again.data.begun:
                return fixed
            self.asks()
            return self.use(dataset, fixed)
        except Exception as error:  # ours, or the data's: no exception of the script's
            self._failed = error
            self.watched.recorder.stop()
            raise StoppedByUs("the trial failed") from error
        finally:
            self.watched.active = watched


class VariantTrial(Trial):
    """Measures the training loop, with the fix or without."""

    def __init__(self, process: AgainProcess) -> None:
        recorder = AgainRecorder(process.report, process.again)
        super().__init__(process, recorder)
        self._contents = None
        if self.spec.hashed:
            self._contents = ScriptContents(recorder.loops.counts_own, lambda: recorder.results.steps_per_call == 1)
            self.watched.on_batch, self.watched.clock.contents = self._contents.got, self._contents
            recorder.turn_over = self._contents.digest

    def end(self) -> None:
        """Send what the batches held, too."""
        super().end()
        contents, self._contents = self._contents, None
        if contents is not None:
            contents.digest()
            self.channel.part("contents", contents.look.record())

    def before_fit(self, model: Any, arguments: dict[str, Any]) -> None:
        """Have it go on, too."""
        super().before_fit(model, arguments)
        arguments["epochs"] = _FOR_EVER

    def use(self, dataset: Any, fixed: Any) -> Any:
        """The dataset with the fix, its caches full, for ever."""
        if self.spec.fill_caches:
            fill_caches(self.spec, fixed, self.channel)
        if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
            return fixed
        return fixed.repeat()

    def failure(self, error: BaseException | None) -> dict[str, Any] | None:
        """Also where the script ended before its loop was warm."""
        found = super().failure(error)
        main = self.watched.recorder.results.loops.main
        if found is None and (main is None or main.warming):
            steps = main.steps if main is not None else 0
            found = {"status": "empty", "cause": f"the script ended after {steps} steps, before its loop was warm"}
        return found
