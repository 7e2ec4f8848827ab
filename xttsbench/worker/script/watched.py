"""A script as it is watched: what the patches tell goes to the loop that it belongs to; enough stops the script."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from xttsbench.step.watch import Watch
from xttsbench.worker.script.eager_loops import EagerLoops, original
from xttsbench.worker.script.graph_clock import GraphClock, Site
from xttsbench.worker.script.graph_loops import FitSteps, GraphLoops
from xttsbench.worker.script.intervals import Stamp
from xttsbench.worker.script.loops import Loop
from xttsbench.worker.script.patches import Patches, patch_keras, patch_tensorflow
from xttsbench.worker.script.recorder import Bouts
from xttsbench.worker.script.step_function import place_of
from xttsbench.worker.script.stop import StoppedByUs

if TYPE_CHECKING:
    from xttsbench.worker.script.process import Process
    from xttsbench.worker.script.recorder import Results

_GRACE_S: Final = 20.0
"""A script that was told to stop gets so long to end, its own ``finally`` clauses included."""
_POLL_S: Final = 0.25


class Watched:
    """Everything that is known of the script while it runs."""

    def __init__(self, process: Process) -> None:
        self.active = False
        self.requesting = False
        self.calling = False
        self.fitting = False
        self.stopping = False
        self.tapes = 0
        self.last_dataset: Any = None
        self.begun: set[int] = set()
        self.fit_dataset: Any = None
        self.watch = Watch()
        self.bouts = Bouts(self.watch)
        self.clock = GraphClock(self._site_made)
        self.eager = EagerLoops(self)
        self.fit = FitSteps(self)
        self.graph = GraphLoops(self)
        self._made_results: Results | None = None
        self._process = process
        self._patches = Patches()
        self._fit_groups: set[int] = set()
        self._training: set[int] = set()
        self._tapes_before = 0
        self._stopped_at = 0.0
        self._over = threading.Event()

    @property
    def results(self) -> Results:
        """The results, which ask for devices; so they are made when the script has made its settings."""
        if self._made_results is None:
            from xttsbench.worker.script.recorder import Results
            from xttsbench.worker.trial import devices_seen

            self._made_results = Results(self._process, self.watch)
            self._process.channel.part("devices", devices_seen())
        return self._made_results

    def install(self) -> None:
        """Begin to watch."""
        from xttsbench.pipeline.graph import places

        places.install()
        patch_tensorflow(self, self._patches)
        self.watch.__enter__()
        os.register_at_fork(after_in_child=self._forked)
        self.active = True
        threading.Thread(target=self._poll, name="xttsbench-watch", daemon=True).start()

    def install_keras(self) -> None:
        """Keras has been loaded."""
        patch_keras(self, self._patches)

    def before_next(self, iterator: Any) -> None:
        """A request for a batch from Python."""
        self._check_stop()
        if not self.fitting:
            self.eager.before_next(iterator)

    def waited(self, began_ns: int, ended_ns: int) -> None:
        """Time within a request that gave nothing, or in making an iterator."""
        if self.fitting:
            self.fit.requests.append(Stamp(began_ns, ended_ns, -1))
        else:
            self.eager.waited(began_ns, ended_ns)

    def after_next(self, began_ns: int, got_ns: int, batch: Any) -> None:
        """A request gave a batch."""
        if self.fitting:
            _, size, elements = self.results.shape_of(batch)
            self.fit.requests.append(Stamp(began_ns, got_ns, size, elements))
        else:
            self.eager.got(began_ns, got_ns, batch)

    def dataset_begun(self, dataset: Any) -> None:
        """An iterator is made."""
        self.last_dataset = dataset
        if not self.fitting:
            self.begun.add(id(dataset))

    def dataset_in_graph(self, dataset: Any) -> None:
        """A dataset is iterated inside a graph; a function's argument is no dataset that could be read afterwards."""
        if hasattr(getattr(dataset, "_variant_tensor", None), "numpy"):
            self.graph.dataset = dataset

    def before_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An outermost call of a tf.function."""
        self._check_stop()
        self._tapes_before = self.tapes
        if not self.fitting and self.graph.dataset is None:
            for value in (*args, *kwargs.values()):
                if hasattr(original(value), "_variant_tensor"):
                    self.graph.dataset = value

    def after_call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], began_ns: int) -> None:
        """That call has returned, or raised."""
        if self.tapes != self._tapes_before:
            self._training.add(id(function))
            for loop in self.graph.traced:
                loop.trains = True
                self.results.step_function = place_of(function)
        if self.fitting:
            return
        self.graph.traced.clear()
        self.eager.called(function, args, kwargs, trains=id(function) in self._training)
        if self.graph:
            self.graph.calls.append((began_ns, time.perf_counter_ns()))

    def fit_begins(self, model: Any) -> None:
        """``fit`` has made its data ready."""
        self.eager.open = None
        self.fitting = True
        self.fit.begin(model, self.fit_dataset)

    def before_batch(self) -> None:
        """Before a batch of ``fit``, or of its validation."""
        self._check_stop()

    def epoch_begins(self) -> None:
        """An epoch of ``fit`` begins."""
        if self.fitting:
            self.fit.epoch()

    def batch_ended(self) -> None:
        """A batch of ``fit`` and its callbacks are over."""
        if self.fitting:
            self.fit.ended()
            self._check_stop()

    def validated(self) -> None:
        """The validation of an epoch is over."""
        if self.fitting:
            self.fit.restart()

    def fit_over(self) -> None:
        """``fit`` has returned, or raised."""
        if self.fitting:
            self.fit.drain()
            self.fitting = False

    def bout_step(self, loop: Loop) -> bool:
        """Whether the step that ends now was one of a bout; ends the bout when it has its steps."""
        if not self.bouts.running:
            return False
        anatomy = self.bouts.step_ended(loop)
        if anatomy is not None:
            self._process.channel.part("anatomy", anatomy)
        return True

    def after_step(self, loop: Loop) -> None:
        """Between two steps: begin a bout, or ask the script to stop."""
        if self.results.enough():
            self._stop()
        elif not self.stopping and self.bouts.due(loop, main=loop is self.results.loops.main):
            self.bouts.begin(loop)

    def drain(self) -> None:
        """Take what was stamped in graphs to the loops that it belongs to."""
        with self.results.lock:
            for site, stamps in self.clock.drain():
                if site.group in self._fit_groups:
                    (self.fit.ends if site.kind == "end" else self.fit.requests).extend(stamps)
                else:
                    self.graph.stamped(site, stamps)

    def end(self) -> None:
        """The script is over: send everything."""
        if not self.active:
            return
        self.active = False
        self._over.set()
        if self.bouts.running and (anatomy := self.bouts.finish()) is not None:
            self._process.channel.part("anatomy", anatomy)
        with self.results.lock:
            if self.fit.loop is not None:
                self.fit.drain()
            else:
                self.drain()
            if self.graph:
                self.graph.add_rows(over=True)
            main = self.results.loops.choose(over=True)
            if main is not None and main in self.graph:
                self.results.unmeasured["anatomy"] = "the loop is inside a tf.function: its lines do not run in Python"
            self.results.end()
        self.results.batches(main.dataset if main is not None else None)
        self._process.channel.send({"traces": [trace.model_dump(mode="json") for trace in self.watch.traces]})
        if (reason := self.results.bench.compilations.xla.reason) is not None:
            self._process.channel.note(reason)

    def afterwards(self) -> None:
        """Measure, in what is left of the script, what its own run could not show."""
        from xttsbench.worker.script.afterwards import measure_afterwards
        from xttsbench.worker.script.overhead import measure_overhead
        from xttsbench.worker.script.seen import seen_of

        seen = seen_of(self)
        self.eager.open = None
        self.watch.__exit__()
        self._patches.undo()
        channel = self._process.channel
        channel.phase("overhead")
        channel.part("overhead", measure_overhead(self._process.spec, in_graph=self.fit.loop is not None))
        channel.phase("afterwards")
        with self.watch:
            measure_afterwards(self._process.spec, seen, self.results.bench)

    @staticmethod
    def dataset_of(iterator: Any) -> Any:
        """The dataset of an iterator; ``None`` where it is not known."""
        if (dataset := getattr(iterator, "_dataset", None)) is not None:
            return dataset
        inner = next(iter(getattr(iterator, "_iterators", ())), None)
        return getattr(inner, "_dataset", None)

    def _site_made(self, site: Site) -> None:
        if self.fitting:
            self._fit_groups.add(site.group)
        else:
            self.graph.made(site)

    def _stop(self) -> None:
        if not self.stopping:
            self.stopping, self._stopped_at = True, time.monotonic()

    def _check_stop(self) -> None:
        if self.stopping:
            raise StoppedByUs("xttsbench has measured enough steps")

    def _poll(self) -> None:
        """Read the stamps of loops inside graphs, tell how the script goes, end what does not stop."""
        while not self._over.wait(_POLL_S):
            if self._made_results is not None:
                if self.graph and not self.fitting:
                    self._poll_graph_loops()
                self._made_results.tell_if_due()
            if self.stopping and time.monotonic() - self._stopped_at > _GRACE_S:
                self._process.end_at_once("the script did not stop when it was asked to: its process was ended")

    def _poll_graph_loops(self) -> None:
        with self.results.lock:
            self.drain()
            self.graph.add_rows()
            main = self.results.loops.main
            if main is not None and main in self.graph and self.results.enough():
                self._stop()

    def _forked(self) -> None:
        """A process that the script forked is not watched: its rows would mix with this one's."""
        self.active = False
        self._over.set()
