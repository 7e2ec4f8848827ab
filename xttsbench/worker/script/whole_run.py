"""Recordings of a run that goes on to its end: rows in a ring, a few counted steps, rare samples.

The script is never stopped and its device never waited for. Instead of two stretches in which every millisecond is
sampled, the main thread is sampled ten times a second at most, all along, and the ops of a few steps are counted that
no timing uses. All that grows goes to whoever listens. The process may be a script's, or the caller's own, watched from
now on: for a Keras callback, and for loops around their own data.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final

import tensorflow as tf

from xttsbench.owners import KERAS
from xttsbench.records.rows import RowMemory, SegmentRows, StepRow
from xttsbench.records.trial import TrialSpec
from xttsbench.step.modes import keras_package
from xttsbench.step.op_trace import OpCounter
from xttsbench.step.watch import Moment, Watch
from xttsbench.worker.channel import DirectChannel, ScriptReport
from xttsbench.worker.script.eager import call_site
from xttsbench.worker.script.loop import Loop, Loops
from xttsbench.worker.script.patches import Patches, around_request, patch_keras, patch_tensorflow
from xttsbench.worker.script.ranks import Rank
from xttsbench.worker.script.recorder import Recorder, SamplingWindows
from xttsbench.worker.script.to_the_end import RareSamples
from xttsbench.worker.script.watched import Watched

_COUNTED_STEPS: Final = 2
_COUNT_AT: Final = (1, 100, 10_000, 1_000_000)  # Measured steps after which the ops of the next ones are counted
_POLL_S: Final = (0.5, 3.0)
_POLLED_STEPS: Final = 60


class TrainingLoops(Loops):
    """All loops that take gradients count as one, from where each is warm: a run may train in several places."""

    def counts(self, loop: Loop) -> bool:
        """Whether a loop is a part of what is watched, or may still become one."""
        return self.main is None or self.main is loop or loop.trains

    def add(self, loop: Loop, row: StepRow, *, traced: bool) -> tuple[SegmentRows, int] | None:
        """Write one step's row and return its place; ``None`` where the loop is not recorded."""
        if loop.trains and self.main is not None and loop is not self.main:
            loop.segments = self.main.segments
        return super().add(loop, row, traced=traced)


class CountedSteps(SamplingWindows):
    """A few steps now and then whose ops are counted, and which no timing uses."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch)
        self._counting: tuple[OpCounter, Loop] | None = None
        self._next = self._ended = self._calls_before = 0

    @property
    def running(self) -> bool:
        """Whether steps are counted now."""
        return self._counting is not None

    def due(self, loop: Loop, *, main: bool) -> bool:
        """Whether the ops of this loop's next steps should be counted."""
        wanted = (main or loop.trains) and not loop.warming and self._next < len(_COUNT_AT)
        return wanted and not self.running and loop.measured >= _COUNT_AT[self._next]

    def begin(self, loop: Loop) -> None:
        """Count with the next step of that loop."""
        self._watch.watch_calls()
        self._next += 1
        self._ended, self._calls_before = 0, self._watch.counters()[0]
        self._counting = OpCounter().__enter__(), loop

    def asking(self, now: bool) -> None:
        """Requests for data launch an op themselves, which is counted: it is one of many."""

    def step_ended(self, loop: Loop) -> dict[str, Any] | None:
        """Count a step; what was counted once there are enough, which a step of another loop ends, too."""
        if self._counting is None:
            return None
        ops, own = self._counting
        self._ended += loop is own
        if loop is own and self._ended < _COUNTED_STEPS:
            return None
        self.finish()
        return ops.per_step(self._ended, self._watch.counters()[0] - self._calls_before) if self._ended else None

    def finish(self) -> None:
        """End the counting; what comes behind the last step is none."""
        if self._counting is not None:
            self._counting[0].__exit__()
            self._counting = None


class WholeRunRecorder(Recorder):
    """State that all loops of a run share that is watched to its end."""

    stops = False

    def __init__(self, report: ScriptReport) -> None:
        super().__init__(report)
        self.windows = CountedSteps(self.watch)
        self._polled = (0, time.monotonic())

    def next_poll_s(self) -> float:
        """Rarer where steps are long: what a poll takes is shared by the steps since the one before.

        Steps per second count, not their own time: a loop in a graph does other things between its calls.
        """
        main = self.results.loops.main if self.has_results else None
        steps, now = main.measured if main is not None else 0, time.monotonic()
        added, elapsed_s = steps - self._polled[0], now - self._polled[1]
        self._polled = steps, now
        if not steps:
            return _POLL_S[0]
        return min(max(_POLLED_STEPS * elapsed_s / max(added, 1), _POLL_S[0]), _POLL_S[1])

    def make_loops(self) -> Loops:
        """The loops, of which all that train count."""
        return TrainingLoops(round(self.report.spec.window_s * 1e9), self.report.channel.rows)

    def enough(self) -> bool:
        """Never: the run ends where it ends."""
        return False

    def key_of_fit(self, model: Any) -> Hashable:
        """The place of the call: a model made anew for each fold is trained by the same loop."""
        return "fit", call_site()

    def closing(self) -> Moment:
        """The counters at the end of a step; the main thread's own clock would be one more call of the kernel."""
        return Moment(self.watch.counters(), time.process_time_ns(), 0)

    def opening(self, closed: Moment | None) -> Moment:
        """The counters at the begin of a step: those at the end of the one before, which is just over."""
        return closed or Moment.now(self.watch)

    def send_profile(self, profile: Any) -> None:
        """Send what was counted, if anything was."""
        if profile is not None:
            self.report.channel.send({"counted": profile})


class Attached:
    """Watches the process it is made in, on the main thread, until it is told that all is over.

    There is one at most: functions that are traced while it watches tell it of their waits, and no other. ``take``
    hears what is told, ``rows`` gets the steps.
    """

    def __init__(self, spec: TrialSpec, take: Callable[[dict[str, Any]], None], rows: RowMemory) -> None:
        channel = DirectChannel(take, rows)
        report = ScriptReport(spec, channel)
        self.watched = Watched(report, lambda _: None, WholeRunRecorder(report))
        self.watched.before_fit = self._traced_anew
        self._models: weakref.WeakSet[Any] = weakref.WeakSet()
        self._patches = Patches()
        patch_tensorflow(self.watched, self._patches)
        for package in {keras_package(), *(one for one in KERAS if one in sys.modules)}:
            patch_keras(self.watched, self._patches, package)
        self._patches.put(Requests, "__next__", around_request(self.watched))
        self.watched.begin()
        self._samples = RareSamples(
            lambda held: channel.send({"samples": held}) if held else None,
            lambda: self.watched.requesting,
            heard=Rank(self.watched, self._patches).sampled,
        )
        self._samples.start()

    def _traced_anew(self, model: Any, arguments: dict[str, Any]) -> None:
        """Have a model forget the function that ``fit`` traced before anyone watched, whose waits would not be seen."""
        if model not in self._models:
            self._models.add(model)
            model.train_function = None

    def close(self) -> None:
        """Watch no more, and put TensorFlow back as it was."""
        self.watched.leave()
        self.watched.recorder.windows.finish()
        self._samples.end()
        self._patches.undo()
        self.watched.recorder.watch.__exit__()

    def tell(self) -> None:
        """Have everything told that is known by now: what was stamped in graphs, and which loop trains."""
        recorder = self.watched.recorder
        if not recorder.has_results:
            return
        self.watched.eager.steady.settle()
        with recorder.results.lock:
            self.watched.add_rows()
            recorder.results.loops.choose(over=True)
            recorder.results.tell()
        if self.watched.on_poll is not None:
            self.watched.on_poll()

    def around(self, data: Iterable[Any]) -> Iterator[Any]:
        """An iterator over data; one over a dataset of TensorFlow's is seen by itself."""
        iterator = iter(data)
        seen = isinstance(data, tf.data.Dataset | tf.distribute.DistributedDataset)
        return iterator if seen else Requests(iterator)


class Requests:
    """Requests for batches from an iterator that TensorFlow knows nothing of."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._iterator)
