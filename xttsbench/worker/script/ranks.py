"""One rank of a job, from within its process: its collectives, its samples, and where its main thread is.

Each collective is stamped when its tensors are there and when it has its result, in Python or in the graph it is
traced into; so a rank's own time is told from its time among the others. On a GPU a collective is launched before its
tensors are there: then its begin is the launch. Nothing here may fail the script: what cannot be stamped runs as it is.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.distribute import collective_all_reduce_strategy, input_lib
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.ops import collective_ops, control_flow_util

from xttsbench.cluster import task_of
from xttsbench.stacks import stacks
from xttsbench.step.frames import Key, classify, python_function_elsewhere
from xttsbench.worker.script.eager import LOOP_MARK
from xttsbench.worker.script.graph_clock import DEVICE, Site, tensors_of
from xttsbench.worker.script.patches import Patches
from xttsbench.worker.script.sample_hashes import BITS, hashes, hashes_in_graph, leaves_of
from xttsbench.worker.script.watched import Watched

_KEPT: Final = 2048  # Collectives that are kept, and hashes of an epoch, before every second one is left out
_SHARE: Final = 0.004  # Of the time that looking at samples may take
_MOST: Final = 4096  # Samples of a batch that a graph looks at, fewer than its ring holds
_LINES: Final = 32  # That are told, those with most time
_SPREAD: Final = 0x9E3779B97F4A7C15  # Multiplied by it, neighbours lie far apart
_MASK: Final = (1 << BITS) - 1

Interval = tuple[int, int, bool]
"""Begin and end of a collective, and whether the request for a batch is what it is part of."""


class _Place:
    """One collective of a traced graph: a site that it passes before, and one after."""

    def __init__(self, *, in_request: bool) -> None:
        self.in_request = in_request
        self.before, self.after = Site(0, "before"), Site(0, "after")


class Pass:
    """One pass of a loop over its data: what is new of it since it was last told."""

    def __init__(self) -> None:
        self.batches = self.samples = self.looked = 0
        self.ended = False
        self.hashes: list[int] = []


class Rank:
    """Watches what a job of several processes adds; told of with each poll of the watch."""

    def __init__(self, watched: Watched, patches: Patches) -> None:
        self._watched, self._patches = watched, patches
        self._task = task_of(os.environ)
        self._lock = threading.Lock()
        self._places: list[_Place] = []
        self._looks: list[tuple[str, Site]] = []
        self._intervals: list[Interval] = []
        self._begun = self._ended = self._told = 0
        self._stride, self._sampled, self._below = 1, 0, 1 << BITS
        self._kept: dict[str, tuple[int, int]] = {}  # Loop -> its newest pass, and hashes of that
        self._sums_ns, self._measured = [0, 0], 0
        self._reached_ns = self._since_ns = self._spent_ns = 0
        self._began_ns = self._progress_ns = time.perf_counter_ns()
        self._progress: tuple[int, ...] = ()
        self._passes: defaultdict[tuple[str, int], Pass] = defaultdict(Pass)
        self._pass = 0
        self._seconds: defaultdict[tuple[str, Key], float] = defaultdict(float)
        self._asks: weakref.ref[Any] | None = None
        if self._task is not None:
            self._install()
        else:  # the script may say itself that it is one of several
            extended = collective_all_reduce_strategy.CollectiveAllReduceExtended
            patches.put(extended, "__init__", self._around_strategy)

    def _around_strategy(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def init(*args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            if self._task is None and (task := task_of(os.environ)) is not None:
                self._task = task
                self._noted(self._install)

        return init

    def _install(self) -> None:
        self._watched.on_poll = lambda: self._noted(self.tell)
        self._watched.on_epoch = lambda: self._noted(self._next_pass)
        self._patches.put(collective_ops, "all_reduce_v2", self._around_collective)
        self._patches.put(collective_ops, "all_gather_v2", self._around_collective)
        self._patches.put(input_lib.DistributedIteratorBase, "get_next", self._around_request)
        self._patches.put(iterator_ops.OwnedIterator, "_next_internal", self._around_request)

    def sampled(self, weight_ns: int, key: Key | None, frames: Mapping[int, FrameType]) -> None:
        """A sample of the main thread, which is nowhere while it asks for data; ``frames`` are those of all threads."""
        if self._task is None or not self._since_ns:
            return
        elsewhere = python_function_elsewhere(frames.values())
        if elsewhere is not None:
            self._seconds["input" if key is None else "inside", elsewhere] += weight_ns / 1e9
        if key is not None:
            self._seconds["call" if key[3] == "function" else "host", key] += weight_ns / 1e9

    def _around_collective(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def collective(t: Any, *args: Any, **kwargs: Any) -> Any:
            in_request = self._watched.requesting or self._watched.clock.asking
            if context.executing_eagerly():
                with self._lock:
                    self._begun += 1
                began_ns = time.perf_counter_ns()
                try:
                    return original(t, *args, **kwargs)
                finally:
                    with self._lock:
                        self._ended += 1
                        self._intervals.append((began_ns, time.perf_counter_ns(), in_request))
            place: Any = self._noted(lambda: None if _in_xla() else _Place(in_request=in_request))
            began: Any = self._noted(lambda: _stamped(place.before, [t])) if place is not None else None
            with ops.control_dependencies([began] if began is not None else []):
                result = original(t, *args, **kwargs)
            if began is not None and self._noted(lambda: _stamped(place.after, [result], began)) is not None:
                self._places.append(place)
            return result

        return collective

    def _around_request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        main, me = threading.main_thread().ident, threading.get_ident

        def get(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            if self._asks is not None or me() != main or not self._watched.active:
                return original(iterator, *args, **kwargs)
            self._asks = weakref.ref(iterator)
            try:
                batch = original(iterator, *args, **kwargs)
            except (StopIteration, tf.errors.OutOfRangeError):
                self._noted(lambda: setattr(self._passes[_pass_of(iterator)], "ended", True))
                raise
            finally:
                self._asks = None
            self._noted(lambda: self._look(iterator, batch) if context.executing_eagerly() else self._traced(batch))
            return batch

        return get

    def _look(self, iterator: Any, batch: Any) -> None:
        began = time.perf_counter_ns()
        leaves = leaves_of(batch)
        if not leaves:
            return
        key = _pass_of(iterator)
        found = self._passes[key]
        found.batches += 1
        found.samples += int(leaves[0].shape[0])
        if self._spent_ns < _SHARE * (began - self._began_ns) and all("CPU" in one.device for one in leaves):
            looked = hashes(leaves)
            found.looked += len(looked)
            self._keep(key, looked)
            self._spent_ns += time.perf_counter_ns() - began

    def _traced(self, batch: Any) -> None:
        """Add the ops that hash samples to the graph that asks for the batch: those of a batch whenever it is time."""
        leaves = leaves_of(batch)
        if not leaves:
            return
        graph = ops.get_default_graph()
        while getattr(getattr(graph, "outer_graph", None), "building_function", False):
            graph = graph.outer_graph
        site = Site(0, "look")
        with tf.name_scope("xttsbench"), ops.colocate_with(None, ignore_existing=True), tf.device(DEVICE):
            with tf.control_dependencies(leaves):
                began = tf.timestamp()
            due = site.due()

            def looked() -> Any:
                found = tf.cast(hashes_in_graph([leaf[:_MOST] for leaf in leaves]), tf.float64)
                with tf.control_dependencies([found]):
                    ended = tf.timestamp()
                tf.raw_ops.AssignVariableOp(resource=due, value=ended + (ended - began) / _SHARE)
                return found

            now = began >= tf.raw_ops.ReadVariableOp(resource=due, dtype=tf.float64)
            found = tf.cond(now, looked, lambda: tf.zeros([0], tf.float64))[:, None]
            batch = tf.stack([0.0, 1.0, tf.cast(tf.shape(leaves[0])[0], tf.float64), 0.0])
            site.write_rows(tf.concat([found * [[1.0, 0.0, 0.0, 0.0]] + [[0.0, 0.0, 0.0, 1.0]], [batch]], axis=0))
        self._looks.append((str(graph.name), site))

    def _keep(self, key: tuple[str, int], looked: Any) -> None:
        mixed = (looked.astype(np.uint64) * np.uint64(_SPREAD)) >> np.uint64(64 - BITS)
        kept = mixed[mixed < self._below].tolist()
        self._passes[key].hashes += kept
        (loop, number), (newest, count) = key, self._kept.get(key[0], (0, 0))
        count = len(kept) + (count if newest == number else 0)
        if count > _KEPT:
            self._below, count = self._below // 2, count // 2
        self._kept[loop] = number, count

    def _next_pass(self) -> None:
        """An epoch of ``fit`` begins: what graphs have looked at until now is of the one before."""
        with self._lock:
            self._drain_looks()
            self._pass += 1

    def _drain_looks(self) -> None:
        for name, site in self._looks:
            rows = site.rows()
            if len(rows):
                key, looked = (name, self._pass), rows[:, 3] > 0
                found = self._passes[key]
                found.batches += int(rows[:, 1].sum())
                found.samples += int(rows[:, 2].sum())
                found.looked += int(looked.sum())
                self._keep(key, rows[looked, 0].astype(np.int64))

    def _drain(self) -> list[Interval]:
        now = time.perf_counter_ns()
        offset_ns = time.time_ns() - now
        for place in list(self._places):
            self._begun += len(place.before.rows())
            stamps = place.after.drain(offset_ns)
            self._ended += len(stamps)
            self._intervals += [(one.began_ns, one.ended_ns, place.in_request) for one in stamps]
        found = sorted(self._intervals, key=lambda one: one[1])
        # Those that ended meanwhile are numbered with the next: some of a place read earlier may come before them.
        self._intervals = [one for one in found if one[1] > now]
        return found[: len(found) - len(self._intervals)]

    def tell(self) -> None:
        """Tell what is new: collectives that are kept, samples, and where the main thread is."""
        with self._lock:
            self._first_step()
            kept = []
            for began, ended, in_request in self._drain():
                number, self._told = self._told, self._told + 1
                if number * _SPREAD % (1 << 64) < (1 << 64) // self._stride:
                    kept.append((number, began, ended))
                if self._since_ns and began >= self._since_ns:
                    self._measured += 1
                    self._sums_ns[in_request] += max(ended - max(began, self._reached_ns), 0)
                    self._reached_ns = max(ended, self._reached_ns)
            self._sampled += len(kept)
            if self._sampled > _KEPT:
                self._stride, self._sampled = 2 * self._stride, self._sampled // 2
            self._drain_looks()
            told, self._passes = self._passes, defaultdict(Pass)
            task = self._task
        self._watched.recorder.report.channel.send(
            {
                "rank": {
                    "task": task.model_dump() if task is not None else None,
                    "begun": self._begun,
                    "ended": self._ended,
                    "stride": self._stride,
                    "collectives": kept,
                    "since_ns": self._since_ns,
                    "sums_ns": self._sums_ns,
                    "measured": self._measured,
                    "below": self._below,
                    "passes": [[*key, vars(one)] for key, one in told.items()],
                    "position": self._position(),
                    "asks_at": self._asks_at(),
                    "seconds": self._most(),
                }
            }
        )

    def _most(self) -> list[list[Any]]:
        found = sorted(list(self._seconds.items()), key=lambda one: -one[1])[:_LINES]
        return [[kind, *key[:3], seconds] for (kind, key), seconds in found]

    def _first_step(self) -> None:
        recorder = self._watched.recorder
        if not self._since_ns and recorder.has_results and (main := recorder.results.loops.main) is not None:
            segment = main.segments.get("as_is")
            if segment is not None and segment.count:
                self._since_ns = segment.get(0, "start_ns")

    def _asks_at(self) -> tuple[str, int] | None:
        recorder = self._watched.recorder
        main = recorder.results.loops.main if recorder.has_results else None
        place = main.key[0] if main is not None and isinstance(main.key, tuple) else None
        return place if isinstance(place, tuple) and len(place) == 2 and place[0] else None

    def _position(self) -> dict[str, Any]:
        watched = self._watched
        asked = self._asks is not None
        calling = asked or watched.recorder.watch.calling
        with stacks() as frames:
            key = classify(frames.get(threading.main_thread().ident or 0))
            elsewhere = python_function_elsewhere(frames.values()) if calling else None
        progress = self._begun, self._ended, watched.requests, *watched.recorder.watch.counts[:1]
        now = time.perf_counter_ns()
        if progress != self._progress:
            self._progress, self._progress_ns = progress, now
        activity = "python"
        if self._begun > self._ended:
            activity = "collective"
        elif calling:
            activity = "input" if asked else "step"
            key = elsewhere or key
        line = dict(zip(("file", "line", "function"), key, strict=False)) if key is not None and key[0] else None
        return {"activity": activity, "line": line, "idle_s": (now - self._progress_ns) / 1e9}

    def _noted(self, action: Callable[[], Any]) -> Any:
        """Result of an action of our own; ``None`` where it fails, which is noted once."""
        try:
            return action()
        except Exception as error:
            self._watched.note_once(f"watching this rank failed in part: {type(error).__name__}: {str(error)[:200]}")
            return None


def _pass_of(iterator: Any) -> tuple[str, int]:
    loop = vars(iterator).get(LOOP_MARK)
    return ("", 0) if loop is None else (str(id(loop)), loop.epochs - 1)


def _in_xla() -> bool:
    """True where XLA compiles what is traced: it has no op for the time."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(ops.get_default_graph()))


def _stamped(site: Site, after: list[Any], began: Any = None) -> Any:
    """Stamp the graph that is being traced once these tensors are there; returns the time."""
    with tf.name_scope("xttsbench"), ops.colocate_with(None, ignore_existing=True), tf.device(DEVICE):
        with tf.control_dependencies(tensors_of(after)):
            now = tf.timestamp()
        site.write([now if began is None else began, now, 0.0, 0.0])
    return now
