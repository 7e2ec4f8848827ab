"""What is sent of a script's loops: rows of the main one, its anatomy, its batches, and how it takes them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

import tensorflow as tf

from xttsbench.records.step_row import StepRow
from xttsbench.records.trial import Batches
from xttsbench.step.synchronise import synchroniser
from xttsbench.step.watch import Watch
from xttsbench.worker.accelerator import EmulatedAccelerator
from xttsbench.worker.bench import Bench, Limit
from xttsbench.worker.recorder import Recorder
from xttsbench.worker.script.loops import Loop, Loops, send_rows

if TYPE_CHECKING:
    from xttsbench.worker.script.process import Process

_FLUSH_NS: Final = 400_000_000
_TELL_NS: Final = 2_000_000_000
_PATIENCE: Final = 2.0
"""A loop without gradients is taken for the main one after so many windows."""


class Results:
    """Collects rows, sends those of the main loop, and says when enough were measured.

    Rows may be added by the script's main thread and flushed by another one; :attr:`lock` is held for both.
    """

    def __init__(self, process: Process, watch: Watch) -> None:
        spec = process.spec
        self.lock = threading.RLock()
        self.loops = Loops(round(spec.window_s * _PATIENCE * 1e9))
        self.limit = Limit(spec.steps, spec.window_s, spec.min_steps)
        accelerator = EmulatedAccelerator(spec.emulated_ms) if spec.emulated_ms else None
        self.bench = Bench(process.channel, watch, accelerator, synchroniser())
        self.datasets = 0
        self.step_function: str | None = None
        self.steps_per_call = 1
        self.unmeasured: dict[str, str] = {}
        self._process = process
        self._recorders: dict[str, Recorder] = {}
        self._sent_ns = 0
        self._told_ns = 0

    def add(self, loop: Loop, row: StepRow, *, traced: bool) -> None:
        """Keep a step's row, and send the main loop's where it is time to."""
        with self.lock:
            loop.add(row, traced=traced)
            main = self.loops.choose()
            if main is not loop:
                if main is not None:
                    loop.rows.clear()
                return
            self._hand_on(main)
            now = time.perf_counter_ns()
            if row.wall_ns > 10_000_000 or now - self._sent_ns > _FLUSH_NS:
                self.flush(rows_only=now - self._told_ns < _TELL_NS)

    def enough(self) -> bool:
        """Whether the main loop has the steps and the time that were asked for."""
        main = self.loops.main
        return main is not None and self.limit.reached(main.measured, main.measured_ns / 1e9)

    def flush(self, *, rows_only: bool = False) -> None:
        """Send the rows that are pending, and how the script goes."""
        with self.lock:
            self._sent_ns = time.perf_counter_ns()
            for recorder in self._recorders.values():
                recorder.flush()
            if rows_only:
                return
            self._told_ns = self._sent_ns
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

    def flush_if_late(self) -> None:
        """Send what a step that does not end keeps from being sent; called from another thread."""
        if time.perf_counter_ns() - self._sent_ns > _FLUSH_NS and self._recorders:
            self.flush()

    def end(self) -> None:
        """The script is over: whichever loop took most is the main one, and everything is sent."""
        with self.lock:
            main = self.loops.choose(over=True)
            if main is None:
                self.unmeasured["steps"] = "no batch of a tf.data.Dataset was taken on the script's main thread"
            else:
                self._hand_on(main)
            self.flush()

    def batches(self, dataset: Any) -> None:
        """Send the shapes that were seen."""
        static = str(getattr(dataset, "element_spec", ""))[:500]
        shapes = tuple(str(list(signature)) for signature in self.bench.shapes)[:50]
        self.bench.channel.part("batches", Batches(cached=0, bytes=0, shapes=shapes, static_signature=static))

    def shape_of(self, batch: Any) -> tuple[int, int, int]:
        """Index of the batch's signature, its first dimension and its numbers, over all replicas."""
        shape_id, size, elements, _ = self.bench._shape(batch)
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

    def _hand_on(self, main: Loop) -> None:
        def send(segment: str, row: StepRow) -> None:
            recorder = self._recorders.get(segment)
            if recorder is None:
                recorder = self._recorders[segment] = Recorder(self.bench.channel, segment)
                self.bench.channel.phase(segment)
                if segment == "as_is":
                    recorder.warmup(1)
            recorder.add(row)

        send_rows(main, send)
