"""Steps of loops that run inside graphs, from their stamps: Keras's ``fit``, and tf.functions of the script."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple

from tensorflow.python.framework import ops

from xttsbench.owners import owner
from xttsbench.pipeline.source import locate
from xttsbench.step.watch import Moment, step_row
from xttsbench.worker.script.eager import place_of
from xttsbench.worker.script.graph_clock import (
    Calls,
    GraphTimestamp,
    Site,
    StepInterval,
    merged,
    steps_of_call,
    steps_of_requests,
)
from xttsbench.worker.script.loop import Loop
from xttsbench.worker.script.recorder import Recorder

_DRAIN_NS: Final = 400_000_000
_HELD: Final = 256


class Batch(NamedTuple):
    """One call of the train function, whose waits are not read yet."""

    last_ns: int
    end_ns: int
    pause_ns: int
    before: Moment
    after: Moment
    device_ns: int
    emulated_ns: int
    epoch: int
    in_window: bool


class FitSteps:
    """The batches of all calls of ``fit``, one loop a model.

    Args:
        recorder: gets the rows.
        drain_clock: adds what was stamped in graphs to :attr:`requests` and :attr:`ends`.
    """

    def __init__(self, recorder: Recorder, drain_clock: Callable[[], None]) -> None:
        self.loop: Loop | None = None
        self.model: Any = None
        self.requests: list[GraphTimestamp] = []
        self.ends: list[GraphTimestamp] = []
        self._recorder = recorder
        self._drain_clock = drain_clock
        self._pending: list[Batch] = []
        self._last_ns = self._start_ns = 0
        self._moment: Moment | None = None
        self._drained_ns = 0

    def begin(self, model: Any, dataset: Any) -> None:
        """A call of ``fit`` begins its first epoch."""
        if self.model is model and self.loop is not None and self.loop.dataset is not dataset:
            self._recorder.results.between_fits_ns += time.perf_counter_ns() - self._last_ns
        self.model = model
        loop = self.loop = self._recorder.results.loops.get(self._recorder.key_of_fit(model), "fit")
        loop.trains = True
        loop.takes(dataset)
        self._recorder.results.datasets += 1
        self._recorder.results.steps_per_call = steps_per_call(model)
        if owner(locate(model.train_step).file or "") != "framework":
            self._recorder.results.step_function = place_of(model.train_step)
        self.restart()

    def restart(self) -> None:
        """Begins the next batch now: the time since the last one was no training (validation)."""
        self._begin(time.perf_counter_ns())

    def _begin(self, last_ns: int, closed: Moment | None = None) -> None:
        self._last_ns, self._moment = last_ns, self._recorder.opening(closed)
        self._start_ns = time.perf_counter_ns()

    def ended(self) -> None:
        """The callbacks of a batch are over."""
        recorder, loop, before = self._recorder, self.loop, self._moment
        if loop is None or before is None:
            return
        # Emulated once for each step of the group, after it: not from inside its graph.
        device_ns, emulated_ns = recorder.results.bench.finish_step(recorder.results.steps_per_call)
        end_ns = time.perf_counter_ns()
        recorder.watch.step_ended()
        in_window = recorder.in_window(loop)
        closed, pause_ns, epoch = recorder.closing(), self._start_ns - self._last_ns, max(loop.epochs - 1, 0)
        self._pending.append(
            Batch(self._last_ns, end_ns, pause_ns, before, closed, device_ns, emulated_ns, epoch, in_window)
        )
        paused = False
        full = end_ns - self._drained_ns > _DRAIN_NS or len(self._pending) >= _HELD
        if recorder.wants_rows(loop, len(self._pending) * recorder.results.steps_per_call) or full:
            self.drain()
            paused = recorder.after_step(loop)
        if in_window or paused or recorder.windows.running:
            self._begin(time.perf_counter_ns())
        else:
            self._begin(end_ns, closed)

    def drain(self) -> None:
        """Make rows of the batches that have ended, with the waits that were stamped meanwhile."""
        loop = self.loop
        self._drained_ns = time.perf_counter_ns()
        self._drain_clock()
        if loop is None:
            return
        pending, self._pending = self._pending, []
        for batch in pending:
            if not batch.in_window:
                self._add(loop, batch)
        if pending:
            self.requests = [one for one in self.requests if one.ended_ns > pending[-1].end_ns]
            self.ends = [one for one in self.ends if one.ended_ns > pending[-1].end_ns]

    def _add(self, loop: Loop, batch: Batch) -> None:
        results = self._recorder.results
        pieces = steps_of_call(batch.last_ns, batch.end_ns, self.requests, self.ends)
        parts = batch.after.since(batch.before, len(pieces))
        traced = batch.after.counters[2] > batch.before.counters[2]
        for index, (piece, added) in enumerate(zip(pieces, parts, strict=True)):
            last = index == len(pieces) - 1
            row = step_row(
                piece.began_ns,
                piece.ended_ns - piece.began_ns,
                piece.wait_ns,
                added,
                results.shape_in_graph(piece.batch_size, piece.elements),
                epoch=batch.epoch,
                device_ns=batch.device_ns if last else 0,
                emulated_ns=batch.emulated_ns if last else 0,
                pause_ns=batch.pause_ns if index == 0 else 0,
            )
            results.add(loop, row, traced=traced)


class GraphLoops:
    """One loop for each traced function that asks for data, or iterates a dataset, outside of ``fit``."""

    def __init__(self, recorder: Recorder) -> None:
        self.calls: deque[tuple[int, int]] = deque(maxlen=1000)
        self.dataset: Any = None
        self.traced: list[Loop] = []
        self._recorder = recorder
        self.begun: set[int] = set()
        self.last_dataset: Any = None
        self._loops: dict[int, Loop] = {}
        self._sites: dict[int, dict[Site, list[GraphTimestamp]]] = {}
        self._body_end: dict[int, int] = {}
        self._moment: Moment | None = None
        self._pending: dict[Hashable, list[GraphTimestamp]] = {}

    def __bool__(self) -> bool:
        return bool(self._loops)

    def __contains__(self, loop: Loop) -> bool:
        return any(one is loop for one in self._loops.values())

    def made(self, site: Site) -> None:
        """A place was traced."""
        if site.group not in self._loops:
            graph = ops.get_default_graph()
            while getattr(getattr(graph, "outer_graph", None), "building_function", False):
                graph = graph.outer_graph
            how = "for in a tf.function" if site.kind == "body" else "next() in a tf.function"
            loop = self._recorder.results.loops.get(("graph", getattr(graph, "name", ""), site.kind), how)
            self._loops[site.group] = loop
            self.traced.append(loop)
        self._sites.setdefault(site.group, {})[site] = []

    def stamped(self, site: Site, stamps: list[GraphTimestamp]) -> None:
        """A place ran."""
        if site.kind == "body":
            stamps = self._requests_of_body(site.group, stamps)
        self._sites[site.group][site] += stamps

    def add_rows(self, *, over: bool = False) -> None:
        """Make rows of the steps whose end is known by now."""
        recorder = self._recorder
        before, now = self._moment, Moment.now(recorder.watch)
        self._moment = now
        calls = Calls(list(self.calls))
        for group, sites in self._sites.items():
            ran = [stamps for stamps in sites.values() if stamps]
            if ran:
                requests = merged(ran)
                self._pending.setdefault(self._loops[group].key, []).extend(requests)
                for stamps in ran:
                    del stamps[: len(requests)]
        for loop in {loop.key: loop for loop in self._loops.values()}.values():
            # A loop may ask at several places, before its first step and at the end of each; they take turns.
            requests = sorted(self._pending.pop(loop.key, []), key=lambda one: one.began_ns)
            if not requests:
                continue
            pieces = steps_of_requests(requests, calls)
            if not over and calls.end_of(requests[-1].began_ns) is None:
                self._pending[loop.key] = requests[-1:]
            if pieces:
                self._add(loop, pieces, before or now, now)

    def _add(self, loop: Loop, pieces: list[StepInterval], before: Moment, now: Moment) -> None:
        recorder = self._recorder
        loop.takes(self.dataset if self.dataset is not None else self.last_dataset)
        recorder.results.datasets = max(len(self.begun), 1)
        for piece, added in zip(pieces, now.since(before, len(pieces)), strict=True):
            shape = recorder.results.shape_in_graph(piece.batch_size, piece.elements)
            wall_ns = piece.ended_ns - piece.began_ns
            recorder.results.add(loop, step_row(piece.began_ns, wall_ns, piece.wait_ns, added, shape), traced=False)

    def _requests_of_body(self, group: int, bodies: list[GraphTimestamp]) -> list[GraphTimestamp]:
        """A body begins when its element is there; the element was asked for when the body before it had ended."""
        requests, calls = [], Calls(list(self.calls))
        for body in bodies:
            last = self._body_end.get(group)
            first = last is None or calls.any_ended(last, body.began_ns)
            asked = body.began_ns if first or last is None else min(last, body.began_ns)
            requests.append(GraphTimestamp(asked, body.began_ns, body.batch_size, body.elements))
            self._body_end[group] = body.ended_ns
        return requests


def steps_per_call(model: Any) -> int:
    """Steps that ``fit`` takes in one call: a number in Keras 3, in Keras 2 a variable, which replicas mirror."""
    found: Any = getattr(model, "steps_per_execution", None) or 1
    return int(found.numpy() if hasattr(found, "numpy") else found)
