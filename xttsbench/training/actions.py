"""What happens beside the loop: logging, evaluating, watching. The loop calls, and knows none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xttsbench.records.training import CheckpointEntry, Ended, Evaluated, Interval
    from xttsbench.training.step import StepResult
    from xttsbench.training.stream import Fetched


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
        """It is there."""

    def stepped(self, result: StepResult) -> None:
        """The call of the step has returned; on a GPU its work may be going on."""

    def interval(self, interval: Interval) -> None:
        """``log_every`` steps ended and their losses were fetched, so all their work is done."""

    def evaluated(self, evaluated: Evaluated) -> None:
        """The held-out loss is known."""

    def saved(self, entry: CheckpointEntry) -> None:
        """A checkpoint is whole and in the manifest."""

    def warned(self, sentence: str) -> None:
        """Something went wrong that the run outlives: a step left out, a roll-back, a checkpoint not written."""

    def ended(self, ended: Ended) -> None:
        """The last call, however the run ended but for an exception."""
