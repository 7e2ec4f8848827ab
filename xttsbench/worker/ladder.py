"""Trials that time a target: the isolation experiments of the main trial, and one configuration as it is.

The main trial runs the target as it is, its step alone and its input alone, in rounds within one process
(:mod:`xttsbench.worker.rounds`). Batches are cached, every shape among them is stepped once (traces, compilations),
then the rounds run on a fresh iterator, so that buffers filled during compilation do not hide a pipeline that is too
slow. A burst of the neighbours hits all conditions of a round alike, and the step alone runs on the very batches that
the step beside its input has had, so that what the two differ by is not what batches or processes differ by.

A configuration of a comparison is measured as it is and nothing else, so that its trial costs what it measures: in one
stretch as in the main trial, or in turns with others, standing still in between.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

import tensorflow as tf

from xttsbench.fixes.graph import apply
from xttsbench.fixes.graph.edit import from_graph
from xttsbench.fixes.native.examine import examine
from xttsbench.fixes.processes.rewrite import why_immovable
from xttsbench.fixes.step.rewrite import fixed_step
from xttsbench.pipeline.altered import shortened
from xttsbench.pipeline.costs import read_costs
from xttsbench.pipeline.op_costs import with_python_costs
from xttsbench.pipeline.python_functions import classify
from xttsbench.pipeline.read import read_graph
from xttsbench.records.fix import FixSet
from xttsbench.records.trial import TrialSpec, Turn
from xttsbench.targets.load import Loaded
from xttsbench.worker.batches import (
    MOST_BYTES,
    LiveBatches,
    describe,
    fill_caches,
    first_pass,
    opened,
    size_bytes,
    take_batches,
)
from xttsbench.worker.bench import Bench, Limit, Step, measure_overhead, real_step
from xttsbench.worker.contents import ContentLook
from xttsbench.worker.failure import ExhaustedError
from xttsbench.worker.profile.step import read_step_ops, read_step_profile
from xttsbench.worker.profile.window import profile_window
from xttsbench.worker.rounds import Keeping, Rounds

_ANATOMY: Final = 0.25
_WARM_UP_S: Final = 20.0
_LONGEST_PAUSE_S: Final = 0.02  # Waking after longer pauses takes no longer


def run_ladder(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Run the segment ``warm_up`` and the rounds, and read the anatomy of the step."""
    fill_caches(spec, loaded.dataset, bench.channel)
    with opened(Keeping(loaded.dataset), bench.channel) as source:
        batches = take_batches(source)
        facts = describe(batches)
        bench.channel.part("batches", facts)
        if step is None:
            real_step(loaded, batches[0])
        else:
            bench.channel.phase("warm_up")
            bench.warm_up(step, batches, _WARM_UP_S)
        bench.channel.phase("hand-off")
        tell_handoff(spec, batches[0], bench)
        rounds = Rounds(spec, loaded, step, bench, source, facts.bytes / len(batches))
        for number in range(spec.rounds):
            rounds.measure_round(number)
            # Before the first look: without it none could tell what the host does, or launches. Repeats read none.
            if not number and step is not None and not spec.block:
                bench.channel.phase("anatomy")
                profile = read_step_profile(bench, step, batches, max(spec.window_s * _ANATOMY, 1.0))
                bench.channel.part("anatomy", profile)
            if bench.channel.decided():
                break
        rounds.measure_stretch(number + 1)
        if spec.block == 0:
            rounds.end()
    if (seen_idle := [mark.input_idle for mark in bench.marks if mark.input_idle is not None]) and not any(seen_idle):
        bench.channel.note(
            "the input never stood still, so the step alone was measured beside it: it may be faster alone than shown"
        )
    seen = tuple(str(list(signature)) for signature in bench.shapes)[:50]
    bench.channel.part("batches", facts.model_copy(update={"shapes": seen}))
    if spec.block:
        return  # what a step is made of, and what looking costs, the first process has said
    if step is not None:
        bench.channel.phase("ops of the step")
        bench.channel.part("step_ops", read_step_ops(bench, step, batches, max(spec.window_s * _ANATOMY, 1.0)))
        if bench.synchronise is not None:
            bench.channel.part("transfer_s", _transfer_s(batches[0], bench))
    if spec.profile_dir:
        bench.channel.phase("profile")
        bench.channel.part("profile", profile_window(loaded, step, bench, spec.profile_dir))
    bench.watch.__exit__()
    bench.channel.part("overhead", measure_overhead(bench))


def measure_as_is(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """The segment ``as_is`` on a fresh iterator; its first step, which waits for the pipeline to start, is warm-up."""
    bench.channel.phase("as_is")
    with opened(LiveBatches(loaded.dataset), bench.channel) as source:
        if not bench.run("as_is", source, step, Limit(spec.steps, spec.window_s, spec.min_steps), warmup=1):
            raise ExhaustedError("the dataset yields nothing when it is iterated a second time")


def first_batches(loaded: Loaded) -> list[Any]:
    """Batches for the segments that need them ready; the iterator that they came from is closed."""
    with closing(LiveBatches(loaded.dataset)) as source:
        return take_batches(source)


def tell_handoff(spec: TrialSpec, batch: Any, bench: Bench, count: int = 60) -> None:
    """Send what handing over a batch takes, and what it takes after a pause as long as an emulated accelerator's.

    Whoever slept wakes to cold caches.
    """
    bench.channel.part("handoff_s", next_floor_s(batch, count=count))
    if spec.emulated_ms:
        paused_s = min(sum(spec.emulated_ms) / len(spec.emulated_ms) / 1e3, _LONGEST_PAUSE_S)
        bench.channel.part("handoff_after_pause_s", next_floor_s(batch, paused_s, count))


def next_floor_s(batch: Any, pause_s: float = 0.0005, count: int = 60) -> float:
    """Median time of ``next()`` on a batch that is always ready: no pipeline can wait less.

    The pause between two of them is long enough for the prefetch to have one ready.
    """
    ready = iter(tf.data.Dataset.from_tensors(batch).repeat().prefetch(2))
    times = []
    for _ in range(count):
        time.sleep(pause_s)
        began = time.perf_counter_ns()
        next(ready)
        times.append(time.perf_counter_ns() - began)
    return sorted(times)[len(times) // 2] / 1e9


def _transfer_s(batch: Any, bench: Bench) -> float:
    """Mean time to copy a batch to the first GPU, where it is not there already."""
    tensors = [
        tensor
        for tensor in tf.nest.flatten(batch, expand_composites=True)
        if tensor.dtype != tf.string and "GPU" not in (tensor.device or "")
    ]
    times = []
    for _ in range(12):
        began = time.perf_counter_ns()
        with tf.device("/GPU:0"):
            copies = [tf.identity(tensor) for tensor in tensors]
        if bench.synchronise is not None:
            bench.synchronise()
        times.append(time.perf_counter_ns() - began)
        del copies
    return sum(times[2:]) / len(times[2:]) / 1e9


def run_pipeline(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Read graph and costs, then experiment with the Python functions; no timing of this trial enters the report's."""
    bench.channel.phase("pipeline")
    pipeline = read_costs(loaded.dataset, batches=spec.steps, max_s=spec.window_s * 0.6)
    bench.channel.part("pipeline", pipeline)
    if pipeline.python_functions:
        bench.channel.phase("python functions")
        classified = classify(loaded.dataset, pipeline, max_s=spec.window_s * 0.6, assumed=spec.assume_pure)
        bench.channel.part("pipeline", with_python_costs(classified))
        bench.channel.phase("python functions as ops")
        found = with_python_costs(examine(loaded.dataset, classified))
        bench.channel.part("pipeline", found)
        bench.channel.phase("python functions in another process")
        immovable = why_immovable(loaded.dataset, found)
        bench.channel.part("pipeline", found.model_copy(update={"immovable": immovable}))


def fixed(loaded: Loaded, step: Step | None, spec: TrialSpec) -> tuple[Loaded, Step | None]:
    """The target and its step with the fix of a trial, and with the part of the data that it is measured on.

    Raises:
        InvalidInputError: a part of the fix does not exist or does not apply, with the reason.
    """
    fixes = FixSet.parse(spec.fix)
    if fixes.of_dataset:
        loaded = replace(loaded, dataset=apply(loaded.dataset, fixes.of_dataset))
    if spec.kind == "arm" and spec.source_limit is not None:
        cut = shortened(read_graph(loaded.dataset), spec.source_limit)
        loaded = replace(loaded, dataset=from_graph(cut, loaded.dataset.element_spec, source=loaded.dataset))
    for fix in fixes.of_step:
        step = fixed_step(step, fix, loaded.model)
    return loaded, step


_AT_ONCE: Final = 2
"""New shapes in a row that the step took without tracing or compiling anything, after which it takes all others so."""
_QUIET: Final = 8
"""Batches in a row without a new shape, after which no more is looked for; twice the shapes seen, if that is more."""
_MOST: Final = 128
_SECONDS: Final = 6.0
_HANDED_OVER: Final = 15
"""Batches that are ready, by which what handing one over costs is told: the part of a wait that no input can spare."""


def run_arm(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Warm the step up on each shape, then measure the segment ``as_is``."""
    if spec.fill_caches:
        fill_caches(spec, loaded.dataset, bench.channel)
    if step is not None:
        bench.channel.phase("warm_up")
        warm_up(step, loaded.dataset, bench)
    elif spec.emulated_ms:
        bench.channel.phase("hand-off")
        for batch in loaded.dataset.take(1):
            tell_handoff(spec, batch, bench, _HANDED_OVER)
    bench.contents = ContentLook() if spec.hashed else None
    if spec.turns:
        _take_turns(loaded, step, bench)
    else:
        measure_as_is(spec, loaded, step, bench)
    if bench.contents is not None:
        bench.channel.part("contents", bench.contents.record())


def warm_up(step: Step, dataset: tf.data.Dataset, bench: Bench) -> None:
    """Step on batches of new shapes, until the step takes them without tracing or compiling anything.

    XLA needs seconds for each shape: after twenty of them the rest compiles where it is measured, which is what such a
    step costs.
    """
    at_once, began = 0, time.perf_counter()
    for batch in one_of_each_shape(dataset):
        bench.warm_up(step, [batch])
        rows = bench.segments["warm_up"]
        made = sum(rows.values(name, rows.count - 1, rows.count)[rows.count - 1] for name in ("traces", "xla_compiles"))
        at_once = 0 if made else at_once + 1
        if at_once == _AT_ONCE or time.perf_counter() - began > _WARM_UP_S:
            return


def one_of_each_shape(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Batches of every shape that the beginning of the dataset shows, one of each, in order of appearance.

    It is read until its end, or until shapes stop being new, within 128 batches, half a gibibyte of those that are
    returned, and six seconds. A shape that comes later compiles in the measured segment, where the columns of traces
    and compilations show it.

    Raises:
        ExhaustedError: the dataset yields nothing at all.
    """
    seen: set[tuple[Any, ...]] = set()
    quiet = bytes_read = 0
    with closing(LiveBatches(dataset)) as source:
        for batch in first_pass(source, _MOST, _SECONDS):
            tensors = tf.nest.flatten(batch, expand_composites=True)
            shape = tuple(tuple(tensor.shape) for tensor in tensors if hasattr(tensor, "shape"))
            quiet = quiet + 1 if shape in seen else 0
            if not quiet:
                seen.add(shape)
                yield batch
                bytes_read += size_bytes(batch)
            if quiet >= max(_QUIET, 2 * len(seen)) or bytes_read >= MOST_BYTES:
                return


SETTLING: Final = "settling"
"""Segment of what runs before the first round: for the pace, and for the pipeline's own tuning to settle."""
TURN_START: Final = "turn_start"
"""Segment of the batches at the start of each turn that are not counted: they were made under other conditions."""


_LEFT_OPEN: Final = 32
"""Iterators of ended epochs that are left open: they hold what was not asked for, next to nothing; later ones are of
short epochs, and soon closed."""


def _take_turns(loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Measure the segment ``as_is`` in turns, on one iterator that goes on from turn to turn."""
    bench.channel.phase("as_is")
    turn = bench.channel.next_turn()
    # Not before, or its buffers would fill
    with opened(LiveBatches(loaded.dataset, left_open=_LEFT_OPEN), bench.channel) as source:
        while turn is not None:
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
