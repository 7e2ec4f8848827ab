"""What a session evaluates with: the loss on held-out clips, and at the end what the model speaks."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from xttsbench.errors import InvalidInputError
from xttsbench.records.training import HistoryLine, Spoken, TrainJob
from xttsbench.training.evaluation import Hearing, HeldOutLoss, TensorBoard
from xttsbench.training.loop import HeldOut
from xttsbench.training.state import TrainingState
from xttsbench.xtts.data import feature_cache
from xttsbench.xtts.data.speech_data import SpeechData, read_speech_data
from xttsbench.xtts.loaders import CACHED
from xttsbench.xtts.recipe import Recipe


class Evaluating:
    """The held-out clips of a job, and what is done with them.

    Args:
        job: what is trained.
        recipe: of the job.
        data: the clips that are trained on.
        tell: passes on what there is to tell.
    """

    def __init__(self, job: TrainJob, recipe: Recipe, data: SpeechData, tell: Callable[[HistoryLine], None]) -> None:
        self._job, self._recipe, self._data, self._tell = job, recipe, data, tell
        rate = recipe.features.sample_rate_hz
        self._held_out: SpeechData | None = None
        try:
            self._held_out = read_speech_data(Path(job.data), sample_rate_hz=rate, split="eval", seed=job.seed)
        except InvalidInputError as error:  # that all clips can be read was seen before the start
            tell(HistoryLine(session=0, warned=f"no held-out loss: {error}"))

    def loss(self, state: TrainingState) -> Callable[[], HeldOut] | None:
        """What gives the held-out loss of a state; ``None`` where no clip is held out."""
        if self._held_out is None:
            return None
        loader = str(self._job.config["loader"])
        root = None if self._job.features is None else Path(self._job.features)
        cache = feature_cache.open_cache(self._held_out, self._recipe.features, root) if loader in CACHED else None
        # To the loop an evaluation is any record of these fields; that ours cannot be changed is more than it asks for.
        loss = HeldOutLoss(state, self._recipe, self._held_out, loader=loader, cache=cache, seed=self._job.seed)
        return cast(Callable[[], HeldOut], loss)

    def listen(self, state: TrainingState, step: int, board: TensorBoard) -> None:
        """Let the state's model speak after so many steps, and tell what was heard; a failure costs no training."""
        began = time.perf_counter()
        try:
            hearing = Hearing(state, self._recipe, self._data, self._held_out, Path(self._job.directory), board)
            found = hearing(step)
        except (InvalidInputError, OSError) as error:
            self._tell(HistoryLine(session=0, warned=f"the model's speech was not evaluated: {error}"))
            return
        spoken = Spoken(step=step, metrics=found.metrics())
        self._tell(HistoryLine(session=0, spoken=spoken, took_s=time.perf_counter() - began))
