"""Random numbers of a script's step that are the same ones whether it runs op by op or as one graph.

An op that draws numbers is given a seed where it is made: op by op another one in each step, in a graph the one that it
was traced with. So the losses of a step that draws (a latent vector, noise) differ between the two though they do the
same. Where training is compared, each op that names no seed of its own draws by its place in the step and by the step's
number, which a variable holds: a graph reads it whenever it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.framework import random_seed
from tensorflow.python.ops import gen_random_ops

_OURS: Final = 0x5EED5EED
"""The first of the two seeds of an op that draws by its place; the second is that place."""


class StepDraws:
    """Numbers the draws of a step; one that is fewer, or comes elsewhere, is another."""

    def __init__(self) -> None:
        self._place = 0
        self._traced_at: int | None = None
        with tf.init_scope():
            self.step = tf.Variable(0, dtype=tf.int32, trainable=False)
            """The step's number; none of the script's variables."""

    def install(self) -> None:
        """Have everything drawn so from now on, to the end of the process."""
        original = random_seed.get_seed

        def get_seed(op_seed: Any) -> Any:
            if op_seed is not None:
                return original(op_seed)
            self._place += 1
            return _OURS, self._place

        random_seed.get_seed = get_seed
        for name, stateless in _STATELESS.items():
            setattr(gen_random_ops, name, self._by_place(getattr(gen_random_ops, name), stateless))

    def _by_place(self, original: Callable[..., Any], stateless: Callable[..., Any]) -> Callable[..., Any]:
        def draw(*args: Any, seed: int = 0, seed2: int = 0, name: str | None = None, **kwargs: Any) -> Any:
            if seed != _OURS:
                return original(*args, seed=seed, seed2=seed2, name=name, **kwargs)
            return stateless(tf.stack([seed2, self.step]), *args, **kwargs)

        return draw

    def next_step(self, *_: Any) -> None:
        """A step begins."""
        self.step.assign_add(1)
        self._place, self._traced_at = 0, None

    def next_trace(self) -> None:
        """A function is traced: a second time, as where it makes variables, its ops are the same ones."""
        if self._traced_at is None:
            self._traced_at = self._place
        self._place = self._traced_at


def _normal(seed: Any, shape: Any, dtype: Any) -> Any:
    return tf.random.stateless_normal(shape, seed, dtype=dtype)


def _truncated(seed: Any, shape: Any, dtype: Any) -> Any:
    return tf.random.stateless_truncated_normal(shape, seed, dtype=dtype)


def _uniform(seed: Any, shape: Any, dtype: Any) -> Any:
    return tf.random.stateless_uniform(shape, seed, dtype=dtype)


def _whole(seed: Any, shape: Any, minval: Any, maxval: Any) -> Any:
    return tf.random.stateless_uniform(shape, seed, minval, maxval, dtype=tf.convert_to_tensor(maxval).dtype)


_STATELESS: Final[Mapping[str, Callable[..., Any]]] = {
    "random_standard_normal": _normal,
    "truncated_normal": _truncated,
    "random_uniform": _uniform,
    "random_uniform_int": _whole,
}
"""Ops that draw -> the same from a seed alone; others go on as they do."""
