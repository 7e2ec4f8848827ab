"""Steps of loops that run inside a tf.function of the script, from their stamps alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from tensorflow.python.framework import ops

from xttsbench.worker.script.graph_clock import Site
from xttsbench.worker.script.intervals import Piece, Stamp, merged, steps_of_requests
from xttsbench.worker.script.loops import Loop
from xttsbench.worker.script.readings import Moment, row

if TYPE_CHECKING:
    from xttsbench.worker.script.watched import Watched


class GraphLoops:
    """One loop for each traced function that asks for data, or iterates a dataset, outside of ``fit``."""

    def __init__(self, watched: Watched) -> None:
        self.calls: deque[tuple[int, int]] = deque(maxlen=1000)
        self.dataset: Any = None
        self.traced: list[Loop] = []
        self._watched = watched
        self._loops: dict[int, Loop] = {}
        self._sites: dict[int, dict[Site, list[Stamp]]] = {}
        self._body_end: dict[int, int] = {}
        self._moment: Moment | None = None
        self._pending: dict[Hashable, list[Stamp]] = {}

    def __bool__(self) -> bool:
        return bool(self._loops)

    def __contains__(self, loop: Loop) -> bool:
        return any(one is loop for one in self._loops.values())

    def made(self, site: Site) -> None:
        """A place was traced."""
        if site.group not in self._loops:
            graph = ops.get_default_graph()
            while getattr(graph, "outer_graph", None) is not None and ops_inside(graph.outer_graph):
                graph = graph.outer_graph
            how = "for in a tf.function" if site.kind == "body" else "next() in a tf.function"
            loop = self._watched.results.loops.get(("graph", getattr(graph, "name", ""), site.kind), how)
            self._loops[site.group] = loop
            if self._watched.results.bench.accelerator is not None:
                self._watched.results.unmeasured["emulated accelerator"] = "no wait can be put inside a tf.function"
            self.traced.append(loop)
        self._sites.setdefault(site.group, {})[site] = []

    def stamped(self, site: Site, stamps: list[Stamp]) -> None:
        """A place ran."""
        if site.kind == "body":
            stamps = self._requests_of_body(site.group, stamps)
        self._sites[site.group][site] += stamps

    def add_rows(self, *, over: bool = False) -> None:
        """Make rows of the steps whose end is known by now."""
        watched = self._watched
        before, now = self._moment, Moment.now(watched.watch)
        self._moment = now
        for group, sites in self._sites.items():
            ran = [stamps for stamps in sites.values() if stamps]
            if ran:
                requests = merged(ran)
                self._pending.setdefault(self._loops[group].key, []).extend(requests)
                for stamps in ran:
                    del stamps[: len(requests)]
        for loop in {id(loop): loop for loop in self._loops.values()}.values():
            # A loop may ask at several places, before its first step and at the end of each; they take turns.
            requests = sorted(self._pending.pop(loop.key, []), key=lambda one: one.began_ns)
            if not requests:
                continue
            pieces = steps_of_requests(requests, list(self.calls))
            if not (over or self._returned(requests[-1])):
                self._pending[loop.key] = requests[-1:]
            if pieces:
                self._add(loop, pieces, before or now, now)

    def _add(self, loop: Loop, pieces: list[Piece], before: Moment, now: Moment) -> None:
        watched = self._watched
        loop.dataset = self.dataset if self.dataset is not None else watched.last_dataset
        watched.results.datasets = max(len(watched.begun), 1)
        for piece, added in zip(pieces, now.since(before, len(pieces)), strict=True):
            shape = watched.results.shape_in_graph(piece.batch_size, piece.elements)
            wall_ns = piece.ended_ns - piece.began_ns
            watched.results.add(loop, row(piece.began_ns, wall_ns, piece.wait_ns, added, shape), traced=False)

    def _returned(self, stamp: Stamp) -> bool:
        return any(begin <= stamp.began_ns <= end for begin, end in self.calls)

    def _requests_of_body(self, group: int, bodies: list[Stamp]) -> list[Stamp]:
        """A body begins when its element is there; the element was asked for when the body before it had ended."""
        requests = []
        for body in bodies:
            last = self._body_end.get(group)
            first = last is None or any(last <= end <= body.began_ns for _, end in self.calls)
            asked = body.began_ns if first or last is None else min(last, body.began_ns)
            requests.append(Stamp(asked, body.began_ns, body.batch_size, body.elements))
            self._body_end[group] = body.ended_ns
        return requests


def ops_inside(graph: Any) -> bool:
    """Whether a graph is that of a function."""
    return bool(getattr(graph, "building_function", False))
