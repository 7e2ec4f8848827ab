"""The loop: steps until the run is over, and what happens between them; it knows neither the model nor its watchers.

At the end of a step, in this order: the losses are fetched and judged, the held-out loss is asked for, a checkpoint is
written, and the run ends where it was asked to. Everything that decides the future is in the checkpoint, so that a run
that is killed at any moment and run again takes the steps of one that is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from xttsbench.errors import InvalidInputError, XttsbenchError
from xttsbench.records.training import Ended, Evaluated
from xttsbench.training.checkpoints import Checkpoints, RunState, digest
from xttsbench.training.course import (
    NONE,
    HealthState,
    Origin,
    Position,
    Sums,
    Window,
    blown_up,
    consumed,
    differences,
    learning_rate,
    skipping,
)
from xttsbench.xtts.recipe import Recipe

if TYPE_CHECKING:
    from xttsbench.records.training import CheckpointEntry, Interval
    from xttsbench.training.state import TrainingState
    from xttsbench.training.step import StepResult, TrainingStep, Workers
    from xttsbench.training.stream import Fetched
Reason = Literal["steps", "terminated"]


class Action:
    """Does nothing; a subclass overrides what it is there for. Calls come in the order of the methods.

    ``fetching``, ``fetched`` and ``stepped`` are called for each step and must take microseconds: they may look at the
    clock and at shapes, and never fetch a value from the device.
    """

    def begun(self, step: int) -> None:
        """The first batch will be asked for next; all shapes are compiled. ``step`` steps ended in earlier sessions."""

    def fetching(self) -> None:
        """A batch is asked for next."""

    def fetched(self, batch: Fetched) -> None:
        """Called when a batch is there."""

    def stepped(self, result: StepResult) -> None:
        """The call of the step has returned; on a GPU its work may be going on."""

    def interval(self, interval: Interval) -> None:
        """``log_every`` steps ended and their losses were fetched, so all their work is done."""

    def evaluated(self, evaluated: Evaluated) -> None:
        """The held-out loss is known."""

    def saved(self, entry: CheckpointEntry) -> None:
        """A checkpoint is whole and in the manifest."""

    def warned(self, sentence: str) -> None:
        """Something went wrong that the run outlives: a step left out, a checkpoint not written."""

    def ended(self, ended: Ended) -> None:
        """The last call, however the run ended but for an exception."""


class HeldOut(NamedTuple):
    """The loss on all held-out clips, as one batch of them all would have it."""

    loss: float
    mel: float
    stop: float
    guided: float
    clips: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """Parts of a run."""

    recipe: Recipe
    origin: Origin
    """Origin that a checkpoint must have to be resumed."""
    state: TrainingState
    step: TrainingStep
    batches: Callable[[Position], Iterator[Fetched]]
    """Makes the stream from a position on."""
    checkpoints: Checkpoints
    workers: Workers
    evaluate: Callable[[], HeldOut] | None = None
    """Asked for the held-out loss; ``None`` where nothing is held out."""
    actions: Sequence[Action] = ()
    stop: Callable[[], bool] = lambda: False
    """Looked at after each step, or at the end of each interval where several processes have to agree."""


def train(run: Run) -> Ended:
    """Train to the recipe's last step, from the newest whole checkpoint where there is one.

    Raises:
        InvalidInputError: the checkpoints are of another run or none is whole, or the data cannot be read.
        XttsbenchError: the loss blew up, or the last checkpoint cannot be written.
    """
    return _Loop(run).train()


class _Loop:
    """A session of training, and the state of the run in it."""

    def __init__(self, run: Run) -> None:
        self.run, self.settings = run, run.recipe.training
        self.position, self.samples = Position(), NONE
        self.health, self.window = HealthState(), Window(Sums())
        self.lowest: float | None = None
        self.batches: Iterator[Fetched] = iter(())
        self.saved_step: int | None = None
        self.is_behind = False
        """Whether the checkpoint that was due last could not be written."""
        self.is_stopped = False

    def train(self) -> Ended:
        self._begin()
        for action in self.run.actions:
            action.begun(self.position.step)
        while (reason := self._why_over()) is None:
            self._take_step()
            self._end_step()
        if self.saved_step != self.position.step:
            self._save(is_last=True)
        ended = Ended(
            reason=reason,
            step=self.position.step,
            samples_sha256=self.samples,
            weights_sha256=digest(self.run.state.weights()),
            optimizer_sha256=digest(self.run.state.optimizer()),
        )
        for action in self.run.actions:
            action.ended(ended)
        return ended

    def _begin(self) -> None:
        """Go on from the newest whole checkpoint, or write that of the beginning."""
        found = self.run.checkpoints.newest(self._warn)
        steps = self.run.workers.gather(-1 if found is None else found.run.position.step)
        if len(set(steps)) > 1:
            raise XttsbenchError(
                f"{self.run.checkpoints.directory}: the processes found checkpoints of the steps "
                f"{', '.join(f'{step:.0f}' for step in steps)} (-1: none); give them one directory that they share"
            )
        if found is not None and (differing := differences(found.run.origin, self.run.origin)):
            raise InvalidInputError(
                f"{self.run.checkpoints.directory / found.entry.files[0]} is of another run: {'; '.join(differing)}; "
                "train as that run did, or in another directory"
            )
        if self.run.workers.is_chief:
            self.run.checkpoints.clear()
        if found is None:
            self._save(is_last=True)  # where even the first cannot be written, no time is lost
        else:
            self.run.state.restore(found.weights, found.optimizer)
            self.position, self.samples = found.run.position, found.run.samples_sha256
            self.health, self.lowest, self.window = found.run.health, found.run.lowest, Window(found.run.sums)
            self.saved_step = self.position.step
        self.batches = self.run.batches(self.position)

    def _take_step(self) -> None:
        actions = self.run.actions
        self.window.begin_step()
        for action in actions:
            action.fetching()
        batch = next(self.batches)
        for action in actions:
            action.fetched(batch)
        result = self.run.step(
            batch.micro_batches, batch.counts, number=self.position.step, learning_rate=self._rate(self.position.step)
        )
        for action in actions:
            action.stepped(result)
        self.window.add(result, batch)
        self.position, self.samples = batch.position, consumed(self.samples, batch.ids)

    def _end_step(self) -> None:
        settings, step = self.settings, self.position.step
        is_last = step >= settings.steps
        ends_interval = is_last or step % settings.log_every == 0
        evaluate = self.run.evaluate if is_last or step % settings.evaluate_every == 0 else None
        saves = is_last or step % settings.checkpoint_every == 0
        if not self.run.workers.are_several:
            self.is_stopped = self.run.stop()
        elif ends_interval:
            self.is_stopped = any(self.run.workers.gather(self.run.stop()))
        if (ends_interval or evaluate or saves) and (seen := self._judge(ends_interval)) is not None:
            raise XttsbenchError(
                f"training does not stay on course: up to step {step} {seen}; try a lower optimizer.learning_rate, a "
                "longer training.schedule.warmup_steps, a smaller optimizer.clip_norm, or a precision of more bits"
            )
        is_best = evaluate is not None and self._take_held_out(evaluate())
        if saves or is_best:
            self._save(is_best=is_best, is_last=self._why_over() is not None)

    def _judge(self, ends_interval: bool) -> str | None:
        """Fetch the losses since they were fetched last, and return what is wrong with them, if anything is."""
        self._fetch()
        step, sums = self.position.step, self.window.sums
        seen = skipping(self.health, self.settings.health)
        if not ends_interval:
            return seen
        interval = sums.interval(
            last_step=step,
            learning_rate=self._rate(step - 1),
            loss_scale=self.run.state.loss_scale,
            epoch=self.position.epoch,
        )
        self.window = Window(Sums())
        if interval.skipped:
            self._warn(
                f"{interval.skipped} of the {interval.steps} steps up to {step} were left out, for a gradient was not "
                "finite"
            )
        for action in self.run.actions:
            action.interval(interval)
        seen = seen or blown_up(self.health, self.settings.health, interval.loss)
        self.health = self.health.after_interval(interval.loss)
        return seen

    def _fetch(self) -> None:
        self.health = self.health.after_steps([values.is_good for values in self.window.fetch()])

    def _take_held_out(self, found: HeldOut) -> bool:
        """Take an evaluation; return whether its loss is the lowest so far."""
        loss = self.run.workers.gather(found.loss)[0]  # the chief's, for another machine may round otherwise
        if not math.isfinite(loss):
            self._warn(f"the held-out loss of step {self.position.step} is {loss}")
            return False
        is_best = self.lowest is None or loss < self.lowest
        self.lowest = loss if is_best else self.lowest
        evaluated = Evaluated(
            step=self.position.step,
            loss=loss,
            mel=found.mel,
            stop=found.stop,
            guided=found.guided,
            clips=found.clips,
            best=is_best,
        )
        for action in self.run.actions:
            action.evaluated(evaluated)
        return is_best

    def _save(self, *, is_best: bool = False, is_last: bool = False) -> None:
        """Write a checkpoint; where it cannot be, the last one raises, and the others are warned of once."""
        self._fetch()
        step, checkpoints = self.position.step, self.run.checkpoints
        if self.run.workers.is_chief:
            run = RunState(
                origin=self.run.origin,
                position=self.position,
                samples_sha256=self.samples,
                health=self.health,
                lowest=self.lowest,
                sums=self.window.sums,
            )
            try:
                entry = checkpoints.save(run, self.run.state.weights(), self.run.state.optimizer(), best=is_best)
            except OSError as error:
                why = error.strerror or error
                what = f"{checkpoints.directory}: the checkpoint of step {step} cannot be written ({why})"
                if is_last:
                    from_step = "the beginning" if self.saved_step is None else f"step {self.saved_step}"
                    raise XttsbenchError(f"{what}; make room and run again: it begins at {from_step}") from error
                if not self.is_behind:
                    self._warn(f"{what}; the older ones stay, and it is tried again when the next one is due")
                self.is_behind = True
                return
            for action in self.run.actions:
                action.saved(entry)
        self.is_behind, self.saved_step = False, step

    def _why_over(self) -> Reason | None:
        if self.position.step >= self.settings.steps:
            return "steps"
        return "terminated" if self.is_stopped else None

    def _rate(self, step: int) -> float:
        return learning_rate(self.settings.schedule, self.run.recipe.optimizer.learning_rate, step, self.settings.steps)

    def _warn(self, sentence: str) -> None:
        for action in self.run.actions:
            action.warned(sentence)
