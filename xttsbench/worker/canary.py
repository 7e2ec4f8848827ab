"""The canary: a fixed piece of known work, run before and after each turn of a process.

It gets slower with the processor's clock, a busy sibling thread of the core, or a crowded cache and memory, none of
which the kernel's counters of time show.
"""

from __future__ import annotations

import functools
import time
from typing import Final

import numpy as np
import numpy.typing as npt

_PASSES: Final = 5
_STREAM: Final = 1 << 20
"""Numbers of eight bytes that are streamed in each pass: 8 MiB, more than most cores' own cache holds."""
_SORTED: Final = 1 << 15
"""Numbers that are sorted in each pass: computing that fits into a core's own cache."""


def canary_ns() -> int:
    """Nanoseconds of the fastest of five passes, each half a millisecond or so of streaming and sorting.

    The fastest, since a pass during which the thread lost its processor tells of the neighbours what the counters tell
    already, and better. The first call of a process is dearer and slower, so that one is worth throwing away.
    """
    stream, mixed = _data()
    taken = []
    for _ in range(_PASSES):
        began_ns = time.perf_counter_ns()
        np.add(stream, 1, out=stream)
        np.sort(mixed)
        taken.append(time.perf_counter_ns() - began_ns)
    return min(taken)


@functools.cache
def _data() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    return np.zeros(_STREAM, dtype=np.int64), np.random.default_rng(0).random(_SORTED)
