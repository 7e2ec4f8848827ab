"""Random numbers of a script's step that are the same ones whether it runs op by op or as one graph.

An op that draws numbers is given a seed where it is made: op by op another one in each step, in a graph the one that it
was traced with. So the losses of a step that draws (a latent vector, noise) differ between the two though they do the
same. Where training is compared, each op is given the number of its place in the step instead. TensorFlow keeps how
many numbers were drawn with a seed, so that a further step goes on, in either form.
"""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import random_seed


class StepDraws:
    """Numbers the draws of a step that name no seed of their own; one that is fewer or comes elsewhere is another.

    Args:
        seed: of all of them.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._number = 0
        self._traced_at: int | None = None

    def install(self) -> None:
        """Give out these seeds from now on, to the end of the process."""
        original = random_seed.get_seed

        def get_seed(op_seed: Any) -> Any:
            if op_seed is not None:
                return original(op_seed)
            self._number += 1
            return self._seed, self._number

        random_seed.get_seed = get_seed

    def next_step(self, *_: Any) -> None:
        """A step begins."""
        self._number, self._traced_at = 0, None

    def next_trace(self) -> None:
        """A function is traced: a second time, as where it makes variables, its ops are the same ones."""
        if self._traced_at is None:
            self._traced_at = self._number
        self._number = self._traced_at
