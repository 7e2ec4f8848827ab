"""What is recorded of a script's loops: rows of their steps, sampled windows of the main one, and how it goes."""

from __future__ import annotations

import functools
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import tensorflow as tf

from xttsbench.probes.clock import EmulatedAccelerator
from xttsbench.probes.procfs import ChildrenCpu
from xttsbench.records.rows import StepRow
from xttsbench.records.trial import Anatomy, Batches
from xttsbench.step.modes import synchroniser
from xttsbench.step.watch import Watch
from xttsbench.worker.bench import Bench, Limit
from xttsbench.worker.script.loops import Loop, Loops

if TYPE_CHECKING:
    from xttsbench.step.sampler import StackSampler
    from xttsbench.worker.script.process import Process
    from xttsbench.worker.step_profile import OpCounter


@functools.cache
def _main_clock() -> int:
    """The processor clock of the main thread, which other threads can read too."""
    return time.pthread_getcpuclockid(threading.main_thread().ident or 0)


@dataclass(slots=True)
class Moment:
    """What was counted so far: the watch's counters, processor time of the process and of its main thread."""

    counters: tuple[int, ...]
    cpu_ns: int
    main_cpu_ns: int

    @classmethod
    def now(cls, watch: Watch) -> Moment:
        """Read everything."""
        return cls(watch.counters(), time.process_time_ns(), time.clock_gettime_ns(_main_clock()))

    def since(self, before: Moment, parts: int = 1) -> list[Moment]:
        """What was added since then, for each of so many steps: clocks spread evenly, events on the first."""
        added = [now - then for now, then in zip(self.counters, before.counters, strict=True)]
        cpu, main = self.cpu_ns - before.cpu_ns, self.main_cpu_ns - before.main_cpu_ns
        if parts == 1:  # nearly always, and in every step
            return [Moment(tuple(added), max(cpu, 0), max(main, 0))]
        calls, calls_ns = added[:2]
        nothing = [0] * (len(added) - 2)
        return [
            Moment(
                (
                    calls * (part + 1) // parts - calls * part // parts,
                    calls_ns // parts,
                    *(added[2:] if part == 0 else nothing),
                ),
                max(cpu, 0) // parts,
                max(main, 0) // parts,
            )
            for part in range(parts)
        ]


def row(
    start_ns: int,
    wall_ns: int,
    wait_ns: int,
    added: Moment,
    shape: tuple[int, int, int],
    *,
    epoch: int = 0,
    device_ns: int = 0,
    emulated_ns: int = 0,
    pause_ns: int = 0,
) -> StepRow:
    """One row of a step.

    ``added`` is what was counted in the step; ``shape`` the index of the batch's signature, its first dimension and its
    numbers in all.
    """
    calls, calls_ns, traces, trace_ns, syncs, sync_ns, gc_ns = added.counters
    shape_id, size, elements = shape
    pause_ns = min(pause_ns, wall_ns)
    wait_ns = min(wait_ns, wall_ns - pause_ns)
    step_ns = wall_ns - pause_ns - wait_ns
    # Of calls that are seen from a loop inside them only the part that is no wait belongs to the step.
    calls_ns = min(calls_ns, step_ns)
    return StepRow(
        start_ns=start_ns,
        wall_ns=wall_ns,
        wait_ns=wait_ns,
        step_ns=step_ns,
        device_ns=device_ns,
        emulated_ns=emulated_ns,
        trace_ns=trace_ns,
        traces=traces,
        sync_ns=sync_ns,
        syncs=syncs,
        gc_ns=gc_ns,
        calls=calls,
        calls_ns=calls_ns,
        cpu_ns=added.cpu_ns,
        main_cpu_ns=added.main_cpu_ns,
        batch_size=size,
        batch_elements=elements,
        shape_id=shape_id,
        epoch=epoch,
        pause_ns=pause_ns,
    )


_FIRST_STEPS: Final = 8
_SECOND_AFTER: Final = 60
_BOUT_S: Final = 1.5
_BOUTS: Final = 2
_UNKNOWN_AFTER: Final = 30
"""A loop that takes no gradients has an anatomy only after so many steps: it may be over soon."""


class Bouts:
    """The first bout takes a few steps after the warm-up, so that a short script has some left to time.

    A loop that goes on gets a second, longer one, whose result replaces the first's.
    """

    def __init__(self, watch: Watch) -> None:
        self.running = False
        self._loop: Loop | None = None
        self._asking = False
        self._watch = watch
        self._done = 0
        self._steps = 0
        self._ops: OpCounter | None = None
        self._sampler: StackSampler | None = None
        self._until = 0.0
        self._calls = 0

    def leave_out(self) -> None:
        """Begin no more of them: what they add to a step is in no step that is timed."""
        self._done = _BOUTS

    def due(self, loop: Loop, *, main: bool) -> bool:
        """Whether a bout should begin with the next step of this loop."""
        if self.running or loop.warming or not (main or loop.trains or loop.steps >= _UNKNOWN_AFTER):
            return False
        return self._done == 0 or (self._done == 1 and loop.measured >= _SECOND_AFTER)

    def begin(self, loop: Loop) -> None:
        """Begin with the next step of that loop; this pauses the script, and imports Keras where the script did not."""
        from xttsbench.step.sampler import StackSampler
        from xttsbench.worker.step_profile import OpCounter

        self._watch.watch_calls()
        self._ops, self._sampler = OpCounter(), StackSampler(input_runs=True)
        self._steps, self._calls = 0, self._watch.counters()[0]
        self._ops.__enter__()
        self._sampler.__enter__()
        self._sampler.step = 0
        self._until = time.perf_counter() + _BOUT_S
        self._loop, self._asking, self.running = loop, False, True

    def asking(self, now: bool) -> None:
        """The script asks for data from now on (or has it): that is no part of its step."""
        if self._sampler is not None and self._ops is not None and now != self._asking:
            self._asking = now
            self._sampler.step = None if now else self._steps
            if now:
                self._ops.__exit__()
            else:
                self._ops.__enter__()

    def step_ended(self, loop: Loop) -> Anatomy | None:
        """Count a step of the bout; its anatomy once the bout is over, which a step of another loop makes it too."""
        if loop is not self._loop:
            return self.finish()
        self._steps += 1
        if self._sampler is not None:
            self._sampler.step = self._steps
        if time.perf_counter() < self._until and (self._done or self._steps < _FIRST_STEPS):
            return None
        return self.finish()

    def finish(self) -> Anatomy | None:
        """End the bout; ``None`` where no step of it ended."""
        if self._ops is None or self._sampler is None:
            return None
        from xttsbench.worker.step_profile import summarise

        if not self._asking:
            self._ops.__exit__()
        self._sampler.__exit__()
        ops, sampler, self._ops, self._sampler, self.running = self._ops, self._sampler, None, None, False
        self._done += 1
        if not self._steps:
            return None
        return summarise(ops, sampler, self._steps, self._watch.counters()[0] - self._calls)


_TELL_S: Final = 2.0
_PATIENCE: Final = 2.0
"""A loop without gradients is taken for the main one after so many windows."""


class Results:
    """Takes rows, and says when enough were measured.

    Rows are added by the script's main thread, and another one tells of them; :attr:`lock` is held for both.
    """

    def __init__(self, process: Process, watch: Watch) -> None:
        spec = process.spec
        self.lock = threading.RLock()
        self.loops = Loops(round(spec.window_s * _PATIENCE * 1e9), process.channel.rows)
        self.limit = Limit(spec.steps, spec.window_s, spec.min_steps)
        accelerator = EmulatedAccelerator(spec.emulated_ms) if spec.emulated_ms else None
        self.bench = Bench(process.channel, watch, accelerator, synchroniser())
        self.datasets = 0
        self.step_function: str | None = None
        self.steps_per_call = 1
        self.unmeasured: dict[str, str] = {}
        self._process = process
        self._children = ChildrenCpu()
        self._spread = 0
        self._phase = ""
        self._told_s = time.monotonic()
        self.bench.compilations.begin()

    def add(self, loop: Loop, row: StepRow, *, traced: bool) -> None:
        """Write a step's row."""
        with self.lock:
            found = self.loops.add(loop, row, traced=traced)
            if self.loops.choose() is loop and self._phase != (phase := "warm_up" if loop.warming else "as_is"):
                self._phase = phase
                self.bench.channel.phase(phase)
        if found is not None:
            self.bench.compilations.step_ended(*found, row.step_ns - row.emulated_ns, row.shape_id)

    def enough(self) -> bool:
        """Whether the main loop has the steps and the time that were asked for."""
        main = self.loops.main
        return main is not None and self.limit.reached(main.measured, main.measured_ns / 1e9)

    def tell(self) -> None:
        """Say how the script goes, and add the processor time of the processes that it started to its rows."""
        with self.lock:
            main = self.loops.main
            changed: dict[str, Any] = {
                "iterations": (main.how,) if main is not None else (),
                "steps_per_call": self.steps_per_call,
                "step_function": self.step_function,
                "datasets": self.datasets,
                "steps_seen": main.steps if main is not None else 0,
                "unmeasured": dict(self.unmeasured),
            }
            if self._process.run.model_copy(update=changed) != self._process.run:
                self._process.tell(**changed)
            if main is not None and (segment := main.segments.get("as_is")) is not None:
                self._children.spread(segment, self._spread)
                self._spread = segment.count

    def tell_if_due(self) -> None:
        """Do so every two seconds; called from another thread, so that the script does not wait for it."""
        if time.monotonic() - self._told_s > _TELL_S:
            self._told_s = time.monotonic()
            self.tell()

    def end(self) -> None:
        """The script is over: whichever loop took most is the main one, and everything is told."""
        with self.lock:
            if self.loops.choose(over=True) is None:
                self.unmeasured["steps"] = "no batch of a tf.data.Dataset was taken on the script's main thread"
            self.tell()
        self.bench.compilations.end()

    def batches(self, dataset: Any) -> None:
        """Send the shapes that were seen."""
        static = str(getattr(dataset, "element_spec", ""))[:500]
        shapes = tuple(str(list(signature)) for signature in self.bench.shapes)[:50]
        self.bench.channel.part("batches", Batches(cached=0, bytes=0, shapes=shapes, static_signature=static))

    def shape_of(self, batch: Any) -> tuple[int, int, int]:
        """Index of the batch's signature, its first dimension and its numbers, over all replicas."""
        shape_id, size, elements, _ = self.bench.shape_of(batch)
        first = next(iter(tf.nest.flatten(batch)), None)
        replicas = len(first.values) if isinstance(first, tf.distribute.DistributedValues) else 1
        return shape_id, size * replicas, elements

    def shape_in_graph(self, size: int, elements: int) -> tuple[int, int, int]:
        """The same of a batch that was in a graph alone, from what was stamped: its sizes stand for its shape."""
        signature: tuple[tuple[int, ...], ...] = ((size,), (elements,))
        known = self.bench.shapes.get(signature)
        if known is None:
            known = self.bench.shapes[signature] = (len(self.bench.shapes), size, elements, 0)
        return known[0], size, elements
