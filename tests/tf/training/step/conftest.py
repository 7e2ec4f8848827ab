"""A model that is traced in a second, batches of noise that can be divided, and a trainer of both; also for a child."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.shipped import shipped
from xttsbench.training.state import TrainingState
from xttsbench.training.step import Replicas, Shape, TrainingStep, make_strategy
from xttsbench.xtts.data.batches import LossCounts
from xttsbench.xtts.data.metadata import VOCABULARY
from xttsbench.xtts.recipe import Recipe, load_recipe

TINY = load_recipe(shipped("training", "tiny"))
N_MELS, ROWS, FRAMES, CHARACTERS, REFERENCE = 5, 8, 24, 8, 8
SEED, RATE = 7, 1e-3


def small_recipe(*, optimizer: dict[str, float] | None = None, **training: Any) -> Recipe:
    """Return tiny's recipe with one guided and one free block, dropout, and what is given of ``training``."""
    sizes = {"d_model": 16, "feed_forward": 32, "prenet": (16,), "latents": 3, "conditioning_layers": 0}
    sizes |= {"layers": 2, "guided_layers": 1}
    return TINY.model_copy(
        update={
            "features": TINY.features.model_copy(update={"n_mels": N_MELS}),
            "model": TINY.model.model_copy(update=sizes),
            # Adam divides by a gradient's own size: with a smaller epsilon, rounding decides where one is nearly 0.
            "optimizer": TINY.optimizer.model_copy(update={"learning_rate": RATE, "epsilon": 1e-5} | (optimizer or {})),
            "training": TINY.training.model_copy(update=training),
        }
    )


def noise_batch(seed: int, rows: int = ROWS, frames: int = FRAMES) -> dict[str, np.ndarray]:
    """Return a global batch of NumPy arrays; the reference of some rows is cut from themselves."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(4, CHARACTERS + 1, rows).astype(np.int32)
    text = np.where(np.arange(CHARACTERS) < lengths[:, None], rng.integers(1, VOCABULARY, (rows, CHARACTERS)), 0)
    return {
        "text": text.astype(np.int32),
        "text_length": lengths,
        "mel": rng.normal(-5, 2, (rows, frames, N_MELS)).astype(np.float32),
        "mel_length": rng.integers(frames - 9, frames + 1, rows).astype(np.int32),
        "reference": rng.normal(-5, 2, (rows, REFERENCE, N_MELS)).astype(np.float32),
        "reference_start": np.where(np.arange(rows) % 3 == 1, 3, -1).astype(np.int32),
    }


def counted(batch: dict[str, np.ndarray]) -> LossCounts:
    """Return the counts of a batch, one frame and one pair after the other."""
    target = pairs = steps = 0
    for row, length in enumerate(batch["mel_length"].tolist()):
        start = int(batch["reference_start"][row])
        target += sum(not (start >= 0 and start <= frame < start + REFERENCE) for frame in range(length))
        steps += -(-length // 4)
        pairs += -(-length // 4) * int(batch["text_length"][row])
    return LossCounts(float(target), float(steps), float(pairs))


@cache
def the_strategy(kind: str) -> tf.distribute.Strategy:
    """Return the process's only strategy of a kind: two of them would number their collective operations alike."""
    return make_strategy(kind)


class Trainer:
    """A state and its step, fed with global batches."""

    def __init__(
        self, *, kind: str = "one", mode: str = "graph", precision: str = "float32", seed: int = SEED, **recipe: Any
    ) -> None:
        self.recipe = small_recipe(**recipe)
        strategy = the_strategy(kind)
        self.replicas = Replicas(strategy)
        self.state = TrainingState(self.recipe, strategy, precision, seed)
        self.step = TrainingStep(self.state, self.recipe, self.replicas, mode=mode, seed=seed)
        self.start = self.state.weights(), self.state.optimizer()
        self.shape = Shape(ROWS // self.parts, FRAMES, CHARACTERS, REFERENCE)

    @property
    def parts(self) -> int:
        return self.recipe.training.accumulation * self.replicas.count

    def __call__(self, batch: dict[str, np.ndarray], number: int, *, rate: float = RATE, **options: Any) -> list[float]:
        """Take a step; return total, mel, stop, guided, norm and whether it was applied."""
        rows = len(batch["text"]) // self.parts

        def part(micro: int, local: int) -> dict[str, tf.Tensor]:
            first = rows * (micro * self.replicas.count + self.replicas.first_local + local)
            with tf.device(self.replicas.local[local]):
                return {key: tf.constant(value[first : first + rows]) for key, value in batch.items()}

        micro_batches = [
            [part(micro, local) for local in range(len(self.replicas.local))]
            for micro in range(self.recipe.training.accumulation)
        ]
        result = self.step(micro_batches, counted(batch), number=number, learning_rate=rate, **options)
        return [float(value) for value in result]

    def reset(self) -> None:
        """Go back to the start, with what is compiled."""
        self.state.restore(*self.start)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all of the state."""
        return self.state.weights() | self.state.optimizer()


@cache
def shared_trainer(mode: str) -> Trainer:
    """Return the process's trainer of a mode."""
    return Trainer(mode=mode, ema_decay=0.25)


def three_steps(trainer: Trainer) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return what three steps said, ``[3, 6]``, and the weights that they left."""
    said = np.array([trainer(noise_batch(number), number) for number in range(3)])
    return said, trainer.state.weights()


@pytest.fixture(scope="session")
def make_trainer() -> Callable[..., Trainer]:
    return Trainer


@pytest.fixture
def trainer_of() -> Callable[[str], Trainer]:
    """``trainer_of(mode)``: a trainer at its start, with averages; the same one for all tests, for it is compiled."""

    def trainer_of(mode: str) -> Trainer:
        trainer = shared_trainer(mode)
        trainer.reset()
        return trainer

    return trainer_of


@pytest.fixture(scope="session")
def make_batch() -> Callable[..., dict[str, np.ndarray]]:
    return noise_batch


@pytest.fixture(scope="session")
def make_recipe() -> Callable[..., Recipe]:
    return small_recipe


@pytest.fixture(scope="session")
def counts_of() -> Callable[[dict[str, np.ndarray]], LossCounts]:
    return counted


@pytest.fixture(scope="session")
def run_three() -> Callable[[Trainer], tuple[np.ndarray, dict[str, np.ndarray]]]:
    return three_steps


@pytest.fixture(scope="session")
def one_replica() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """What three steps of one replica said in graph mode, and its weights: what all others are held against."""
    trainer = shared_trainer("graph")
    trainer.reset()
    return three_steps(trainer)


@pytest.fixture(scope="session")
def assert_same() -> Callable[..., None]:
    """``assert_same(one, other, atol=0)``: arrays of the same names and values; bit for bit where there is no atol."""

    def check(one: dict[str, np.ndarray], other: dict[str, np.ndarray], atol: float = 0.0) -> None:
        assert one.keys() == other.keys()
        for name, array in one.items():
            np.testing.assert_allclose(other[name], array, rtol=0, atol=atol, err_msg=name)

    return check
