"""Whether a run is on course: learning rate, health, whether it still improves. Pure, the same on every worker."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xttsbench.records.base import Record
from xttsbench.xtts.recipe import EarlyStoppingSettings, HealthSettings, ScheduleSettings


def learning_rate(settings: ScheduleSettings, highest: float, step: int, steps: int) -> float:
    """Return the learning rate of a step.

    It rises along a straight line to ``highest``, which the last of the ``warmup_steps`` has, and the first is above 0.
    After that it stays (``constant``), falls as ``sqrt(warmup_steps / n)`` in the n-th step (``noam``, Vaswani et al.,
    "Attention is all you need", 2017), or takes half a period of a cosine down to ``final_share * highest``, which it
    would have after the last step (``cosine``, Loshchilov and Hutter, "SGDR", 2017).

    Args:
        settings: kind, length of the warm-up, and where the cosine ends.
        highest: the highest rate.
        step: number of the step from 0: the steps that ended before it.
        steps: steps of the whole run.
    """
    warmup = settings.warmup_steps
    if step < warmup:
        return highest * (step + 1) / warmup
    if settings.kind == "noam":
        return highest * math.sqrt(warmup / (step + 1))
    if settings.kind == "cosine":
        done = min((step - warmup) / max(steps - warmup, 1), 1.0)
        return highest * (settings.final_share + (1 - settings.final_share) * (1 + math.cos(math.pi * done)) / 2)
    return highest


class HealthState(Record):
    """What is carried from step to step, and through a checkpoint."""

    skipped_in_a_row: int = 0
    """Steps left out at the end of what was seen so far."""
    longest_skipped: int = 0
    """The longest row of them since that was judged last."""
    lowest: float | None = None
    """The lowest mean loss of an interval; ``None`` before the first."""
    rollbacks: int = 0
    """How often the run went back."""

    def after_steps(self, applied: Sequence[bool]) -> HealthState:
        """Return the state after further steps, of which each was applied or left out."""
        in_a_row, longest = self.skipped_in_a_row, self.longest_skipped
        for was_applied in applied:
            in_a_row = 0 if was_applied else in_a_row + 1
            longest = max(longest, in_a_row)
        return self.model_copy(update={"skipped_in_a_row": in_a_row, "longest_skipped": longest})

    def judged(self) -> HealthState:
        """Return the state after :func:`skipping` was asked."""
        return self.model_copy(update={"longest_skipped": 0})

    def after_interval(self, loss: float | None) -> HealthState:
        """Return the state after an interval of that mean loss; ``None`` where no step of it was applied."""
        if loss is None or (self.lowest is not None and self.lowest <= loss):
            return self
        return self.model_copy(update={"lowest": loss})

    def rolled_back(self, current: HealthState) -> HealthState:
        """Return this state of a checkpoint as a run has it that went back to it from ``current``."""
        return self.model_copy(update={"rollbacks": current.rollbacks + 1, "skipped_in_a_row": 0, "longest_skipped": 0})

    def rate(self, settings: HealthSettings) -> float:
        """Return what the learning rate is multiplied with."""
        return settings.rate_factor**self.rollbacks


def skipping(state: HealthState, settings: HealthSettings) -> str | None:
    """Return what was seen where too many steps in a row were left out, else ``None``."""
    if state.longest_skipped < settings.skipped_in_a_row:
        return None
    return f"{state.longest_skipped} steps in a row had a gradient or a loss that was not finite"


def blown_up(state: HealthState, settings: HealthSettings, loss: float | None) -> str | None:
    """Return what was seen where an interval's mean loss is far above the lowest one before it, else ``None``."""
    if loss is None or state.lowest is None or loss <= settings.blow_up * state.lowest:
        return None
    return (
        f"the mean loss rose to {loss:.4g}, more than {settings.blow_up:g} times the lowest so far, {state.lowest:.4g}"
    )


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
