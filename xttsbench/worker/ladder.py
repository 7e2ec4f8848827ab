"""The main trial: the target as it is beside its input alone and its step alone, in rounds within one process.

Order: batches are cached, every shape among them is stepped once (traces, compilations), then the rounds run on a
fresh iterator, so that buffers filled during compilation do not hide a pipeline that is too slow.
"""

from __future__ import annotations

import time
from typing import Any, Final

import tensorflow as tf

from xttsbench.records.trial import TrialSpec
from xttsbench.targets.load import Loaded
from xttsbench.worker.anatomy import read_anatomy
from xttsbench.worker.bench import Bench, Limit, Step
from xttsbench.worker.cached import describe, take_batches
from xttsbench.worker.filling import fill_caches
from xttsbench.worker.overhead import measure_overhead
from xttsbench.worker.profiling import profile_window
from xttsbench.worker.rounds import run_rounds
from xttsbench.worker.source import CachedBatches, ExhaustedError, LiveBatches
from xttsbench.worker.step_ops import read_step_ops

_ANATOMY: Final = 0.25
_WARM_UP_S: Final = 20.0
_LONGEST_PAUSE_S: Final = 0.02
"""Waking after longer pauses takes no longer."""


def run_ladder(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """Run the segment ``warm_up`` and the rounds, and read the anatomy of the step."""
    fill_caches(spec, loaded, bench)
    batches = first_batches(loaded)
    facts = describe(batches, loaded.dataset)
    bench.channel.part("batches", facts)
    warm_up(bench, step, batches)
    bench.channel.phase("hand-off")
    ready_s = handoff_s(batches[0])
    bench.channel.part("handoff_s", ready_s)
    run_rounds(spec, loaded, step, bench, bytes_per_batch=facts.bytes / len(batches), handoff_s=ready_s)
    seen = tuple(str(list(signature)) for signature in bench.shapes)[:50]
    bench.channel.part("batches", facts.model_copy(update={"shapes": seen}))
    if spec.emulated_ms:
        bench.channel.part("handoff_after_pause_s", handoff_after_pause_s(spec, batches[0]))
    if step is not None:
        bench.channel.phase("anatomy")
        bench.channel.part("anatomy", read_anatomy(bench, step, batches, max(spec.window_s * _ANATOMY, 1.0)))
        if spec.block == 0:
            bench.channel.phase("ops of the step")
            bench.channel.part("step_ops", read_step_ops(bench, step, batches, max(spec.window_s * _ANATOMY, 1.0)))
        if bench.synchronise is not None:
            bench.channel.part("transfer_s", _transfer_s(batches[0], bench))
    if spec.profile_dir:
        bench.channel.phase("profile")
        bench.channel.part("profile", profile_window(loaded, step, bench, spec.profile_dir))
    bench.watch.__exit__()
    bench.channel.part("overhead", measure_overhead(bench))


def warm_up(bench: Bench, step: Step | None, batches: list[Any]) -> None:
    """Step once on every cached batch, with its traces and compilations counted as the segment ``warm_up``."""
    if step is None:
        return
    bench.channel.phase("warm_up")
    accelerator, bench.accelerator = bench.accelerator, None
    bench.run("warm_up", CachedBatches(batches), step, Limit(len(batches), _WARM_UP_S, 1, fair_s=0.0))
    bench.accelerator = accelerator


def measure_as_is(spec: TrialSpec, loaded: Loaded, step: Step | None, bench: Bench) -> None:
    """The segment ``as_is`` on a fresh iterator; its first step, which waits for the pipeline to start, is warm-up."""
    bench.channel.phase("as_is")
    source = LiveBatches(loaded.dataset)
    try:
        if not bench.run("as_is", source, step, Limit(spec.steps, spec.window_s, spec.min_steps), warmup=1):
            raise ExhaustedError("the dataset yields nothing when it is iterated a second time")
    finally:
        source.close()


def first_batches(loaded: Loaded) -> list[Any]:
    """Batches for the segments that need them ready; the iterator that they came from is closed."""
    source = LiveBatches(loaded.dataset)
    try:
        return take_batches(source)
    finally:
        source.close()


def handoff_after_pause_s(spec: TrialSpec, batch: Any, count: int = 60) -> float:
    """The same after a pause as long as the emulated accelerator's, which whoever slept wakes from to cold caches."""
    paused_s = min(sum(spec.emulated_ms) / len(spec.emulated_ms) / 1e3, _LONGEST_PAUSE_S)
    return handoff_s(batch, paused_s, count)


def handoff_s(batch: Any, pause_s: float = 0.0005, count: int = 60) -> float:
    """Median time of ``next()`` on a batch that is always ready: no pipeline can wait less.

    Args:
        batch: nested tensors.
        pause_s: between two of them, long enough for the prefetch to have one ready.
        count: how many are timed.
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
