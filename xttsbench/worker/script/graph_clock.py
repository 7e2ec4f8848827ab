"""Time stamps inside graphs: around each request for data, and at the end of a step, kept in a ring on the processor.

Calls inside a graph cannot be timed from Python. So when a function that asks an iterator for data is traced, an op
that reads the clock goes before and one after the request, tied by control dependencies, and both are written to a
ring. The ring is found by its name, not captured: a captured variable could keep a model from being saved. What was
stamped is cut into the steps that it belongs to.
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.python.framework import ops

if TYPE_CHECKING:
    from xttsbench.worker.contents import ScriptContents


class GraphTimestamp(NamedTuple):
    """One execution of a stamped place in a graph.

    Attributes:
        began_ns: before the element was asked for; the end of a step where the place marks one.
        ended_ns: when it was there.
        batch_size: its first dimension; 0 where unknown, below 0 where there was no element any more.
        elements: its numbers in all; 0 where unknown.
    """

    began_ns: int
    ended_ns: int
    batch_size: int = 0
    elements: int = 0


class StepInterval(NamedTuple):
    """One step: from the end of the one before to its own, and the part of it in which it waited for data."""

    began_ns: int
    ended_ns: int
    wait_ns: int
    batch_size: int = 0
    elements: int = 0


def covered_ns(stamps: Sequence[GraphTimestamp], began_ns: int, ended_ns: int) -> int:
    """Length of the union of the stamps within a window: replicas wait at the same time, which counts once."""
    total, reached = 0, began_ns
    for stamp in sorted(stamps, key=lambda one: one.began_ns):
        begin, end = max(stamp.began_ns, reached), min(stamp.ended_ns, ended_ns)
        if end > begin:
            total += end - begin
            reached = end
    return total


def steps_of_call(
    began_ns: int, ended_ns: int, waits: Sequence[GraphTimestamp], ends: Sequence[GraphTimestamp]
) -> list[StepInterval]:
    """The steps of one call from Python, which may be a group of them.

    A graph may ask for the next element while the step before still computes. Only what remains after that step's end
    is a wait, which clipping to the step's own window gives.

    Args:
        began_ns: end of the call before.
        ended_ns: end of this call, work after it included.
        waits: stamps of the requests for data, of all replicas; those outside of the window are ignored.
        ends: stamps of the ends of steps; none, or one, means that the call is one step.
    """
    waits = sorted((one for one in waits if began_ns <= one.ended_ns <= ended_ns), key=lambda one: one.ended_ns)
    given = [one for one in waits if one.batch_size >= 0]
    # Requests that gave nothing (an epoch's end, a new iterator) belong to a step only where there is but one.
    others = [one for one in waits if one.batch_size < 0]
    inner = sorted(one.ended_ns for one in ends if began_ns < one.ended_ns <= ended_ns)
    bounds = [began_ns, *inner[:-1], ended_ns]
    count = len(bounds) - 1
    pieces = []
    for index, (begin, end) in enumerate(itertools.pairwise(bounds)):
        own = given[index * len(given) // count : (index + 1) * len(given) // count]
        pieces.append(
            StepInterval(
                begin,
                end,
                covered_ns([*own, *(others if count == 1 else ())], begin, end),
                sum(one.batch_size for one in own),
                sum(one.elements for one in own),
            )
        )
    return pieces


class Calls:
    """Calls from Python that have returned.

    Args:
        calls: begin and end of each, in order; none begins before the one before it has ended.
    """

    def __init__(self, calls: Sequence[tuple[int, int]]) -> None:
        self._begins, self._ends = [begin for begin, _ in calls], [end for _, end in calls]

    def end_of(self, at_ns: int) -> int | None:
        """When the call ended that ran at that time; ``None`` where none did, or it has not ended."""
        index = bisect_right(self._begins, at_ns) - 1
        return self._ends[index] if index >= 0 and at_ns <= self._ends[index] else None

    def any_ended(self, first_ns: int, last_ns: int) -> bool:
        """Whether one ended between these times."""
        index = bisect_left(self._ends, first_ns)
        return index < len(self._ends) and self._ends[index] <= last_ns


def steps_of_requests(requests: Sequence[GraphTimestamp], calls: Calls) -> list[StepInterval]:
    """The steps of a loop inside a graph: each from one request for data to the next one within the same call.

    Args:
        requests: stamps of the requests, in order.
        calls: the last step of a call ends with it.

    Returns:
        One piece for each request whose end is known: a later request came, or its call has returned.
    """
    pieces = []
    for index, one in enumerate(requests):
        if one.batch_size < 0:  # the end of the data, not a step
            continue
        end = calls.end_of(one.began_ns)
        if index + 1 < len(requests):
            following = requests[index + 1].began_ns
            end = following if end is None else min(end, following)
        if end is not None:
            end = max(end, one.ended_ns)
            pieces.append(StepInterval(one.began_ns, end, one.ended_ns - one.began_ns, one.batch_size, one.elements))
    return pieces


def merged(replicas: Sequence[Sequence[GraphTimestamp]]) -> list[GraphTimestamp]:
    """One stamp a step of replicas that ask for their parts of the same batch, from as many as all of them have."""
    return [
        GraphTimestamp(
            min(one.began_ns for one in parts),
            max(one.ended_ns for one in parts),
            sum(one.batch_size for one in parts),
            sum(one.elements for one in parts),
        )
        for parts in zip(*replicas, strict=False)
    ]


_SLOTS: Final = 8192
DEVICE: Final = "/device:CPU:0"
_COLUMNS: Final = 4


_numbers: Final = itertools.count()
"""Numbers of the places of this process: a graph that was traced for an earlier clock still writes to its own."""


class Site:
    """One place in a traced graph.

    Attributes:
        group: number of the request that it is a part of (a replica each).
        lost: executions that were overwritten before they were read.
    """

    def __init__(self, group: int, kind: str) -> None:
        number = next(_numbers)
        self.group = group
        self.kind = kind
        self.lost = 0
        self._names = f"xttsbench/stamps/{number}", f"xttsbench/stamped/{number}"
        self._read = 0
        with ops.init_scope(), tf.device(DEVICE):
            self._ring, self._count = self._handles()
            tf.raw_ops.AssignVariableOp(resource=self._ring, value=np.zeros((_SLOTS, _COLUMNS)))
            tf.raw_ops.AssignVariableOp(resource=self._count, value=np.int64(0))

    def _handles(self) -> tuple[Any, Any]:
        ring, count = self._names
        return (
            tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=[_SLOTS, _COLUMNS], shared_name=ring, container=""),
            tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name=count, container=""),
        )

    def write(self, values: list[Any]) -> Any:
        """Add the ops that write one row to the graph that is being traced; returns how many were written before."""
        return self.write_rows(tf.stack([tf.cast(value, tf.float64) for value in values])[None])

    def write_rows(self, rows: Any) -> Any:
        """Do the same with any number of rows, none included."""
        ring, count = self._handles()
        at = tf.raw_ops.ReadVariableOp(resource=count, dtype=tf.int64)
        number = tf.shape(rows, tf.int64)[0]
        put = tf.raw_ops.ResourceScatterUpdate(resource=ring, indices=(at + tf.range(number)) % _SLOTS, updates=rows)
        with tf.control_dependencies([put]):
            tf.raw_ops.AssignAddVariableOp(resource=count, value=number)
        return at

    def due(self) -> Any:
        """Variable, for the graph that is being traced, with the time before which nothing is to be done."""
        name = self._names[0].replace("stamps", "due")
        with ops.init_scope(), tf.device(DEVICE):
            made = tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=[], shared_name=name, container="")
            tf.raw_ops.AssignVariableOp(resource=made, value=np.float64(0.0))
        return tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=[], shared_name=name, container="")

    def drain(self, offset_ns: int) -> list[GraphTimestamp]:
        """Stamps since the last call, in the time of ``time.perf_counter_ns``; if more than fit, the last ones."""
        return [
            GraphTimestamp(round(t0 * 1e9) - offset_ns, round(t1 * 1e9) - offset_ns, int(size), int(elements))
            for t0, t1, size, elements in self.rows().tolist()
        ]

    def rows(self) -> npt.NDArray[np.float64]:
        """Rows since the last call, as they were written; if more than fit, the last ones."""
        with tf.device(DEVICE):
            count = int(tf.raw_ops.ReadVariableOp(resource=self._count, dtype=tf.int64)._numpy_internal())
            if count == self._read:
                return np.empty((0, _COLUMNS))
            first = max(self._read, count - _SLOTS)
            slots = np.arange(first, count) % _SLOTS
            # Not all of it, which would be copied; and not by what counts values that the script fetches.
            rows = tf.raw_ops.ResourceGather(resource=self._ring, indices=slots, dtype=tf.float64)._numpy_internal()
        self.lost += first - self._read
        self._read = count
        return np.asarray(rows)


class GraphClock:
    """All stamped places of a process.

    Attributes:
        contents: keeps the batches, where that is wanted.
    """

    def __init__(self, on_site: Callable[[Site], None]) -> None:
        self.sites: list[Site] = []
        self.contents: ScriptContents | None = None
        self._on_site = on_site
        self._group: int | None = None
        self._groups = 0

    @property
    def asking(self) -> bool:
        """Whether a distributed iterator's request is being traced."""
        return self._group is not None

    def grouped(self, original: Callable[[], Any]) -> Any:
        """Trace one request of a distributed iterator: the requests of its replicas belong together."""
        if self._group is not None:
            return original()
        self._group, self._groups = self._groups, self._groups + 1
        try:
            return original()
        finally:
            self._group = None

    def around_request(self, original: Callable[[], Any]) -> Any:
        """Trace a request for data with stamps around it."""
        site = self._site("request")
        with tf.name_scope("xttsbench"), tf.device(DEVICE):
            began = tf.timestamp()
        with tf.control_dependencies([began]):
            result = original()
        optional = isinstance(result, tf.experimental.Optional)
        tensors = [result._variant_tensor] if optional else tensors_of(result)
        with tf.name_scope("xttsbench"), ops.colocate_with(None, ignore_existing=True), tf.device(DEVICE):
            with tf.control_dependencies(tensors):
                ended = tf.timestamp()
            size, elements = _sizes_of_optional(result) if optional else _sizes(tensors)
            number = site.write([began, ended, size, elements])
        if self.contents is not None:
            self.contents.traced(number, result)
        return result

    def mark_end_of(self, outputs: Any) -> None:
        """GraphTimestamp the end of a step in the graph that is being traced: when all of its outputs are there."""
        if self._group is not None:  # a distributed iterator wraps its elements so too
            return
        after = tensors_of(outputs)
        site = self._site("end")
        with tf.name_scope("xttsbench"), ops.colocate_with(None, ignore_existing=True), tf.device(DEVICE):
            with tf.control_dependencies(after):
                ended = tf.timestamp()
            site.write([ended, ended, 0.0, 0.0])

    def around_body(self, body: Callable[..., Any], state: Callable[[], Any]) -> Callable[..., Any]:
        """The body of a loop over a dataset inside a graph, stamped at its begin and its end."""
        group, self._groups = self._groups, self._groups + 1

        def stamped(iterate: Any) -> Any:
            site = self._site("body", group)
            with tf.name_scope("xttsbench"), tf.device(DEVICE), tf.control_dependencies(tensors_of(iterate)):
                began = tf.timestamp()
                size, elements = _sizes(tensors_of(iterate))
            known = len(ops.get_default_graph().get_operations())
            result = body(iterate)
            made = ops.get_default_graph().get_operations()[known:]
            after = [op for op in made if op.op_def is not None and op.op_def.is_stateful] + tensors_of(state())
            with tf.name_scope("xttsbench"), tf.device(DEVICE):
                with tf.control_dependencies(after):
                    ended = tf.timestamp()
                number = site.write([began, ended, size, elements])
            if self.contents is not None:
                self.contents.traced(number, iterate)
            return result

        return stamped

    @property
    def lost(self) -> int:
        """Requests that were overwritten before they were read; of replicas, of the one that lost most."""
        groups: dict[int, int] = {}
        for site in self.sites:
            if site.kind != "end":
                groups[site.group] = max(groups.get(site.group, 0), site.lost)
        return sum(groups.values())

    def drain(self) -> list[tuple[Site, list[GraphTimestamp]]]:
        """Everything since the last time, of the sites that ran since."""
        offset_ns = time.time_ns() - time.perf_counter_ns()
        found = [(site, site.drain(offset_ns)) for site in list(self.sites)]
        return [(site, stamps) for site, stamps in found if stamps]

    def _site(self, kind: str, group: int | None = None) -> Site:
        if group is None:
            group = self._group
        if group is None:
            group, self._groups = self._groups, self._groups + 1
        site = Site(group, kind)
        self.sites.append(site)
        self._on_site(site)
        return site


def tensors_of(value: Any) -> list[Any]:
    """All tensors of a nested value, those of composite ones among them."""
    flat = tf.nest.flatten(value, expand_composites=True)
    return [one for one in flat if isinstance(one, tf.Tensor)]


def _sizes(tensors: list[Any]) -> tuple[Any, Any]:
    """First dimension of the first tensor that has one, and the numbers in all of them, as ops where not static."""
    plain = [one for one in tensors if one.dtype not in (tf.variant, tf.resource)]
    first = next((one for one in plain if one.shape.rank), None)
    size = tf.shape(first)[0] if first is not None else tf.constant(1)
    elements = tf.add_n([tf.size(one, tf.int64) for one in plain]) if plain else tf.constant(0)
    return size, elements


def _sizes_of_optional(result: Any) -> tuple[Any, Any]:
    def there() -> tuple[Any, Any]:
        size, elements = _sizes(tensors_of(result.get_value()))
        return tf.cast(size, tf.float64), tf.cast(elements, tf.float64)

    def empty() -> tuple[Any, Any]:
        return tf.constant(-1.0, tf.float64), tf.constant(0.0, tf.float64)

    sizes: tuple[Any, Any] = tf.cond(result.has_value(), there, empty)
    return sizes
