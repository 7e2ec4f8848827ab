"""Turns: a live process measures a stretch of batches whenever it is given its turn, and stands still in between."""

from __future__ import annotations

import math
import time
from typing import Final

from xttsbench.records.trial import Turn
from xttsbench.targets.load import Loaded
from xttsbench.worker.bench import Bench, Limit, Step
from xttsbench.worker.source import ExhaustedError, LiveBatches

SETTLING: Final = "settling"
"""Segment of what runs before the first round: for the pace, and for the pipeline's own tuning to settle."""
TURN_START: Final = "turn_start"
"""Segment of the batches at the start of each turn that are not counted: they were made under other conditions."""

_KEPT: Final[list[LiveBatches]] = []
"""Never closed: a Python function in a pipeline can hold that up for seconds, and the process ends anyway."""


def take_turns(loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Measure the segment ``as_is`` in turns, on one iterator that goes on from turn to turn.

    Raises:
        ExhaustedError: the dataset yields nothing when it is iterated a second time.
        StepRaisedError: the dataset or the step raised.
    """
    bench.channel.phase("as_is")
    turn, source = bench.channel.next_turn(), None
    while turn is not None:
        if source is None:  # not before, or its buffers would fill while others run
            source = LiveBatches(loaded.dataset)
            _KEPT.append(source)
        turn = bench.channel.next_turn(*_measured(turn, source, step, bench))


def _measured(turn: Turn, source: LiveBatches, step: Step | None, bench: Bench) -> tuple[int, int]:
    """When the counted part of a turn began and ended, ``perf_counter_ns``."""
    settling = turn.round < 0
    number = max(turn.round, 0)
    if turn.discarded:
        bench.run(SETTLING if settling else TURN_START, source, step, _batches(turn.discarded), round=number)
    began_ns = time.perf_counter_ns()
    if not bench.run(SETTLING if settling else "as_is", source, step, _batches(turn.batches), round=number):
        raise ExhaustedError("the dataset yields nothing when it is iterated a second time")
    return began_ns, time.perf_counter_ns()


def _batches(count: int) -> Limit:
    """So many, however long they take: the parent ends a process that takes too long."""
    return Limit(count, math.inf, count, fair_s=0.0)
