"""The quick path of a loop in Python whose steps are all alike: one row a step, and nothing else.

After tens of milliseconds in other code each line here comes from memory that is far from the processor, and takes
several times as long as in a fast loop. So what ends one step and begins the next is a single function without calls of
ours, and all that can wait is done for many steps at once.
"""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tensorflow.python.eager import context

from xttsbench.records.rows import SegmentRows
from xttsbench.step.watch import Moment

if TYPE_CHECKING:
    from xttsbench.worker.script.eager import Open
    from xttsbench.worker.script.recorder import Recorder

_SHAPE_OF: Final = operator.methodcaller("_shape_tuple")
_NOBODY: Final[Callable[[], Any]] = type(None)
"""Called, it gives ``None``, as the weak reference to an iterator that is gone does."""
_CPU_NS: Final = 250_000_000
"""The process's processor time is read this often: the kernel adds up all of its threads. Rows share what was added."""
_SLOWER_NS: Final = 10_000_000
"""A step this much slower than the fastest is looked at by itself: something may have been compiled in it."""


@dataclass(slots=True, eq=False)
class SteadyLoop:
    """The open step of such a loop; what is known of it goes back to :class:`Open` when anything else happens."""

    recorder: Recorder
    iterator: Callable[[], Any] = _NOBODY
    append: Callable[[tuple[int, ...]], int] = field(init=False)
    segment: SegmentRows = field(init=False)
    shapes: dict[tuple[tuple[int, ...], ...], tuple[int, int, int, int]] = field(default_factory=dict)
    batch: Any = None
    counts: tuple[int, ...] = ()
    cpu_due_ns: int = 0
    epoch: int = 0
    last_ns: int = 0
    slow_ns: int = 0
    start_ns: int = 0
    wait_ns: int = 0
    _current: Open | None = None
    _settled: int = 0
    _ended_ns: int = 0
    _fastest_ns: int = 0
    _cpu_ns: int = 0
    _cpu_row: int = 0
    _cpu_since_ns: int = 0

    def begin(self, iterator: Callable[[], Any], current: Open) -> None:
        """The next step of this loop is like those before; the open one has its batch. ``iterator`` refers weakly."""
        moment = current.moment
        self.segment = current.loop.segments["as_is"]
        self.append = self.segment.append
        self.shapes = self.recorder.results.bench.shapes
        self.last_ns, self.start_ns, self.wait_ns = current.last_ns, current.start_ns, current.wait_ns
        self.counts, self.batch = moment.counters, current.batch
        self._cpu_ns, self._cpu_row, self._cpu_since_ns = moment.cpu_ns, self.segment.count, current.last_ns
        self.cpu_due_ns = current.last_ns + _CPU_NS
        self.epoch = max(current.loop.epochs - 1, 0)
        self._settled, self._ended_ns = self.segment.count, current.last_ns
        self.slow_ns = self._fastest_ns = 0
        self._current, current.batch = current, None
        self.iterator = iterator

    def stop(self) -> None:
        """No request is quick any more; the next one leaves."""
        self.iterator = _NOBODY

    def leave(self) -> None:
        """The open step ends in another way than those before it."""
        current = self._current
        if current is None:
            return
        self.stop()
        self.settle()
        self._current = None
        current.last_ns, current.start_ns, current.wait_ns = self.last_ns, self.start_ns, self.wait_ns
        self.share_cpu(time.perf_counter_ns())
        current.moment = Moment(self.counts, self._cpu_ns, 0)
        current.batch, self.batch = self.batch, None
        current.got_ns = self.start_ns + self.wait_ns if current.batch is not None else 0

    def share_cpu(self, now_ns: int) -> None:
        """Add the processor time since the last reading to the rows since then, but for the open step's part."""
        ended_ns, added_ns = self.last_ns - self._cpu_since_ns, time.process_time_ns() - self._cpu_ns
        added_ns = added_ns * ended_ns // max(now_ns - self._cpu_since_ns, 1)
        self.segment.share_out(self._cpu_row, added_ns)
        self._cpu_ns += added_ns
        self._cpu_row, self._cpu_since_ns, self.cpu_due_ns = self.segment.count, self.last_ns, now_ns + _CPU_NS

    def settle(self) -> None:
        """Count the steps that have ended since the last time; called now and then from another thread."""
        results = self.recorder.results
        with results.lock:
            current, count = self._current, self.segment.count if self._current is not None else 0
            steps = count - self._settled
            if current is None or not steps:
                return
            loop, watch, compilations = current.loop, self.recorder.watch, results.bench.compilations
            times = self.segment.values("step_ns", self._settled, count)
            shapes = self.segment.values("shape_id", self._settled, count)
            for index, step_ns in times.items():
                if not step_ns > self.slow_ns > 0:  # else it was looked at when it ended
                    compilations.step_ended(self.segment, index, step_ns, shapes[index])
            fastest_ns = min(times.values())
            self._fastest_ns = min(fastest_ns, self._fastest_ns or fastest_ns)
            self.slow_ns = self._fastest_ns + _SLOWER_NS
            ended_ns = self.last_ns
            loop.count_measured(steps, ended_ns - self._ended_ns)
            loop.trains = loop.trains or self.recorder.tapes != current.tapes
            self._settled, self._ended_ns = count, ended_ns
            watch.step_ended(steps)
            if self.recorder.windows.due(loop, main=loop is results.loops.main):
                self.stop()

    def around(self, original: Callable[..., Any], otherwise: Callable[..., Any], watched: Any) -> Callable[..., Any]:
        """A request for a batch that is quick for the iterator of this loop, and ``otherwise`` for all others."""
        recorder, watch = self.recorder, self.recorder.watch
        counters, clock = watch.counts, time.perf_counter_ns
        main, me = threading.main_thread().ident, threading.get_ident
        eager, shape_of = context.executing_eagerly, _SHAPE_OF

        def request(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            if self.iterator() is not iterator or watched.requesting or args or kwargs or me() != main or not eager():
                return otherwise(iterator, *args, **kwargs)
            now, batch = clock(), self.batch
            parts: Any = batch.values() if type(batch) is dict else batch if type(batch) is tuple else (batch,)
            try:
                shape = self.shapes[tuple(map(shape_of, parts))]
            except (AttributeError, KeyError):
                shape = recorder.results.shape_of(batch)
            shape_id, size, elements, frames = shape
            calls_0, calls_ns_0, traces_0, trace_ns_0, syncs_0, sync_ns_0, gc_ns_0 = self.counts
            self.counts = calls, calls_ns, traces, trace_ns, syncs, sync_ns, gc_ns = tuple(counters)
            last_ns, start_ns, wait_ns = self.last_ns, self.start_ns, self.wait_ns
            step_ns = now - start_ns - wait_ns
            calls_ns -= calls_ns_0
            # In the order of StepRow, and without a call: that is what makes this path the quick one.
            times = start_ns, now - last_ns, wait_ns, step_ns, 0, 0, trace_ns - trace_ns_0, traces - traces_0, 0, 0
            counts = sync_ns - sync_ns_0, syncs - syncs_0, gc_ns - gc_ns_0, calls - calls_0
            inside_ns = calls_ns if calls_ns < step_ns else step_ns
            of_batch = size, elements, shape_id, self.epoch, frames, start_ns - last_ns, -1, 0, 0
            index = self.append((*times, *counts, inside_ns, 0, 0, *of_batch))
            self.last_ns = self.start_ns = now
            if now > self.cpu_due_ns:
                self.share_cpu(now)
            if step_ns > self.slow_ns > 0:
                recorder.results.bench.compilations.step_ended(self.segment, index, step_ns, shape_id)
            self.batch = batch = parts = None  # it is not kept while the next one is made
            watched.requesting = True
            watch.step += 1
            try:
                self.batch = batch = original(iterator)
            except BaseException:
                self.wait_ns, watched.requesting = clock() - now, False
                self.leave()
                raise
            self.wait_ns, watched.requesting = clock() - now, False
            return batch

        return request
