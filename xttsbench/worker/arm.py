"""The trial of an arm: one configuration as it is, and nothing else, so that a trial costs what it measures.

The step is run once on a batch of each shape before anything is timed, so that tracing and compilation of the buckets
are in the segment ``warm_up``; then the target runs on a fresh iterator, in one stretch as in the main trial of the
ladder, or in turns with others: measuring whenever it is given its turn, and standing still in between.
"""

from __future__ import annotations

import time
from typing import Any, Final

import tensorflow as tf

from xttsbench.records.trial import TrialSpec, Turn
from xttsbench.targets.load import Loaded
from xttsbench.worker.batches import MOST_BYTES, ExhaustedError, LiveBatches, first_pass, size_bytes
from xttsbench.worker.bench import Bench, Limit, Step
from xttsbench.worker.contents import ContentLook
from xttsbench.worker.filling import fill_caches
from xttsbench.worker.ladder import measure_as_is, next_floor_after_pause_s, next_floor_s

_QUIET: Final = 8
"""Batches in a row without a new shape, after which no more is looked for; twice the shapes seen, if that is more."""
_MOST: Final = 128
_SECONDS: Final = 6.0
_HANDED_OVER: Final = 15
"""Batches that are ready, by which what handing one over costs is told: the part of a wait that no input can spare."""
_BYTES: Final = MOST_BYTES


def run_arm(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Warm the step up on each shape, then measure the segment ``as_is``."""
    if spec.fill_caches:
        fill_caches(spec, loaded, bench)
    if step is not None:
        bench.channel.phase("shapes")
        batches = one_of_each_shape(loaded.dataset)
        bench.channel.phase("warm_up")
        bench.warm_up(step, batches)  # XLA needs seconds for each shape; the parent ends a trial that takes too long
    elif spec.emulated_ms:
        bench.channel.phase("hand-off")
        for batch in loaded.dataset.take(1):
            bench.channel.part("handoff_s", next_floor_s(batch, count=_HANDED_OVER))
            bench.channel.part("handoff_after_pause_s", next_floor_after_pause_s(spec, batch, _HANDED_OVER))
    bench.contents = ContentLook() if spec.hashed else None
    if spec.turns:
        take_turns(loaded, step, bench)
    else:
        measure_as_is(spec, loaded, step, bench)
    if bench.contents is not None:
        bench.channel.part("contents", bench.contents.record())


def one_of_each_shape(dataset: tf.data.Dataset) -> list[Any]:
    """A batch of every shape that the beginning of the dataset shows, in order of appearance.

    It is read until its end, or until shapes stop being new, within 128 batches, half a gibibyte and six seconds. A
    shape that comes later compiles in the measured segment, where the columns of traces and compilations show it.

    Raises:
        ExhaustedError: the dataset yields nothing at all.
    """
    source = LiveBatches(dataset)
    found: dict[tuple[Any, ...], Any] = {}
    quiet = held = 0
    try:
        for batch in first_pass(source, _MOST, _SECONDS):
            tensors = tf.nest.flatten(batch, expand_composites=True)
            shape = tuple(tuple(tensor.shape) for tensor in tensors if hasattr(tensor, "shape"))
            if shape in found:
                quiet += 1
            else:
                found[shape], quiet = batch, 0
                held += size_bytes(batch)
            if quiet >= max(_QUIET, 2 * len(found)) or held >= _BYTES:
                break
    finally:
        source.close()
    return list(found.values())


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
        measured = _measured(turn, source, step, bench)
        if bench.contents is not None:
            bench.contents.digest()
        turn = bench.channel.next_turn(*measured)


def _measured(turn: Turn, source: LiveBatches, step: Step | None, bench: Bench) -> tuple[int, int]:
    """When the counted part of a turn began and ended, ``perf_counter_ns``."""
    settling = turn.round < 0
    number = max(turn.round, 0)
    if turn.discarded:
        before = Limit.of_turn(turn.discarded, turn.least_s / 3)
        bench.run(SETTLING if settling else TURN_START, source, step, before, round=number)
    began_ns = time.perf_counter_ns()
    counted = Limit.of_turn(turn.batches, turn.least_s)
    if not bench.run(SETTLING if settling else "as_is", source, step, counted, round=number):
        raise ExhaustedError("the dataset yields nothing when it is iterated a second time")
    return began_ns, time.perf_counter_ns()
