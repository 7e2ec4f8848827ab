"""What keeping the order costs parallel calls whose times vary: a slow one holds up those behind it.

Pure. There is no closed form for calls of any distribution that are handed on in order; the recurrence below is exact
for one sequence of times, and is run on a long one drawn from those that were measured.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

_CALLS: Final = 4_000
"""Calls of the simulated sequence."""
_FEW: Final = 8
"""Fewer times say too little of how they vary."""


@lru_cache(maxsize=256)
def in_order(times_s: tuple[float, ...], parallelism: int, seed: int = 0) -> float:
    """How many times as long calls take that are handed on in their order as those that are not, at least 1.

    Call ``i`` begins when call ``i - p`` was handed on, which is when it and all before it are ready: a result that is
    ready keeps its slot until then (as a ``tf.data`` map does). The time without order is the mean over ``p``.

    Args:
        times_s: measured times of single calls, seconds.
        parallelism: calls at once, ``p``.
        seed: of the draw.
    """
    if parallelism <= 1 or len(times_s) < _FEW or sum(times_s) <= 0:
        return 1.0
    drawn = np.random.default_rng(seed).choice(np.asarray(times_s, dtype=np.float64), _CALLS)
    handed_on_s = [0.0] * parallelism  # of the last p calls
    last_s = 0.0
    for number, call_s in enumerate(drawn):
        last_s = max(last_s, handed_on_s[number % parallelism] + float(call_s))
        handed_on_s[number % parallelism] = last_s
    return max(1.0, last_s * parallelism / float(drawn.sum()))
