"""Steps that were timed in fresh processes, handed to pytest-benchmark as the rounds of its own benchmark.

pytest-benchmark times calls in the test's process and has no door for times from elsewhere. It does let a test choose
its clock (``@pytest.mark.benchmark(timer=...)``) and the number of rounds (``benchmark.pedantic``), both documented. So
a clock that replays the steps is put in that place, and a function that does nothing is "timed" for as many rounds as
there are steps: everything behind it (table, JSON, saving, comparing, grouping) is pytest-benchmark's own, and none of
its private parts is touched. Whether it worked is read back from ``benchmark.stats``, and a version where it did not is
refused and not believed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from itertools import chain
from typing import Any, Final

import pytest

from xttsbench.errors import XttsbenchError

_CLOCK: Final = pytest.StashKey["Replay"]()


class Replay:
    """A clock for pytest-benchmark: it reads each duration once around it, and the real time where there is none."""

    __name__ = "steps_in_fresh_processes"  # what the JSON's options give as the timer

    def __init__(self) -> None:
        self._readings: Iterator[float] = iter(())

    def load(self, durations_s: Sequence[float]) -> None:
        """Replay these: 0 at the start of a round and the duration at its end, so that nothing is rounded."""
        self._readings = chain.from_iterable((0.0, duration) for duration in durations_s)

    def __call__(self) -> float:
        """Return the next reading, in seconds."""
        reading = next(self._readings, None)
        return time.perf_counter() if reading is None else reading


def replay_steps(item: pytest.Item) -> None:
    """Make the replaying clock the one of a test's benchmark; what its own marker says else is kept."""
    own = item.get_closest_marker("benchmark")
    clock = item.stash[_CLOCK] = Replay()
    options = {**(own.kwargs if own is not None else {}), "timer": clock}
    item.add_marker(pytest.mark.benchmark(**options), append=False)


def hand_in(benchmark: Any, item: pytest.Item, durations_s: Sequence[float]) -> None:
    """Make the durations the rounds of a benchmark.

    It is that of a test after :func:`replay_steps`; there is one duration at least.

    Raises:
        XttsbenchError: this version of pytest-benchmark does not take them.
    """
    item.stash[_CLOCK].load(durations_s)
    benchmark.pedantic(_nothing, rounds=len(durations_s), iterations=1)
    taken = getattr(getattr(benchmark.stats, "stats", None), "data", None)
    if list(taken or ()) != list(durations_s):
        benchmark.has_error = True  # keeps rounds that are none out of what is saved
        raise XttsbenchError(
            f"pytest-benchmark {metadata.version('pytest-benchmark')} did not take the steps as its rounds: it keeps "
            f"{len(taken or ())} values, and not these {len(durations_s)}. xttsbench_benchmark needs its 'timer' of "
            "the marker and its 'pedantic' mode to work as in 5.1 to 5.3; install one of these."
        )


def give_up(benchmark: Any, error: XttsbenchError) -> None:
    """Tell pytest-benchmark that there is nothing to record.

    It warns of a fixture that a test asked for and did not use, and a project may have warnings for errors.
    """

    def fails() -> None:
        raise error

    try:
        benchmark(fails)
    except Exception:  # the error that was put in, or that the fixture was used before
        return


def _nothing() -> None:
    """What is timed in this process."""
