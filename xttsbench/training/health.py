"""Whether a run is on course, judged from what an interval's steps were: pure, and the same on every worker."""

from __future__ import annotations

from collections.abc import Sequence

from xttsbench.records.base import Record
from xttsbench.xtts.training_settings import HealthSettings


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
        """Return this state of a checkpoint as the run goes on with that goes back to it from ``current``."""
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
