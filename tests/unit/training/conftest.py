"""What the tests of the trainer's plain parts share: an origin and a whole run made of fakes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from xttsbench.shipped import shipped
from xttsbench.training.checkpoints import Checkpoints
from xttsbench.training.course import Origin, Position
from xttsbench.training.loop import Action, Run, train
from xttsbench.xtts.data.metadata import VOCABULARY
from xttsbench.xtts.recipe import TrainingSettings, load_recipe

TINY = load_recipe(shipped("training", "tiny"))
BATCHES_AN_EPOCH = 5


class Killed(BaseException):
    """The process ends here, with no time for anything."""


def make_origin(**changes: Any) -> Origin:
    fields = {name: getattr(TINY, name) for name in ("features", "model", "loss", "batches", "optimizer")}
    schedule, ema_decay = TINY.training.schedule, TINY.training.ema_decay
    fields |= {"schedule": schedule, "ema_decay": ema_decay, "vocabulary": VOCABULARY}
    return Origin(**{**fields, "precision": "float32", "seed": 0, "data_sha256": "0" * 64, **changes})


class State:
    """One weight, and a counter beside it."""

    loss_scale = None

    def __init__(self) -> None:
        self.weight, self.updates = np.float32([8.0]), np.int64(0)

    def weights(self) -> dict[str, Any]:
        return {"a/w": self.weight.copy()}

    def optimizer(self) -> dict[str, Any]:
        return {"updates": np.asarray(self.updates)}

    def restore(self, weights: Any, optimizer: Any) -> None:
        self.weight, self.updates = weights["a/w"].copy(), np.int64(optimizer["updates"])


@dataclass
class Trainee:
    """A run of fakes: ``state.weight`` falls step by step, by what depends on batch, number and learning rate."""

    directory: Path
    settings: dict[str, Any]
    killed_at: int | None = None
    """Number of the step in which the process is killed."""
    unusual: Callable[[int, float], dict[str, Any] | None] = lambda number, rate: None
    """What a step gives in place of what it would, by its number and learning rate."""
    held_out: Callable[[int], float] | None = None
    """The held-out loss by the steps that ended."""
    stopped_after: int | None = None
    origin: Origin = field(default_factory=make_origin)
    is_chief: bool = True
    others: tuple[float, ...] = ()
    """What other processes give when all have to agree."""

    def __post_init__(self) -> None:
        self.state, self.calls, self.rates = State(), [], []
        self.checkpoints = Checkpoints(self.directory / "checkpoints", self.settings.get("keep_checkpoints", 3))

    def train(self) -> Any:
        return train(self._run())

    def said(self, name: str) -> list[Any]:
        """What the actions were told by calls of a name."""
        return [told for called, *told in self.calls if called == name]

    @property
    def intervals(self) -> list[Any]:
        return [interval.model_copy(update={"wall_s": 0.0}) for (interval,) in self.said("interval")]

    @property
    def warnings(self) -> list[str]:
        return [sentence for (sentence,) in self.said("warned")]

    def _run(self) -> Run:
        recorder = Action()
        for name in [name for name in vars(Action) if not name.startswith("_")]:
            setattr(recorder, name, lambda *told, name=name: self.calls.append((name, *told)))
        recipe = TINY.model_copy(
            update={
                "training": TrainingSettings(**self.settings),
                "optimizer": TINY.optimizer.model_copy(update={"learning_rate": 0.1}),
            }
        )
        return Run(
            recipe=recipe,
            origin=self.origin,
            state=self.state,
            step=self._step,
            batches=self._batches,
            checkpoints=self.checkpoints,
            workers=SimpleNamespace(
                is_chief=self.is_chief,
                are_several=bool(self.others) or not self.is_chief,
                gather=lambda value: [value, *self.others],
            ),
            evaluate=self._evaluate if self.held_out else None,
            actions=[recorder],
            stop=lambda: self.stopped_after is not None and self._ended >= self.stopped_after,
        )

    def _batches(self, position: Position) -> Iterator[Any]:
        step, epoch, batch = position.step, position.epoch, position.batch
        while True:
            step, ids, now = step + 1, (f"{epoch}.{batch}", "x"), float(batch)
            epoch, batch = (epoch, batch + 1) if batch + 1 < BATCHES_AN_EPOCH else (epoch + 1, 0)
            yield SimpleNamespace(
                position=Position(step=step, epoch=epoch, batch=batch),
                ids=ids,
                samples=2,
                frames=20,
                valid_frames=15,
                micro_batches=((now,),),
                counts=None,
            )

    def _step(self, micro_batches: Any, counts: Any, *, number: int, learning_rate: float) -> Any:
        if number == self.killed_at:
            raise Killed
        self._ended = number + 1
        self.rates.append(learning_rate)
        loss = float(self.state.weight[0])
        given = {"total": loss, "mel": loss / 2, "stop": 1.0, "guided": 0.25, "gradient_norm": 3.0, "applied": True}
        given |= self.unusual(number, learning_rate) or {}
        if given["applied"]:
            self.state.weight *= np.float32(1 - learning_rate * (1 + micro_batches[0][0] / 100 + number / 1000))
            self.state.updates += 1
        return tuple(given.values())

    def _evaluate(self) -> Any:
        loss = self.held_out(self._ended)
        return SimpleNamespace(loss=loss, mel=loss, stop=0.0, guided=0.0, clips=3)


@pytest.fixture
def origin() -> Callable[..., Origin]:
    return make_origin


@pytest.fixture
def killed() -> type[BaseException]:
    return Killed


@pytest.fixture
def trainee(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Trainee]:
    """Makes runs in one directory, so that each goes on with the one before; ``settings`` are the recipe's."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # it is for power cuts, and takes most of the time here

    def make(directory: str = "run", *, settings: dict[str, Any], **fields: Any) -> Trainee:
        return Trainee(tmp_path / directory, settings, **fields)

    return make
