"""How long a recipe trains and how it is kept on course: schedule, accumulation, averages, checkpoints, stopping."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from xttsbench.records.base import Record


class ScheduleSettings(Record):
    """The learning rate over the steps, as shares of ``optimizer.learning_rate``, its highest value."""

    kind: Literal["constant", "noam", "cosine"] = "constant"
    """After the warm-up: the same; falling with the root of the step (Vaswani et al., 2017); half a cosine
    (Loshchilov and Hutter, 2017)."""
    warmup_steps: int = Field(0, ge=0)
    """Steps in which it rises from 0 along a straight line."""
    final_share: float = Field(0.0, ge=0, le=1)
    """Of the highest rate, where the cosine ends."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.kind == "noam" and not self.warmup_steps:
            raise ValueError("noam needs warmup_steps of 1 or more, for its highest rate is at their end")
        return self


class EarlyStoppingSettings(Record):
    """When a run ends before its steps are over: the held-out loss has not improved for so long."""

    patience: int = Field(gt=0)
    """Evaluations in a row without an improvement."""
    min_improvement: float = Field(0.0, ge=0)
    """A smaller fall of the loss is none."""


class HealthSettings(Record):
    """What is done about losses and gradients that are not finite, and about a loss that blows up.

    A step whose gradient is not finite is left out by all replicas. After too many in a row, or where the mean loss of
    an interval is far above the best one, the run goes back to the last whole checkpoint with a lower learning rate.
    """

    skipped_in_a_row: int = Field(10, gt=0)
    blow_up: float = Field(4.0, gt=1)
    """An interval's mean loss over the lowest one so far that counts as a blow-up."""
    rate_factor: float = Field(0.5, gt=0, le=1)
    """On the learning rate, at each time that the run goes back."""
    rollbacks: int = Field(3, ge=0)
    """How often at most; then the run ends with an error."""


class TrainingSettings(Record):
    """A training run but for its model, batches and data."""

    steps: int = Field(1200, gt=0)
    """Updates of the weights, those left out included."""
    accumulation: int = Field(1, gt=0)
    """Batches of a replica whose gradients make one update."""
    schedule: ScheduleSettings = ScheduleSettings()
    ema_decay: float | None = Field(None, gt=0, lt=1)
    """Of an exponential moving average of the weights, which is evaluated and synthesised with in their place."""
    gradient_checkpointing: bool = False
    """Compute the decoder's blocks again in the backward pass instead of keeping what they computed."""
    log_every: int = Field(20, gt=0)
    """Steps of an interval: losses are fetched from the device at its end and not before."""
    evaluate_every: int = Field(200, gt=0)
    checkpoint_every: int = Field(200, gt=0)
    keep_checkpoints: int = Field(3, gt=0)
    """Newest ones that are kept, beside the best."""
    early_stopping: EarlyStoppingSettings | None = None
    health: HealthSettings = HealthSettings()
