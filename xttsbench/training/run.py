"""What a training run is made of: made outside, and put together by the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from xttsbench.training.actions import Action
from xttsbench.training.checkpoints import Checkpoints
from xttsbench.training.origin import Origin
from xttsbench.training.position import Position
from xttsbench.xtts.recipe import Recipe

if TYPE_CHECKING:
    from xttsbench.training.state import TrainingState
    from xttsbench.training.step import TrainingStep
    from xttsbench.training.stream import Fetched
    from xttsbench.training.workers import Workers


class HeldOut(Protocol):
    """What an evaluation gives."""

    loss: float
    mel: float
    stop: float
    guided: float
    clips: int
    metrics: Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run is made of."""

    recipe: Recipe
    origin: Origin
    """What a checkpoint must be of to be gone on with."""
    state: TrainingState
    step: TrainingStep
    batches: Callable[[Position], Iterator[Fetched]]
    """Makes the stream from a position on; asked again where the run goes back."""
    checkpoints: Checkpoints
    workers: Workers
    evaluate: Callable[[], HeldOut] | None = None
    """Asked for the held-out loss; ``None`` where nothing is held out."""
    actions: Sequence[Action] = ()
    stop: Callable[[], bool] = lambda: False
    """Looked at after each step, or at the end of each interval where several processes have to agree."""
