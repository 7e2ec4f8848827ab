"""The measured loop: steps under one condition, each on its own clocks, one row a step; and what measuring costs.

The padded size of a batch is known from its tensor's shape. The true lengths are values, on a device perhaps, so they
are handed on by reference and summed when no step waits for them. The cost of measuring is that of the very loop of a
trial, a script or the trainer, with what is recorded and without.
"""

from __future__ import annotations

import contextlib
import math
import operator
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import tensorflow as tf

from xttsbench.errors import TargetError
from xttsbench.probes.clock import EmulatedAccelerator, canary_ns
from xttsbench.probes.procfs import ChildrenCpu
from xttsbench.records.rows import RowMemory, SegmentRows
from xttsbench.records.trial import MeasurementOverhead, RoundMark
from xttsbench.step.modes import Compilations, keras_step
from xttsbench.step.watch import MANY_CALLS, Watch
from xttsbench.targets.load import Loaded
from xttsbench.worker.batches import CachedBatches, Source
from xttsbench.worker.channel import Channel
from xttsbench.worker.contents import ContentLook
from xttsbench.worker.failure import ExhaustedError, StepRaisedError

Step = Callable[[Any], Any]

_ROWS = 5000  # Rows of a segment at most: a journal line is read by people too
_ROWS_OF_TURN = 600  # Rows of one of the two dozen turns of a segment


@dataclass(frozen=True)
class Limit:
    """When a segment ends: enough steps *and* a fair stretch of time, or the window is over."""

    steps: int
    window_s: float
    min_steps: int = 4
    fair_s: float = 2.0
    """Fast steps are measured for this long even when there are enough of them."""
    most: int = _ROWS

    @classmethod
    def exactly(cls, steps: int, window_s: float = math.inf) -> Limit:
        """So many steps, within ``window_s`` if at least one has ended: the parent ends what takes too long."""
        return cls(steps, window_s, steps if window_s == math.inf else 1, fair_s=0.0)

    @classmethod
    def of_turn(cls, steps: int, least_s: float) -> Limit:
        """So many steps, and more of them until so many seconds are over, as far as memory keeps their rows."""
        return cls(steps, math.inf, steps, fair_s=least_s, most=max(steps, _ROWS_OF_TURN))

    def reached(self, steps: int, elapsed_s: float) -> bool:
        """Whether a segment of that many steps and seconds is complete."""
        if steps >= self.most or (steps >= self.min_steps and elapsed_s >= self.window_s):
            return True
        return steps >= self.steps and elapsed_s >= min(self.fair_s, self.window_s)


_HELD: Final = 32
"""Tensors that are held at most: they may be parts of larger ones, which they keep alive, and a killed process loses
the sums of those that it held."""


@dataclass(frozen=True)
class FrameKeys:
    """Keys of the batch: the padded tensor ``[batch, frames, ...]`` and the true lengths ``[batch]``."""

    frames: str | None = None
    lengths: str | None = None

    def padded(self, batch: Any) -> int:
        """Frames of the batch with padding, over all its clips; 0 where the workload does not say."""
        if self.frames is None:
            return 0
        shape = batch[self.frames].shape
        return int(shape[0]) * int(shape[1])


class HeldLengths:
    """Sums of true lengths for rows that are there already, since the tensors may still be under way on a device."""

    def __init__(self) -> None:
        self._held: list[tuple[SegmentRows, int, Any]] = []

    def add(self, rows: SegmentRows, index: int, lengths: Any) -> None:
        """Sum the lengths of a row's batch later: now, with cold caches, it would cost the loop more than its row."""
        self._held.append((rows, index, lengths))
        if len(self._held) >= _HELD:
            self.fetch()

    def fetch(self) -> None:
        """Sum what is held."""
        for rows, index, lengths in self._held:
            with contextlib.suppress(tf.errors.OpError):  # its device failed: the row must not be lost
                rows.add_to(index, "valid_frames", int(lengths.numpy().sum()))
        self._held.clear()


@dataclass
class Bench:
    """Context of the loop besides batches and a step; it remembers the shapes that it has seen."""

    channel: Channel
    watch: Watch
    accelerator: EmulatedAccelerator | None
    synchronise: Callable[[], None] | None
    shapes: dict[tuple[tuple[int, ...], ...], tuple[int, int, int, int]] = field(default_factory=dict)
    keys: FrameKeys = field(default_factory=FrameKeys)
    lengths: HeldLengths = field(default_factory=HeldLengths)
    segments: dict[str, SegmentRows] = field(default_factory=dict)
    compilations: Compilations = field(default_factory=Compilations)
    contents: ContentLook | None = None
    """Digests of the batches, where they are wanted."""
    marks: list[RoundMark] = field(default_factory=list)

    @contextlib.contextmanager
    def round(self, number: int) -> Iterator[dict[str, Any]]:
        """A round of several conditions: when it began and ended, and what the canary took before and after it.

        What the round says of itself, into the dictionary, is in its mark.
        """
        before_ns, start_ns = canary_ns(), time.perf_counter_ns()
        said: dict[str, Any] = {}
        yield said
        end_ns = time.perf_counter_ns()
        times = {"start_ns": start_ns, "end_ns": end_ns, "canary_before_ns": before_ns, "canary_after_ns": canary_ns()}
        self.marks.append(RoundMark(round=number, **times | said))
        self.channel.part("rounds", list(self.marks))

    @contextlib.contextmanager
    def without_accelerator(self) -> Iterator[None]:
        """Within, no emulated accelerator waits."""
        accelerator, self.accelerator = self.accelerator, None
        try:
            yield
        finally:
            self.accelerator = accelerator

    def finish_step(self, steps: int = 1) -> tuple[int, int]:
        """Wait for the device, and for the emulated one as after so many steps; what each took, nanoseconds."""
        began = time.perf_counter_ns()
        if self.synchronise is not None:
            self.synchronise()
        device_ns = time.perf_counter_ns() - began if self.synchronise is not None else 0
        return device_ns, sum(self.accelerator.compute() for _ in range(steps)) if self.accelerator is not None else 0

    def warm_up(self, step: Step, batches: Sequence[Any], window_s: float = math.inf) -> None:
        """Step on every batch, or until the window is over, so that traces and compilations are in ``warm_up``."""
        with self.without_accelerator():
            self.run("warm_up", CachedBatches(batches), step, Limit.exactly(len(batches), window_s))

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
            StepRaisedError: the dataset or the step raised; the rows before it are recorded.
        """
        if (rows := self.segments.get(name)) is None:
            rows = self.segments[name] = self.channel.rows.segment(name)
            self.compilations.begin()
        if warmup:
            rows.warmup(warmup)
        children, first = ChildrenCpu(), rows.count
        try:
            self.loop(name, rows, source, step, limit, round)
        finally:
            children.spread(rows, first)
            self.lengths.fetch()
        return rows.count - first

    def loop(
        self, name: str, rows: SegmentRows, source: Source, step: Step | None, limit: Limit, round: int = 0
    ) -> None:
        """The loop itself; all that it does besides waiting and stepping is in the ``pause_ns`` of the next step."""
        clock, cpu, main_cpu = time.perf_counter_ns, time.process_time_ns, time.thread_time_ns
        watch, accelerator, synchronise, counts = self.watch, self.accelerator, self.synchronise, self.watch.counts
        lengths, compilations, contents = self.keys.lengths, self.compilations, self.contents
        began_ns = last_ns = clock()
        cpu_ns, main_ns, done = cpu(), main_cpu(), 0
        while not limit.reached(done, (last_ns - began_ns) / 1e9):
            watch.step = rows.count
            before = counts[:]
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
                size = self.shape_of(batch)[1] if where == "step(batch)" else None
                raise StepRaisedError(name, rows.count, where, size) from error
            device_ns = clock() - returned_ns if synchronise is not None else 0
            emulated_ns = accelerator.compute() if accelerator is not None else 0
            end_ns = clock()
            cpu_before, cpu_ns, main_before, main_ns = cpu_ns, cpu(), main_ns, main_cpu()
            calls, calls_ns, traces, trace_ns, syncs, sync_ns, gc_ns = map(operator.sub, counts, before)
            if calls >= MANY_CALLS:
                watch.leave_calls()
            shape_id, size, elements, frames = self.shape_of(batch)
            # In the order of StepRow. After a step the caches are cold: a function that makes the row would cost more.
            index = rows.append((
                start_ns, end_ns - last_ns, got_ns - start_ns, end_ns - got_ns, device_ns, emulated_ns, trace_ns,
                traces, 0, 0, sync_ns, syncs, gc_ns, calls, calls_ns, cpu_ns - cpu_before, main_ns - main_before,
                size, elements, shape_id, source.epoch, frames, start_ns - last_ns, source.batch, round, 0,
            ))  # fmt: skip
            if lengths is not None:
                self.lengths.add(rows, index, batch[lengths])
            compilations.step_ended(rows, index, end_ns - got_ns - emulated_ns, shape_id)
            if contents is not None:
                contents.see(source.epoch, source.batch, batch, shape_id)
            done += 1
            last_ns = end_ns

    def shape_of(self, batch: Any) -> tuple[int, int, int, int]:
        """Index of the batch's shape signature, its first dimension, its numbers in all, and its padded frames."""
        parts = batch.values() if type(batch) is dict else batch if type(batch) is tuple else (batch,)
        try:
            signature = tuple([part._shape_tuple() for part in parts])  # most batches, in half the time
        except AttributeError:
            signature = tuple(
                tensor._shape_tuple() if hasattr(tensor, "_shape_tuple") else tuple(getattr(tensor, "shape", ()))
                for tensor in tf.nest.flatten(batch, expand_composites=True)
            )
        if (known := self.shapes.get(signature)) is None:
            size = next((shape[0] for shape in signature if shape), 1)
            elements = sum(map(math.prod, signature))
            known = self.shapes[signature] = len(self.shapes), size, elements, self.keys.padded(batch)
        return known


def frame_keys(loaded: Loaded, name: str) -> FrameKeys:
    """The keys that the workload declares, checked against what its dataset yields.

    Raises:
        TargetError: the batch has no such key, or what lies there has too few dimensions.
    """
    workload = loaded.workload
    if workload is None or (workload.frames is None and workload.lengths is None):
        return FrameKeys()
    spec = loaded.dataset.element_spec
    for kind, key, rank in (("frames", workload.frames, 2), ("lengths", workload.lengths, 1)):
        if key is None:
            continue
        if not isinstance(spec, Mapping) or key not in spec:
            known = ", ".join(repr(k) for k in spec) if isinstance(spec, Mapping) else f"no keys, it is {spec!r}"[:200]
            raise TargetError(
                f"Target {name!r}: Workload({kind}={key!r}) names no part of the batch, which has {known}."
            )
        found = getattr(spec[key], "shape", None)
        if found is None or found.rank is None or found.rank < rank:
            raise TargetError(
                f"Target {name!r}: Workload({kind}={key!r}) has shape {found}; at least {rank} dimension(s) of known "
                "number are needed."
            )
    return FrameKeys(workload.frames, workload.lengths)


def step_of(loaded: Loaded) -> Step | None:
    """The step of a target as ``step(batch)``; that of ``fit`` where it is a Keras model."""
    return keras_step(loaded.model) if loaded.model is not None else loaded.step


def real_step(loaded: Loaded, batch: Any) -> None:
    """Step a Keras model for which an emulated accelerator will stand once, unrecorded: does it take the batch?

    Raises:
        StepRaisedError: it does not.
    """
    if loaded.model is not None:
        try:
            keras_step(loaded.model)(batch)
        except Exception as error:
            raise StepRaisedError("warm_up", 0, "step(batch)") from error


_PAIRS: Final = 20
STEPS: Final = 50
_LEAST_STEPS: Final = 10  # Where each makes many calls

Steps = Callable[[int], object]
"""Runs so many small steps."""


def overhead_of(
    measured: Steps,
    bare: Steps,
    what: str,
    *,
    steps: int = STEPS,
    clock: Callable[[], int] = time.thread_time_ns,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
    settle: int = 0,
) -> MeasurementOverhead:
    """Run steps with everything that is recorded of them and without, in turn within this process.

    The median over pairs of the difference in processor time, so that a neighbour's work is no cost of ours.

    Args:
        measured: runs so many steps and records them as in a real measurement.
        bare: runs as many.
        what: the steps, in words.
        steps: of a run.
        clock: processor time in nanoseconds, of this thread or of all that the steps use.
        around: what a measurement begins with once and not in each step; it is entered around each measured run.
        settle: steps of either kind before the clock starts, in which Python specialises code that was wrapped.
    """
    differences = []
    for pair in range(_PAIRS):
        times = {}
        for run in (measured, bare) if pair % 2 else (bare, measured):
            with around() if run is measured else nullcontext():
                if settle:
                    run(settle)
                began = clock()
                run(steps)
                times[run] = clock() - began
        differences.append((times[measured] - times[bare]) / steps)
    return MeasurementOverhead(
        overhead_s=max(statistics.median(differences), 0.0) / 1e9,
        pairs=_PAIRS,
        method=f"{_PAIRS} pairs of {steps} steps ({what}), recorded and bare in turn, median processor time",
    )


def measure_overhead(bench: Bench, calls: int = 1) -> MeasurementOverhead:
    """The cost of the bench's loop, for a step that makes so many calls of a small tf.function on a ready batch.

    The watch that is already installed must have been left before: its wrappers would be on both sides.
    """
    function = tf.function(lambda batch: batch + 1)
    source = CachedBatches([tf.zeros([4, 4])] * 4)

    def step(batch: Any) -> Any:
        for _ in range(calls):
            batch = function(batch)
        return batch

    rows = RowMemory(bytearray(RowMemory.size_bytes(STEPS))).segment("overhead")
    own = Bench(bench.channel, bench.watch, None, None, compilations=bench.compilations)

    def measured(steps: int) -> None:
        own.loop("overhead", rows, source, step, Limit.exactly(steps))

    @contextmanager
    def watching() -> Iterator[None]:
        with Watch() as own.watch:
            yield

    def bare(steps: int) -> None:
        for _ in range(steps):
            step(source.next())

    what = f"{calls} small compiled {'call' if calls == 1 else 'calls'} each"
    with watching():
        measured(2)
    # The calls of a step that makes many are not watched after its first one, which settles.
    return overhead_of(
        measured, bare, what, steps=max(STEPS // calls, _LEAST_STEPS), around=watching, settle=_LEAST_STEPS
    )
