"""The measured loop: steps under one condition, each on its own clocks, one row a step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from xttsbench.records.step_row import StepRow
from xttsbench.records.trial import RoundMark
from xttsbench.step.watch import Watch
from xttsbench.worker.accelerator import EmulatedAccelerator
from xttsbench.worker.channel import Channel
from xttsbench.worker.frames import FrameKeys
from xttsbench.worker.recorder import Recorder
from xttsbench.worker.source import ExhaustedError, Source

Step = Callable[[Any], Any]

_ROWS = 5000
"""Rows of a segment at most: a journal line is read by people too."""


class StepRaisedError(Exception):
    """The target raised in the middle of a segment; ``__cause__`` is what it raised."""

    def __init__(self, segment: str, step: int, where: str, batch_size: int | None = None) -> None:
        super().__init__(f"{where} of step {step} ({segment})")
        self.step = step
        self.where = where
        self.batch_size = batch_size


@dataclass(frozen=True)
class Limit:
    """When a segment ends: enough steps *and* a fair stretch of time, or the window is over."""

    steps: int
    window_s: float
    min_steps: int = 4
    fair_s: float = 2.0
    """Fast steps are measured for this long even when there are enough of them."""

    def reached(self, steps: int, elapsed_s: float) -> bool:
        """Whether a segment of that many steps and seconds is complete."""
        if steps >= _ROWS or (steps >= self.min_steps and elapsed_s >= self.window_s):
            return True
        return steps >= self.steps and elapsed_s >= min(self.fair_s, self.window_s)


@dataclass
class Bench:
    """What the loop needs besides batches and a step; it remembers the shapes that it has seen."""

    channel: Channel
    watch: Watch
    accelerator: EmulatedAccelerator | None
    synchronise: Callable[[], None] | None
    shapes: dict[tuple[tuple[int, ...], ...], tuple[int, int, int, int]] = field(default_factory=dict)
    keys: FrameKeys = field(default_factory=FrameKeys)
    recorders: dict[str, Recorder] = field(default_factory=dict)
    marks: list[RoundMark] = field(default_factory=list)

    def mark(self, mark: RoundMark) -> None:
        """Tell of a round that is over."""
        self.marks.append(mark)
        self.channel.part("rounds", list(self.marks))

    def recorder(self, name: str) -> Recorder:
        """The recorder of a segment, the same one each time."""
        return self.recorders.setdefault(name, Recorder(self.channel, name))

    def run(
        self, name: str, source: Source, step: Step | None, limit: Limit, *, round: int = 0, warmup: int = 0
    ) -> int:
        """Run one stretch of a segment and record its rows; returns the number of steps that ended.

        Args:
            name: of the segment; a segment that is run again goes on.
            source: where the batches come from; its index of each is in the rows.
            step: ``None`` to take batches and do nothing with them.
            limit: when the stretch ends.
            round: what the rows say of their round.
            warmup: how many of the segment's first rows are its own warm-up.

        Raises:
            StepRaisedError: the dataset or the step raised; the rows before it have been sent.
        """
        recorder = self.recorder(name)
        if warmup:
            recorder.warmup(warmup)
        clock, cpu, main_cpu = time.perf_counter_ns, time.process_time_ns, time.thread_time_ns
        watch, accelerator, synchronise = self.watch, self.accelerator, self.synchronise
        began_ns = last_ns = clock()
        cpu_ns, main_ns, counted, done = cpu(), main_cpu(), watch.counters(), 0
        while not limit.reached(done, (last_ns - began_ns) / 1e9):
            watch.step = recorder.rows
            start_ns = clock()
            where = "next()"
            try:
                batch = source.next()
                got_ns = clock()
                where = "step(batch)"
                if step is not None:
                    step(batch)
                returned_ns = clock()
                if synchronise is not None:
                    synchronise()
            except ExhaustedError:
                break
            except (Exception, SystemExit) as error:
                recorder.flush()
                size = self._shape(batch)[1] if where == "step(batch)" else None
                raise StepRaisedError(name, recorder.rows, where, size) from error
            device_ns = clock() - returned_ns if synchronise is not None else 0
            emulated_ns = accelerator.compute() if accelerator is not None else 0
            end_ns = clock()
            cpu_before, cpu_ns, main_before, main_ns = cpu_ns, cpu(), main_ns, main_cpu()
            before = counted
            slow = watch.step_ended(end_ns - got_ns - emulated_ns)
            counted = watch.counters()
            shape_id, size, elements, frames = self._shape(batch)
            calls, calls_ns, traces, trace_ns, syncs, sync_ns, gc_ns, compiles, xla_ns = (
                now - then for now, then in zip(counted, before, strict=True)
            )
            recorder.add(
                StepRow(
                    start_ns=start_ns,
                    wall_ns=end_ns - last_ns,
                    wait_ns=got_ns - start_ns,
                    step_ns=end_ns - got_ns,
                    device_ns=device_ns,
                    emulated_ns=emulated_ns,
                    trace_ns=trace_ns,
                    traces=traces,
                    xla_ns=xla_ns,
                    xla_compiles=compiles,
                    sync_ns=sync_ns,
                    syncs=syncs,
                    gc_ns=gc_ns,
                    calls=calls,
                    calls_ns=calls_ns,
                    cpu_ns=cpu_ns - cpu_before,
                    main_cpu_ns=main_ns - main_before,
                    batch_size=size,
                    batch_elements=elements,
                    shape_id=shape_id,
                    epoch=source.epoch,
                    frames=frames,
                    batch=source.batch,
                    round=round,
                ),
                self.keys.lengths_of(batch),
            )
            done += 1
            last_ns = end_ns
            if recorder.due(end_ns, end_ns - start_ns):
                recorder.flush()
                slow = True
            if slow:  # the pause was ours: neither the clocks nor the counters of the next step have it
                last_ns += clock() - end_ns
                cpu_ns, main_ns, counted = cpu(), main_cpu(), watch.counters()
        recorder.flush()
        return done

    def _shape(self, batch: Any) -> tuple[int, int, int, int]:
        """Index of the batch's shape signature, its first dimension, its numbers in all, and its padded frames."""
        signature = tuple(
            tensor._shape_tuple() if hasattr(tensor, "_shape_tuple") else ()
            for tensor in tf.nest.flatten(batch, expand_composites=True)
        )
        known = self.shapes.get(signature)
        if known is None:
            size = next((shape[0] for shape in signature if shape), 1)
            elements = sum(math.prod(shape) for shape in signature)
            known = (len(self.shapes), size, elements, self.keys.padded(batch))
            self.shapes[signature] = known
        return known
