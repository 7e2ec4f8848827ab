"""Which held-out loss is the best, and whether a run has stopped improving: pure."""

from __future__ import annotations

import math

from xttsbench.records.base import Record
from xttsbench.xtts.training_settings import EarlyStoppingSettings


class StoppingState(Record):
    """What is carried from evaluation to evaluation, and through a checkpoint."""

    lowest: float | None = None
    """The lowest held-out loss so far; ``None`` before the first."""
    improved_to: float | None = None
    """The loss at the last improvement: many small falls are one where they add up to it."""
    without_improvement: int = 0
    """Evaluations in a row without one."""

    def after(self, loss: float, settings: EarlyStoppingSettings | None) -> StoppingState:
        """Return the state after an evaluation; a loss that is not finite is no improvement."""
        if not self.is_best(loss):
            return self.model_copy(update={"without_improvement": self.without_improvement + 1})
        least = settings.min_improvement if settings else 0.0
        improved = self.improved_to is None or loss < self.improved_to - least
        return StoppingState(
            lowest=loss,
            improved_to=loss if improved else self.improved_to,
            without_improvement=0 if improved else self.without_improvement + 1,
        )

    def is_best(self, loss: float) -> bool:
        """Whether a held-out loss is lower than all before it."""
        return math.isfinite(loss) and (self.lowest is None or loss < self.lowest)

    def is_over(self, settings: EarlyStoppingSettings | None) -> bool:
        """Whether the run is to end."""
        return settings is not None and self.without_improvement >= settings.patience
