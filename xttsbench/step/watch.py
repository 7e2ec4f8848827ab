"""Counters of what TensorFlow does inside a step: calls, traces, values fetched, collections.

A watch wraps a handful of TensorFlow's Python functions and adds to plain integers; it takes no lock and keeps no
list in the steady state, so that looking costs microseconds. Every wrapper keeps ``functools.wraps``: AutoGraph would
take it for user code otherwise.
"""

from __future__ import annotations

import functools
import gc
import operator
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from tensorflow.python.eager.polymorphic_function import polymorphic_function, tracing_compilation
from tensorflow.python.framework import ops

from xttsbench.records.rows import StepRow
from xttsbench.records.trial import Trace

COUNTERS: Final = ("calls", "calls_ns", "traces", "trace_ns", "syncs", "sync_ns", "gc_ns")

_MOST_SEEN: Final = 500  # traces of a function that later ones are compared with
MANY_CALLS: Final = 10
"""A step of so many calls is dispatched from Python anyway; its calls are counted in a segment of its own."""


class Calls(Protocol):
    """Hears of the outermost calls of tf.functions on the main thread."""

    def before_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """One begins; the arguments to call it with."""

    def after_call(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], began_ns: int, result: Any
    ) -> None:
        """Called after the function has returned or raised."""

    def before_trace(self) -> None:
        """A function is traced, within a call or outside of any."""


class Watch:
    """Counts what happens inside steps while it is installed (use it as a context manager).

    ``counts`` are the cumulative values in the order of :data:`COUNTERS`, always in the same list. Call
    :meth:`step_ended` after each step, so that a step of many calls is left alone.
    """

    def __init__(self) -> None:
        self.traces: list[Trace] = []
        self.step = 0
        self.counts = [0] * len(COUNTERS)
        self.calling = False  # whether a call of the main thread is under way
        self.hears: Calls | None = None  # who is told of each call
        self.instead: Callable[[Any], tuple[Any, ...] | None] | None = None
        """Asked for what a function's call gives in place of its result, first in a tuple; ``None`` has it called."""
        self.log: Callable[[tuple[int, int]], None] | None = None  # gets begin and end of calls that nobody is told of
        self._calls: Calls | None = None
        self._counting = False
        self._depth = 0
        self._tracing = 0
        self._gc_began_ns = 0
        self._seen: dict[tuple[str, int], list[tuple[int, str]]] = {}
        self._undo: list[Callable[[], None]] = []
        self._leave_calls: Callable[[], None] | None = None
        self._calls_before = 0

    def counters(self) -> tuple[int, ...]:
        """Cumulative counters, in the order of :data:`COUNTERS`."""
        return tuple(self.counts)

    def step_ended(self, steps: int = 1) -> None:
        """Count no calls any more where the step, or so many of them in the mean, made many."""
        calls = self.counts[0]
        if calls - self._calls_before >= MANY_CALLS * steps:
            self.leave_calls()
        self._calls_before = calls

    @property
    def counts_calls(self) -> bool:
        """Whether calls of tf.functions are counted now."""
        return self._counting

    def watch_calls(self) -> None:
        """Count and time calls of tf.functions, also where a step of many calls has ended that."""
        self._counting = True
        if self._leave_calls is None:
            self._leave_calls = self._patched(polymorphic_function.Function, "__call__", self._around_call)

    def leave_calls(self) -> None:
        """Stop counting calls: some microseconds each would be too much for a step that makes many."""
        self._counting = False
        if self._calls is None:
            self._leave()

    def _leave(self) -> None:
        if self._leave_calls is not None:
            self._leave_calls()
            self._leave_calls = None

    def tell(self, calls: Calls) -> None:
        """Have somebody told of each call, also where they are counted no more, and of what is traced."""
        self._calls = self.hears = calls

    def listen(self, *, to_calls: bool) -> None:
        """Tell them of each call, or of none until something is traced."""
        self.hears = self._calls if to_calls else None

    def __enter__(self) -> Watch:
        self.watch_calls()
        self._undo.append(self._leave)
        self._patch(tracing_compilation, "_create_concrete_function", self._around_trace)
        self._patch(ops._EagerTensorBase, "_numpy", self._around_sync)
        gc.callbacks.append(self._on_gc)
        self._undo.append(lambda: gc.callbacks.remove(self._on_gc))
        return self

    def __exit__(self, *_: object) -> None:
        while self._undo:
            self._undo.pop()()

    def _patch(self, owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._undo.append(self._patched(owner, name, around))

    def _patched(
        self, owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> Callable[[], None]:
        original = getattr(owner, name)
        setattr(owner, name, functools.wraps(original)(around(original)))
        return lambda: setattr(owner, name, original)

    def _around_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        counts, clock = self.counts, time.perf_counter_ns
        main, me = threading.main_thread().ident, threading.get_ident

        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            if self.calling:  # while another one is traced or run eagerly: the outermost has the time
                return original(function, *args, **kwargs)
            if me() != main:
                return elsewhere(function, args, kwargs)
            if self.instead is not None and (given := self.instead(function)) is not None:
                return given[0]
            if self.hears is not None:
                args, kwargs = self.hears.before_call(args, kwargs)
            self.calling = True
            result, began = None, clock()
            try:
                result = original(function, *args, **kwargs)
                return result
            finally:
                ended = clock()
                self.calling = False
                if self._counting:
                    counts[0] += 1
                    counts[1] += ended - began
                if self.hears is not None:
                    self.hears.after_call(function, args, kwargs, began, result)
                elif self.log is not None:
                    self.log((began, ended))

        def elsewhere(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if self._depth or not self._counting:
                return original(function, *args, **kwargs)
            self._depth = 1
            began = clock()
            try:
                return original(function, *args, **kwargs)
            finally:
                self._depth = 0
                counts[0] += 1
                counts[1] += clock() - began

        return call

    def _around_trace(self, original: Callable[..., Any]) -> Callable[..., Any]:
        counts, clock = self.counts, time.perf_counter_ns

        def create(function_type: Any, type_context: Any, func_graph: Any, tracing_options: Any) -> Any:
            if self._tracing:
                return original(function_type, type_context, func_graph, tracing_options)
            if self._calls is not None:
                self._calls.before_trace()
            self._tracing = 1
            began = clock()
            try:
                return original(function_type, type_context, func_graph, tracing_options)
            finally:
                self._tracing = 0
                spent = clock() - began
                counts[2] += 1
                counts[3] += spent
                self._note_trace(tracing_options, function_type, spent)

        return create

    def _around_sync(self, original: Callable[..., Any]) -> Callable[..., Any]:
        counts, clock = self.counts, time.perf_counter_ns

        def fetch(tensor: Any) -> Any:
            began = clock()
            try:
                return original(tensor)
            finally:
                counts[4] += 1
                counts[5] += clock() - began

        return fetch

    def _on_gc(self, phase: str, _: dict[str, int]) -> None:
        now = time.perf_counter_ns()
        if phase == "start":
            self._gc_began_ns = now
        else:
            self.counts[6] += now - self._gc_began_ns

    def _note_trace(self, options: Any, function_type: Any, spent_ns: int) -> None:
        function = getattr(options, "python_function", None)
        code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
        key = (str(options.name), getattr(code, "co_firstlineno", 0))
        signature = str(function_type)
        before = self._seen.setdefault(key, [])
        reason = trace_reason(before, id(function), signature)
        if len(before) < _MOST_SEEN:  # a function that is traced in every step of a long run
            before.append((id(function), signature))
        if len(self.traces) < 200:
            known: dict[str, Any] = {"step": self.step, "function": key[0], "reason": reason}
            self.traces.append(Trace(**known, signature=signature[:300], time_s=spent_ns / 1e9))


Reason = Literal["first", "new function object", "shape", "python value", "other"]

_SHAPE = re.compile(r"shape=(\([^)]*\)|<unknown>|None)")
_LITERAL = re.compile(r"Literal\[[^\]]*\]")


def trace_reason(before: Sequence[tuple[int, str]], function_id: int, signature: str) -> Reason:
    """The reason of a trace, given the ``(id of the Python function, signature)`` of earlier ones of the same name.

    ``shape``: an earlier trace of the same function differs in tensor shapes only; ``python value``: in a Python
    argument only; ``new function object``: the signature was traced before, for another function object, which is
    what a tf.function made inside the loop does.
    """
    if not before:
        return "first"
    own = [earlier for earlier_id, earlier in before if earlier_id == function_id]
    if not own:
        return "new function object"
    if any(_SHAPE.sub("", earlier) == _SHAPE.sub("", signature) and earlier != signature for earlier in own):
        return "shape"
    if any(_LITERAL.sub("", earlier) == _LITERAL.sub("", signature) and earlier != signature for earlier in own):
        return "python value"
    # The same signature again: a function traces twice on its first call where it creates variables.
    return "first" if len(own) == 1 and own[0] == signature else "other"


@functools.cache
def _main_clock() -> int:
    """The processor clock of the main thread, which other threads can read too."""
    return time.pthread_getcpuclockid(threading.main_thread().ident or 0)


@dataclass(slots=True)
class Moment:
    """Reading of the counters: the watch's, processor time of the process and of its main thread."""

    counters: tuple[int, ...]
    cpu_ns: int
    main_cpu_ns: int

    @classmethod
    def now(cls, watch: Watch) -> Moment:
        """Read everything."""
        return cls(watch.counters(), time.process_time_ns(), time.clock_gettime_ns(_main_clock()))

    def since(self, before: Moment, parts: int = 1) -> list[Moment]:
        """Increase since an earlier reading, for each of ``parts`` steps: clocks spread evenly, events on the first."""
        added = tuple(map(operator.sub, self.counters, before.counters))
        cpu, main = self.cpu_ns - before.cpu_ns, self.main_cpu_ns - before.main_cpu_ns
        if parts == 1:  # nearly always, and in every step
            return [Moment(added, max(cpu, 0), max(main, 0))]
        calls, calls_ns = added[:2]
        nothing = [0] * (len(added) - 2)
        return [
            Moment(
                (
                    calls * (part + 1) // parts - calls * part // parts,
                    calls_ns // parts,
                    *(nothing if part else added[2:]),
                ),
                max(cpu, 0) // parts,
                max(main, 0) // parts,
            )
            for part in range(parts)
        ]


def step_row(
    start_ns: int,
    wall_ns: int,
    wait_ns: int,
    added: Moment,
    shape: tuple[int, int, int, int],
    *,
    epoch: int = 0,
    device_ns: int = 0,
    emulated_ns: int = 0,
    pause_ns: int = 0,
) -> StepRow:
    """The row of a step; a wait or a pause that reaches beyond the step's own time is cut to it.

    Args:
        start_ns: when it began, before its batch was asked for.
        wall_ns: from the end of the step before to its end; what is neither pause nor wait is ``step_ns``.
        wait_ns: for its batch.
        added: what was counted in it.
        shape: index of the batch's signature, its first dimension, its numbers in all, its frames with padding.
        epoch: how often the dataset was begun again.
        device_ns: waiting for the device.
        emulated_ns: of the emulated accelerator.
        pause_ns: our own work since the step before.
    """
    calls, calls_ns, traces, trace_ns, syncs, sync_ns, gc_ns = added.counters
    shape_id, size, elements, frames = shape
    pause_ns = min(pause_ns, wall_ns)
    wait_ns = min(wait_ns, wall_ns - pause_ns)
    step_ns = wall_ns - pause_ns - wait_ns
    # Of calls that are seen from a loop inside them only the part that is no wait belongs to the step.
    calls_ns = min(calls_ns, step_ns)
    # In the order of its columns: names would cost a quick step some microseconds.
    return StepRow(
        start_ns, wall_ns, wait_ns, step_ns, device_ns, emulated_ns, trace_ns, traces, 0, 0, sync_ns, syncs, gc_ns,
        calls, calls_ns, added.cpu_ns, added.main_cpu_ns, size, elements, shape_id, epoch, frames, pause_ns,
    )  # fmt: skip
