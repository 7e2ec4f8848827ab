"""Calls of Python functions held up at random, so that parallel ones end in another order than they began.

A function that keeps count, or draws its data from something shared, gives other data then; one that computes from its
arguments alone does not. On a quiet machine parallel calls may keep their order by luck for a long while.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from xttsbench.pipeline.graph.library import FunctionLibrary
from xttsbench.pipeline.graph.registry import lookup, recording

MOST_S: Final = 0.004
"""Longest that one call is held up."""
TOTAL_S: Final = 1.5
"""Longest that the calls of all functions are held up together; later ones are not."""


@contextmanager
def jittered(graph: Any, seed: int, *, most_s: float = MOST_S, total_s: float = TOTAL_S) -> Iterator[int]:
    """While the block runs, hold the calls of the graph's Python functions up before their work.

    Generators are left alone: their elements are asked for one after the other. What is registered for a token when
    the block begins is what is held up, the front of a pool of processes as well.

    Yields:
        How many functions are held up.
    """
    tokens = list(_functions(FunctionLibrary(graph.library.function).all_tokens()))
    delay = _Delay(seed, most_s, total_s)
    with recording(dict.fromkeys(tokens, delay.before)):
        yield len(tokens)


def _functions(tokens: Iterable[str]) -> Iterator[str]:
    for token in tokens:
        found = lookup(token)
        if found is not None and found.kind != "generator":
            yield token


class _Delay:
    """Random delays from one seed, until they add up to the whole that may be spent."""

    def __init__(self, seed: int, most_s: float, total_s: float) -> None:
        self._random = random.Random(seed)
        self._most_s = most_s
        self._left_s = total_s
        self._lock = threading.Lock()

    def before(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The function that waits and then does what the original does."""

        def held_up(*arguments: Any) -> Any:
            delay_s = self._next_s()
            if delay_s > 0.0:
                time.sleep(delay_s)
            return original(*arguments)

        return held_up

    def _next_s(self) -> float:
        with self._lock:
            # Every second call at once and the others late: neighbours in time overtake one another.
            delay_s = self._random.choice((0.0, self._random.uniform(0.25, 1.0) * self._most_s))
            delay_s = min(delay_s, self._left_s)
            self._left_s -= delay_s
            return delay_s
