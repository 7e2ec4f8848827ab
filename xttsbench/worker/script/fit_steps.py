"""Steps of Keras's ``fit``: each ends with the callbacks of its batch; the waits are inside its compiled function."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from xttsbench.worker.script.intervals import Stamp, steps_of_call
from xttsbench.worker.script.loops import Loop
from xttsbench.worker.script.readings import Moment, row
from xttsbench.worker.script.step_function import place_of

if TYPE_CHECKING:
    from xttsbench.worker.script.watched import Watched

_DRAIN_NS: Final = 400_000_000
_HELD: Final = 256


@dataclass(frozen=True)
class Batch:
    """One call of the train function, whose waits are not read yet."""

    last_ns: int
    end_ns: int
    pause_ns: int
    added: tuple[Moment, Moment]
    device_ns: int
    emulated_ns: int
    epoch: int
    bout: bool


class FitSteps:
    """The batches of all calls of ``fit``, one loop a model."""

    def __init__(self, watched: Watched) -> None:
        self.loop: Loop | None = None
        self.model: Any = None
        self.dataset: Any = None
        self.requests: list[Stamp] = []
        self.ends: list[Stamp] = []
        self._watched = watched
        self._pending: list[Batch] = []
        self._last_ns = self._start_ns = 0
        self._moment: Moment | None = None
        self._drained_ns = 0

    def begin(self, model: Any, dataset: Any) -> None:
        """A call of ``fit`` begins its first epoch."""
        self.model, self.dataset = model, dataset
        loop = self.loop = self._watched.results.loops.get(("fit", id(model)), "fit")
        loop.trains = True
        loop.dataset = dataset
        self._watched.results.datasets += 1
        self._watched.results.steps_per_call = int(getattr(model, "steps_per_execution", 1) or 1)
        place = place_of(model.train_step)
        if f"{os.sep}keras{os.sep}src{os.sep}" not in place:
            self._watched.results.step_function = place
        self.restart()

    def restart(self) -> None:
        """What went by since the last batch was no training (validation): the next one begins now."""
        self._begin(time.perf_counter_ns())

    def _begin(self, last_ns: int) -> None:
        self._last_ns, self._moment = last_ns, Moment.now(self._watched.watch)
        self._start_ns = time.perf_counter_ns()

    def epoch(self) -> None:
        """An epoch begins."""
        if self.loop is not None:
            self.loop.epochs += 1

    def ended(self) -> None:
        """The callbacks of a batch are over."""
        watched, loop, before = self._watched, self.loop, self._moment
        if loop is None or before is None:
            return
        bench, returned_ns = watched.results.bench, time.perf_counter_ns()
        if bench.synchronise is not None:
            bench.synchronise()
        device_ns = time.perf_counter_ns() - returned_ns if bench.synchronise is not None else 0
        emulated_ns = 0
        if bench.accelerator is not None:  # once for each step of the group, after it: not from inside its graph
            emulated_ns = sum(bench.accelerator.compute() for _ in range(watched.results.steps_per_call))
        end_ns = time.perf_counter_ns()
        watched.watch.step_ended()
        bout = watched.bout_step(loop)
        added = (before, Moment.now(watched.watch))
        epoch = max(loop.epochs - 1, 0)
        pause_ns = self._start_ns - self._last_ns
        self._pending.append(Batch(self._last_ns, end_ns, pause_ns, added, device_ns, emulated_ns, epoch, bout))
        if end_ns - self._drained_ns > _DRAIN_NS or len(self._pending) >= _HELD:
            self.drain()
            watched.after_step(loop)
        self._begin(time.perf_counter_ns() if bout or watched.bouts.running else end_ns)

    def drain(self) -> None:
        """Make rows of the batches that have ended, with the waits that were stamped meanwhile."""
        watched, loop = self._watched, self.loop
        self._drained_ns = time.perf_counter_ns()
        watched.drain()
        if loop is None:
            return
        pending, self._pending = self._pending, []
        for batch in pending:
            if not batch.bout:
                self._add(loop, batch)
        if pending:
            self.requests = [one for one in self.requests if one.ended_ns > pending[-1].end_ns]
            self.ends = [one for one in self.ends if one.ended_ns > pending[-1].end_ns]

    def _add(self, loop: Loop, batch: Batch) -> None:
        results = self._watched.results
        pieces = steps_of_call(batch.last_ns, batch.end_ns, self.requests, self.ends)
        parts = batch.added[1].since(batch.added[0], len(pieces))
        for index, (piece, added) in enumerate(zip(pieces, parts, strict=True)):
            last = index == len(pieces) - 1
            values = row(
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
            results.add(loop, values, traced=batch.added[1].counters[2] > batch.added[0].counters[2])
