"""A bound on what repeated work takes of a processor: what is dear is done more rarely."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

_SAVED_S: Final = 60.0


class Pace:
    """Says when work is due again, so that over time it takes at most ``share`` of one processor.

    The work is done in a ``with`` block. What it takes is drawn from an allowance that grows by ``share`` of each
    second up to a minute's worth, so that what is slow for once does not put off the next time for long.

    Args:
        share: of one processor, 0..1.
        least_s: seconds from one time to the next, at least.
        given_s: seconds' worth of the allowance that there is at the start.
        clock: seconds.
        cost: processor seconds of the calling thread.
    """

    def __init__(
        self,
        share: float,
        least_s: float,
        given_s: float = 10.0,
        *,
        clock: Callable[[], float] = time.monotonic,
        cost: Callable[[], float] = time.thread_time,
    ) -> None:
        self._share, self._least_s = share, least_s
        self._clock, self._cost = clock, cost
        self._next_s = self._known_s = clock()
        self._left_s, self._before_s = share * given_s, 0.0

    def due(self) -> bool:
        """Whether it may be done now."""
        now_s = self._clock()
        if self._left_s < self._share * _SAVED_S:
            self._left_s += (now_s - self._known_s) * self._share
        self._known_s = now_s
        return now_s >= self._next_s and self._left_s >= 0

    def __enter__(self) -> None:
        # A hair less than asked for, so that work at each tenth tick is not put off to the eleventh.
        self._next_s = self._clock() + 0.98 * self._least_s
        self._before_s = self._cost()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left_s -= self._cost() - self._before_s
