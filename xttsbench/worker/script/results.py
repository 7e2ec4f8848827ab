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
from xttsbench.worker.children import ChildrenCpu
from xttsbench.worker.script.loops import Loop, Loops

if TYPE_CHECKING:
    from xttsbench.worker.script.process import Process

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
