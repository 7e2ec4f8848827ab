"""What is trained, for how many steps and blocks: the job of both sides, which one of them hands to the real trainer.

An interval is the stretch of steps at whose end the losses are fetched, on both sides. The first one is warm-up, the
following ones are timed, and the run that the job describes is one longer, so that its end, with an evaluation and a
checkpoint, is never reached.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from xttsbench.records.training import TrainJob
from xttsbench.workflows.bundled import TrainRequest, prepare_training

CLIPS, MIN_S, MAX_S = 224, 2.0, 6.0
"""Clips of two to six seconds fall into three of the recipes' buckets."""

SEED = 0


@dataclass(frozen=True)
class Work:
    """How much of a recipe is measured; the defaults keep a process on two cores at some ten seconds."""

    recipe: str
    interval_steps: int
    intervals: int  # timed ones
    blocks: int
    eager_blocks: int  # the first blocks, in which the eager loop takes part; one interval of it is enough

    @property
    def steps(self) -> int:
        """Return the length of the run: the first interval, the timed ones, and the one that is never reached."""
        return (1 + self.intervals + 1) * self.interval_steps

    def request(self, mode: str, data: Path) -> TrainRequest:
        """Return what ``xttsbench train`` would be asked for; all else is as it has it by default.

        Args:
            mode: of the step, ``graph``, ``xla`` or ``eager``.
            data: directory of the clips.
        """
        return TrainRequest(
            recipe=self.recipe,
            data=data,
            steps=self.steps,
            checkpoint_every=self.steps,
            seed=SEED,
            listen=False,
            settings={"mode": mode, "training.log_every": self.interval_steps, "training.evaluate_every": self.steps},
        )

    def job(self, mode: str, data: Path, directory: Path) -> TrainJob:
        """Return what the process that trains is told; the clips' features are made where they are not there.

        Args:
            mode, data: as :meth:`request` has them.
            directory: where the trainer writes its first checkpoint.
        """
        request = self.request(mode, data)
        return prepare_training(request, {}, directory).job(request, directory)


WORKS = {
    "tiny": Work("tiny", interval_steps=20, intervals=3, blocks=8, eager_blocks=4),
    "small": Work("small", interval_steps=3, intervals=3, blocks=4, eager_blocks=2),
}


def quick(work: Work) -> Work:
    """Return a piece of work that shows whether all runs, and no more."""
    return replace(work, interval_steps=2, intervals=2, blocks=2, eager_blocks=1)
