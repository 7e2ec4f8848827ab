"""Recordings of a script's loops: rows of their steps, sampled windows of the main one, and progress."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Hashable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import tensorflow as tf

from xttsbench.probes.clock import EmulatedAccelerator
from xttsbench.probes.procfs import ChildrenCpu
from xttsbench.records.rows import StepRow
from xttsbench.records.trial import Batches
from xttsbench.step.frames import StackSampler
from xttsbench.step.modes import synchroniser
from xttsbench.step.op_trace import OpCounter
from xttsbench.step.watch import Moment, Watch
from xttsbench.worker.bench import Bench, Limit
from xttsbench.worker.channel import ScriptReport, StoppedByUs
from xttsbench.worker.profile.step import summarise
from xttsbench.worker.profile.window import ProfiledSteps
from xttsbench.worker.script.keras_calls import KerasCallsHeard
from xttsbench.worker.script.loop import Loop, Loops

if TYPE_CHECKING:
    from xttsbench.worker.script.replaced import ReplacedStep

_FIRST_STEPS: Final = 8
_SECOND_AFTER: Final = 60
_WINDOW_S: Final = 1.5
_WINDOWS: Final = 2
_UNKNOWN_AFTER: Final = 30  # A loop that takes no gradients has a profile only after so many steps: it may be over soon
_TELL_S: Final = 2.0
_MOST_SHAPES: Final = 5000
"""Shapes that are told apart in a run of any length: rows of what comes later bear numbers that were used before."""
_PATIENCE: Final = 2.0  # A loop without gradients is taken for the main one after so many of the trial's windows


class SamplingWindows:
    """Two stretches of the script's own steps that are sampled and counted, and that no timing uses.

    The first takes a few steps after the warm-up, so that a short script has some left to time. A loop that goes on
    gets a second, longer one, whose profile replaces the first's.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._loop: Loop | None = None
        self._tools: tuple[OpCounter, StackSampler] | None = None
        self._asking = False
        self._done = self._steps = self._calls = 0
        self._so_far: tuple[Counter[str], int, int] = Counter(), 0, 0
        """Ops, their nanoseconds and calls of tf.functions, up to the end of the last step."""
        self._until = 0.0

    @property
    def running(self) -> bool:
        """Whether a window has begun and not ended."""
        return self._tools is not None

    def runs_in(self, loop: Loop) -> bool:
        """Whether a window of this very loop has begun and not ended."""
        return self.running and loop is self._loop

    def leave_out(self) -> None:
        """Begin no more of them: what they add to a step is in no step that is timed."""
        self._done = _WINDOWS

    def due(self, loop: Loop, *, main: bool) -> bool:
        """Whether a window should begin with the next step of this loop."""
        if self.running or loop.warming or not (main or loop.trains or loop.steps >= _UNKNOWN_AFTER):
            return False
        return self._done == 0 or (self._done == 1 and loop.measured >= _SECOND_AFTER)

    def begin(self, loop: Loop) -> None:
        """Begin with the next step of that loop; this pauses the script."""
        self._watch.watch_calls()
        ops, sampler = self._tools = OpCounter(), StackSampler(input_runs=True)
        self._steps, self._calls = 0, self._watch.counters()[0]
        ops.__enter__()
        sampler.__enter__()
        sampler.step = 0
        self._until = time.perf_counter() + _WINDOW_S
        self._loop, self._asking = loop, False

    def asking(self, now: bool) -> None:
        """The script asks for data from now on (or has it): that is no part of its step."""
        if self._tools is None or now == self._asking:
            return
        ops, sampler = self._tools
        self._asking = now
        sampler.step = None if now else self._steps
        if now:
            ops.__exit__()
        else:
            ops.__enter__()

    def step_ended(self, loop: Loop) -> Any:
        """Count a step of the window; its profile once it is over, which a step of another loop makes it too."""
        if self._tools is None or loop is not self._loop:
            return self.finish()
        self._steps += 1
        ops, sampler = self._tools
        sampler.step = self._steps
        self._so_far = Counter(ops.counts), ops.time_ns, self._watch.counters()[0]
        if time.perf_counter() < self._until and (self._done or self._steps < _FIRST_STEPS):
            return None
        return self.finish()

    def finish(self) -> Any:
        """End the window; ``None`` where no step of it ended, or none has begun.

        What comes behind the last of them, a script's evaluation or its plots, is no part of a step.
        """
        if self._tools is None:
            return None
        (ops, sampler), self._tools = self._tools, None
        if not self._asking:
            ops.__exit__()
        sampler.__exit__()
        self._done += 1
        if not self._steps:
            return None
        sampler.forget(self._steps)
        ops.counts, ops.time_ns, calls = self._so_far
        return summarise(ops, sampler, self._steps, calls - self._calls)


class Results:
    """Takes rows, and tells how the script goes.

    Rows are added by the script's main thread, and another one tells of them; :attr:`lock` is held for both.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._report = report = recorder.report
        self._keras_calls = recorder.keras_calls
        self.lock = threading.RLock()
        self.loops = recorder.make_loops()
        emulated_ms = report.spec.emulated_ms
        accelerator = EmulatedAccelerator(emulated_ms) if emulated_ms else None
        self.bench = Bench(report.channel, recorder.watch, accelerator, synchroniser() if recorder.stops else None)
        self.datasets = self.lost_steps = self.between_fits_ns = 0
        self.step_function: str | None = None
        self.steps_per_call = 1
        self.unmeasured: dict[str, str] = {}
        self._children, self._spread = ChildrenCpu(), 0
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

    def tell(self) -> None:
        """Say how the script goes, and add the processor time of the processes that it started to its rows."""
        with self.lock:
            main = self.loops.main
            self._report.tell(
                iterations=(main.how,) if main is not None else (),
                steps_per_call=self.steps_per_call,
                step_function=self.step_function,
                datasets=self.datasets,
                between_fits_s=self.between_fits_ns / 1e9,
                steps_seen=main.steps if main is not None else 0,
                lost_steps=self.lost_steps,
                data=main.data if main is not None else None,
                own_batches=main.own.found if main is not None and main.own is not None else None,
                keras_calls=self._keras_calls.record(),
                trains=main is not None and main.trains,
                unmeasured=dict(self.unmeasured),
            )
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

    def batches(self) -> None:
        """Send the shapes that were seen."""
        shapes = tuple(str(list(signature)) for signature in self.bench.shapes)[:50]
        self.bench.channel.part("batches", Batches(cached=0, bytes=0, shapes=shapes))

    def shape_of(self, batch: Any) -> tuple[int, int, int, int]:
        """Index of the batch's signature, its first dimension and its numbers, over all replicas; no frames."""
        self._bound_shapes()
        shape_id, size, elements, _ = known = self.bench.shape_of(batch)
        parts = batch.values() if type(batch) is dict else batch if type(batch) is tuple else (batch,)
        if all([hasattr(part, "_shape_tuple") for part in parts]):  # plain tensors, as nearly always
            return known
        first = next(iter(tf.nest.flatten(batch)), None)
        replicas = len(first.values) if isinstance(first, tf.distribute.DistributedValues) else 1
        return shape_id, size * replicas, elements, 0

    def shape_in_graph(self, size: int, elements: int) -> tuple[int, int, int, int]:
        """The same of a batch that was in a graph alone, from what was stamped: its sizes stand for its shape."""
        self._bound_shapes()
        signature: tuple[tuple[int, ...], ...] = ((size,), (elements,))
        return self.bench.shapes.setdefault(signature, (len(self.bench.shapes), size, elements, 0))

    def _bound_shapes(self) -> None:
        if len(self.bench.shapes) >= _MOST_SHAPES:
            self.bench.shapes.clear()


class Recorder:
    """State that all loops of a script share: counters, rows, sampling windows, and the wish that the script may end.

    Attributes:
        tapes: gradient tapes that were entered so far.
        stopping_since: when the script was first to be stopped, ``time.monotonic``; ``None`` as long as it is not.
        grace_s: a script that was told to stop gets so long to end, its own ``finally`` clauses included.
        between_calls: whether rows of loops in graphs are wanted whenever a call of one returns.
        stops: whether the script may be stopped, held up between two steps, or have its device waited for; what it
            leaves behind is read then, too.
    """

    grace_s = 20.0
    between_calls = False
    stops = True

    def __init__(self, report: ScriptReport) -> None:
        self.report = report
        self.watch = Watch()
        self.windows = SamplingWindows(self.watch)
        self.keras_calls = KerasCallsHeard(self.watch)
        self.tapes = 0
        self.stopping_since: float | None = None
        self.replaced: ReplacedStep | None = None
        """Stand-in for the training step, behind an emulated accelerator."""
        self.profiled = ProfiledSteps(os.path.abspath(directory)) if (directory := report.spec.profile_dir) else None
        self._profiled_loop: Loop | None = None

    @cached_property
    def results(self) -> Results:
        """The results, which ask for devices; so they are made when the script has made its settings."""
        from xttsbench.worker.trial import devices_seen  # here: with it comes Keras, which the script may do without

        results = Results(self)
        self.report.channel.part("devices", devices_seen())
        return results

    def make_loops(self) -> Loops:
        """The loops; made once."""
        return Loops(round(self.report.spec.window_s * _PATIENCE * 1e9), self.report.channel.rows)

    def enough(self) -> bool:
        """Whether the main loop has the steps and the time that were asked for.

        Where the script calls ``fit`` for each batch the time between two calls counts, too: it is most of the loop's.
        """
        spec, main = self.report.spec, self.results.loops.main
        limit = Limit(spec.steps, spec.window_s, spec.min_steps)
        if main is None or limit.reached(main.measured, main.measured_ns / 1e9):
            return main is not None
        between_ns = self.results.between_fits_ns
        return limit.reached(main.measured, (main.measured_ns + between_ns) / 1e9) and self.keras_calls.fits_each_batch

    @property
    def has_results(self) -> bool:
        """Whether anything was recorded by now."""
        return "results" in self.__dict__

    def in_window(self, loop: Loop) -> bool:
        """Whether the step that ends now was one of a window that no timing uses; ends it when it has its steps."""
        if self.profiled is not None and self.profiled.running:
            if loop is self._profiled_loop:
                self.profiled.step_ended()
            return True
        if not self.windows.running:
            return False
        self.send_profile(self.windows.step_ended(loop))
        return True

    def _begins_profile(self, loop: Loop) -> bool:
        """Begin to profile the steps of the main loop, where that was asked for and was not done yet."""
        if self.profiled is None or self._profiled_loop is not None or loop is not self.results.loops.main:
            return False
        self._profiled_loop = loop
        return self.profiled.begin()

    def send_profile(self, profile: Any) -> None:
        """Send what a window showed, if it showed anything."""
        if profile is not None:
            self.report.channel.part("anatomy", profile)

    def wants_rows(self, loop: Loop, steps: int) -> bool:
        """Whether the rows of a loop of ``fit`` are wanted at once: of so many steps there are none yet."""
        return False

    def after_step(self, loop: Loop) -> bool:
        """Between two steps: begin a sampling window, or have the script stop, after a profile where one is wanted.

        Returns whether the script was held up here for long.
        """
        if self.profiled is not None and self.profiled.running:
            return False
        if self.enough():
            if not self._begins_profile(loop):
                self.stop()
        elif self.stopping_since is None and self.windows.due(loop, main=loop is self.results.loops.main):
            self.windows.begin(loop)
        return False

    def key_of_fit(self, model: Any) -> Hashable:
        """Key of the loop of a call of ``fit``."""
        return "fit", id(model)

    def next_poll_s(self) -> float:
        """From one reading of what was stamped in graphs to the next."""
        return 0.25

    def opening(self, closed: Moment | None) -> Moment:
        """The counters at the begin of a step; ``closed`` has them at the end of the one before."""
        return Moment.now(self.watch)

    def closing(self) -> Moment:
        """The counters at the end of a step."""
        return Moment.now(self.watch)

    def stop(self) -> None:
        """Have the script stop at its next request, call or batch."""
        if self.stopping_since is None:
            self.stopping_since = time.monotonic()

    def check_stop(self) -> None:
        """Raise :class:`StoppedByUs` where the script is to stop."""
        if self.stopping_since is not None:
            raise StoppedByUs("xttsbench has measured enough steps")
