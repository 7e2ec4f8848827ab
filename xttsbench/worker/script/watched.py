"""A script as it is watched: what the patches tell goes to the loop that it belongs to; enough stops the script."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import tensorflow as tf

from xttsbench.pipeline import places
from xttsbench.worker.channel import ScriptReport
from xttsbench.worker.script.eager import EagerLoops, call_site, place_of
from xttsbench.worker.script.graph import FitSteps, GraphLoops
from xttsbench.worker.script.graph_clock import GraphClock, GraphTimestamp, Site
from xttsbench.worker.script.loop import Datasets, Loop, original
from xttsbench.worker.script.no_step import NoStep
from xttsbench.worker.script.recorder import Recorder
from xttsbench.worker.script.replaced import ReplacedStep

_ALIKE: Final = 20  # Calls of tf.functions, and none of them traced, after which nothing is asked about the next ones
_FEW_STEPS: Final = 4  # Steps within one call of a tf.function, on average, up to which a loop is held up between calls


class Watched:
    """Everything that is known of the script while it runs.

    A script that does not stop when it is asked to is ended by ``end_at_once``, called from another thread with the
    reason.
    """

    def __init__(
        self, report: ScriptReport, end_at_once: Callable[[str], None], recorder: Recorder | None = None
    ) -> None:
        self.active = False
        self.requesting = False
        self.requests = 0  # for batches, from Python
        self.expects_steps = False  # Batches of the script's own are known, and the first step that is told may be long
        self.fitting = False
        self.fit_dataset: Any = None
        self.datasets = Datasets()
        self.before_fit: Callable[[Any, dict[str, Any]], None] | None = None
        """Called with the model and the arguments of ``fit``, which it may change."""
        self.after_function: Callable[[Any, Any], None] | None = None
        """Called with what an outermost tf.function returned, and with ``None`` and the logs of a batch of ``fit``."""
        self.on_batch: Callable[[Loop, Any, int], None] | None = None
        """Called with the loop that got a batch in Python, and the number of its shape."""
        self.on_trace: Callable[[], None] | None = None
        """Called before a function is traced."""
        self.on_poll: Callable[[], None] | None = None
        """Called on the thread that tells how the script goes, each time that it does."""
        self.on_epoch: Callable[[], None] | None = None
        """Called when an epoch of ``fit`` begins."""
        self.recorder = recorder or Recorder(report)
        self.clock = GraphClock(self._site_made)
        self.eager = EagerLoops(self.recorder)
        self.fit = FitSteps(self.recorder, self.drain)
        self.graph = GraphLoops(self.recorder)
        self._end_at_once = end_at_once
        self._fit_groups: set[int] = set()
        self._training: set[int] = set()
        self._tapes_before = 0
        self._over = threading.Event()
        self._noted = ""
        self._no_step: NoStep | None = None
        self._alike = self._calls_before = 0
        self.recorder.watch.tell(self)
        if report.spec.emulated_ms:
            self.recorder.replaced = ReplacedStep(self)
            self.recorder.watch.instead = self.recorder.replaced.instead

    def begin(self) -> None:
        """Begin to watch; the patches are in place."""
        places.install()
        self.recorder.watch.__enter__()
        os.register_at_fork(after_in_child=self.leave)
        self.active = True
        if self.recorder.stops and (patience_s := self.recorder.report.spec.no_step_s) is not None:
            self._no_step = NoStep(self, patience_s)
        threading.Thread(target=self._poll, name="xttsbench-watch", daemon=True).start()

    def before_next(self, iterator: Any) -> None:
        """A request for a batch from Python."""
        self.requests += 1
        self.recorder.check_stop()
        if not self.fitting:
            self.eager.before_next(iterator)
            if self.eager.looks:
                self.recorder.watch.listen(to_calls=True)

    def waited(self, began_ns: int, ended_ns: int) -> None:
        """Time within a request that gave nothing, or in making an iterator."""
        if self.fitting:
            self.fit.requests.append(GraphTimestamp(began_ns, ended_ns, -1))
        else:
            self.eager.waited(began_ns, ended_ns)

    def after_next(self, began_ns: int, got_ns: int, batch: Any) -> None:
        """A request gave a batch."""
        if self.fitting:
            _, size, elements, _ = self.recorder.results.shape_of(batch)
            self.fit.requests.append(GraphTimestamp(began_ns, got_ns, size, elements))
        else:
            self.eager.got(began_ns, got_ns, batch)
        loop = self.fit.loop if self.fitting else self.eager.requesting
        if self.on_batch is not None and loop is not None:
            self.on_batch(loop, batch, self.recorder.results.shape_of(batch)[0])

    def dataset_begun(self, dataset: Any) -> Any:
        """An iterator of a dataset is made; of which is for :class:`Datasets` to say."""
        dataset = self.datasets.used(dataset)
        self.graph.last_dataset = dataset
        if not self.fitting:
            self.graph.begun.add(id(dataset))
        return dataset

    def dataset_in_graph(self, dataset: Any) -> Any:
        """A dataset is iterated inside a graph; a function's argument is no dataset that could be read afterwards."""
        if hasattr(getattr(dataset, "_variant_tensor", None), "numpy"):
            dataset = self.graph.dataset = self.datasets.used(dataset)
        return dataset

    def before_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """An outermost call of a tf.function; the arguments to call it with."""
        if not self.active:
            return args, kwargs
        self.recorder.check_stop()
        if any(isinstance(value, tf.data.Dataset) for value in (*args, *kwargs.values())):
            args = tuple(self.datasets.used(value) for value in args)
            kwargs = {name: self.datasets.used(value) for name, value in kwargs.items()}
        self._tapes_before = self.recorder.tapes
        if self.recorder.stops and not self.fitting and self.graph.dataset is None:
            for value in (*args, *kwargs.values()):
                if hasattr(original(value), "_variant_tensor"):
                    self.graph.dataset = value
        return args, kwargs

    def after_call(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], began_ns: int, result: Any = None
    ) -> None:
        """Called after a tf.function has returned or raised."""
        if not self.active:
            return
        self._alike += 1
        if self._alike >= _ALIKE and not (self.recorder.stops or self.eager.looks):
            self.recorder.watch.listen(to_calls=False)
        if self.after_function is not None and not self.fitting:
            self.after_function(function, result)
        if self.recorder.tapes != self._tapes_before:
            self._training.add(id(function))
            if self._trains_in_graph():
                self.recorder.results.step_function = place_of(function)
        if self.fitting:
            return
        self.graph.traced.clear()
        self.eager.called(function, args, kwargs, trains=id(function) in self._training)
        if self.recorder.replaced is not None:
            self.recorder.replaced.ran(function, result)
        if self.graph:
            self.graph.calls.append((began_ns, time.perf_counter_ns()))
            if self.recorder.between_calls:
                self._poll_graph_loops()
                main = self.recorder.results.loops.main
                if main is not None and main in self.graph:
                    self.recorder.after_step(main)

    def before_trace(self) -> None:
        """A function is traced: whoever calls it is asked about again."""
        self._alike, self._tapes_before = 0, self.recorder.tapes
        self.recorder.watch.listen(to_calls=True)
        if self.on_trace is not None:
            self.on_trace()

    def _trains_in_graph(self) -> bool:
        """Whether the call that runs has traced loops; where gradients are taken in it, they train."""
        if self.recorder.tapes != self._tapes_before:
            for loop in self.graph.traced:
                loop.trains = True
        return bool(self.graph.traced)

    def fit_begins(self, model: Any, callbacks: Any) -> None:
        """``fit`` has made its data ready."""
        if self.recorder.replaced is not None:
            self.recorder.replaced.fit_begins(callbacks, call_site())
        self.eager.open = None
        self.fitting = True
        self.fit.begin(model, self.fit_dataset)

    def epoch_begins(self) -> None:
        """An epoch of ``fit`` begins."""
        if self.fitting and self.fit.loop is not None:
            self.fit.loop.epochs += 1
            if self.on_epoch is not None:
                self.on_epoch()

    def batch_ended(self, logs: Any = None) -> None:
        """A batch of ``fit`` and its callbacks are over."""
        if self.after_function is not None:
            self.after_function(None, logs)
        if self.fitting:
            self.fit.ended()
            self.recorder.check_stop()
            if self.recorder.replaced is not None:
                self.recorder.replaced.batch_ended(self.fit.model, logs)

    def validation_begins(self) -> None:
        """``evaluate``, or the validation of an epoch of ``fit``, which is no part of a step."""
        self.recorder.check_stop()
        if self.fitting:
            self.recorder.windows.asking(True)

    def validated(self) -> None:
        """The validation of an epoch is over."""
        if self.fitting:
            self.recorder.windows.asking(False)
            self.fit.restart()

    def fit_over(self) -> None:
        """``fit`` has returned, or raised."""
        if self.fitting:
            self.fit.drain()
            self.fitting = False

    def drain(self) -> None:
        """Take what was stamped in graphs to the loops that it belongs to."""
        with self.recorder.results.lock:
            for site, stamps in self.clock.drain():
                if site.group in self._fit_groups:
                    (self.fit.ends if site.kind == "end" else self.fit.requests).extend(stamps)
                else:
                    self.graph.stamped(site, stamps)
            self.recorder.results.lost_steps = self.clock.lost

    def add_rows(self, *, over: bool = False) -> None:
        """Make rows of what was stamped in graphs; of all of it where the script is over."""
        if self.fit.loop is not None:
            self.fit.drain()
        else:
            self.drain()
        if self.graph:
            self.graph.add_rows(over=over)

    def end(self) -> None:
        """The script is over: send everything."""
        if not self.active:
            return
        self.active = False
        self._over.set()
        recorder, results, channel = self.recorder, self.recorder.results, self.recorder.report.channel
        recorder.send_profile(recorder.windows.finish())
        if recorder.profiled is not None:
            recorder.profiled.close()
        self.eager.open = None
        with results.lock:
            self.add_rows(over=True)
            main = results.loops.choose(over=True)
            if main is not None and main in self.graph:
                results.unmeasured["anatomy"] = "the loop is inside a tf.function: its lines do not run in Python"
                if recorder.profiled is not None:
                    recorder.profiled.reason = "the loop is inside a tf.function: a profile cannot tell its steps"
                steps = sum(segment.count for segment in main.segments.values())
                calls = recorder.watch.counts[0] - self._calls_before
                if recorder.replaced is not None:
                    recorder.replaced.cannot(f"the loop runs inside a tf.function ({main.how})")
                recorder.report.tell(in_one_call=steps > _FEW_STEPS * max(calls, 1))
            results.end()
        if self.on_poll is not None:
            self.on_poll()
        results.batches()
        channel.send({"traces": [trace.model_dump(mode="json") for trace in recorder.watch.traces]})
        if (reason := results.bench.compilations.xla.reason) is not None:
            channel.note(reason)

    def _site_made(self, site: Site) -> None:
        if self.fitting:
            self._fit_groups.add(site.group)
            return
        if not self.graph:
            self._calls_before = self.recorder.watch.counts[0]
            self.recorder.watch.log = self.graph.calls.append
        self.graph.made(site)

    def poll(self) -> None:
        """Take what came since the last time, and tell how the script goes where that is due."""
        if self.recorder.has_results:
            self.eager.steady.settle()
            if self.clock.contents is not None:
                self.clock.contents.relieve()
            if self.graph and not self.fitting:
                self._poll_graph_loops()
            self.recorder.results.tell_if_due()
        if self.on_poll is not None:
            self.on_poll()
        if self._no_step is not None:
            self._no_step.look()

    def _poll(self) -> None:
        """Read the stamps of loops inside graphs, tell how the script goes, end what does not stop."""
        while not self._over.wait(self.recorder.next_poll_s()):
            self.poll()
            since = self.recorder.stopping_since
            if since is not None and time.monotonic() - since > self.recorder.grace_s:
                self._end_at_once("the script did not stop when it was asked to: its process was ended")

    def _poll_graph_loops(self) -> None:
        results = self.recorder.results
        with results.lock:
            if self.recorder.watch.calling:
                self._trains_in_graph()  # a loop that runs within one call for hours has rows from its first step on
            self.drain()
            self.graph.add_rows()
            if results.loops.main is not None and results.loops.main in self.graph and self.recorder.enough():
                self.recorder.stop()

    def note_once(self, text: str) -> None:
        """Add a note to the run, unless it was the last one."""
        if text != self._noted:
            self._noted = text
            self.recorder.report.channel.note(text)

    def leave(self) -> None:
        """Watch no more: a process that the script forked is not watched, its rows would mix with this one's."""
        self.active = False
        self.eager.steady.stop()
        self._over.set()
