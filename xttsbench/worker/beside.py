"""The step as given beside a changed one, on cached batches, in one process: in turns, round after round."""

from __future__ import annotations

import math
import time
from typing import Any, Final

from xttsbench.records.trial import TrialSpec
from xttsbench.worker.bench import Bench, Limit, Step
from xttsbench.worker.source import CachedBatches

GIVEN: Final = "step_only"
"""Segment of the step as given."""
_ROUNDS: Final = 4
_WINDOWS: Final = 2.0
"""Windows of the trial that all turns of both sides may take."""
_WARM_UP_S: Final = 60.0


def run_beside(
    spec: TrialSpec, bench: Bench, given: tuple[Step, list[Any]], changed: tuple[Step, list[Any]], name: str
) -> None:
    """Measure both as the segments ``step_only`` and ``name``; each is stepped once on every batch before.

    A round has a turn of each, on the same batches and as many, in an order that is turned round from one to the next.

    Args:
        spec: for the steps and the window.
        bench: the loop.
        given: the step as it is, with its batches.
        changed: the other one.
        name: the segment of the changed one.

    Raises:
        StepRaisedError: either raised; the rows before it have been sent.
    """
    sides = {GIVEN: given, name: changed}
    accelerator, bench.accelerator = bench.accelerator, None  # it waits the same for both
    slowest_s = max(_warm_pace_s(bench, segment, *side) for segment, side in sides.items())
    turn_s = _WINDOWS * spec.window_s / (len(sides) * _ROUNDS)
    limit = _steps(min(max(int(turn_s / slowest_s), 1), math.ceil(spec.steps / _ROUNDS)))
    began, first = time.perf_counter(), len(bench.marks)
    for number in range(first, first + _ROUNDS):
        with bench.round(number):
            for segment in reversed(sides) if number % 2 else sides:
                step, batches = sides[segment]
                bench.channel.phase(segment)
                bench.run(segment, CachedBatches(batches, range(len(batches))), step, limit, round=number)
        if time.perf_counter() - began > _WINDOWS * spec.window_s:  # one round of a step of many seconds has to do
            break
    bench.accelerator = accelerator


def _warm_pace_s(bench: Bench, segment: str, step: Step, batches: list[Any]) -> float:
    """Seconds of a step once all batches have been through it, with its traces and compilations."""
    bench.channel.phase(f"warm_up {segment}")
    bench.run("warm_up", CachedBatches(batches), step, Limit(len(batches), _WARM_UP_S, 1, fair_s=0.0))
    began = time.perf_counter()
    done = bench.run("warm_up", CachedBatches(batches), step, _steps(1))
    return (time.perf_counter() - began) / max(done, 1)


def _steps(count: int) -> Limit:
    """So many, however long they take."""
    return Limit(count, math.inf, count, fair_s=0.0)
