"""The size of batches that fits into memory, looked for by real steps before the session begins."""

from __future__ import annotations

from functools import partial
from typing import Final

from xttsbench.records.training import Fitted, TrainJob
from xttsbench.training.memory import ends
from xttsbench.training.memory_probe import Plan, fit_tokens
from xttsbench.training.order import clip_frames, planned_epoch
from xttsbench.worker import devices
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.recipe import Recipe

_UPDATES: Final = 8
"""Of an epoch at least, unless the recipe's own batches leave fewer: many updates teach more than large ones."""


def fitted(job: TrainJob, recipe: Recipe, data: SpeechData, *, parts: int) -> Fitted:
    """Return the largest ``tokens_per_batch`` whose steps fit into the memory of the device.

    Args:
        job: what is trained.
        recipe: of the job.
        data: the clips to train on, which say what lengths there are.
        parts: micro-batches of an update.

    Raises:
        InvalidInputError: a batch of a single clip does not fit.
        XttsbenchError: a step failed otherwise.
    """
    epoch = planned_epoch(data, recipe, recipe.batches, job.seed, epoch=0)
    own = max(len(batch.clips) * batch.frames for batch in epoch)
    wanted = max(own, int(clip_frames(data, recipe).sum()) // (_UPDATES * parts))
    plan = Plan(recipe, str(job.config["mode"]), str(job.config["precision"]), job.strategy)
    found = fit_tokens(
        plan,
        ends(epoch),
        limit_bytes=devices.memory_bytes(job),
        at_most=wanted,
        prepare=partial(devices.configure, job),
    )
    return Fitted(**found._asdict())


def with_tokens(recipe: Recipe, tokens: int) -> Recipe:
    """Return the recipe with batches of so many mel frames."""
    batches = recipe.batches.model_copy(update={"batch_size": None, "tokens_per_batch": tokens})
    return recipe.model_copy(update={"batches": batches})
