"""The ops that a step runs, one by one: compiled ones by TensorFlow's profiler, eager ones as they are launched.

The profiler's trace is kept in memory. Eager ops carry no name in it. Of kernels that take a few microseconds it sees
only the first runs: once TensorFlow's executor has learnt that a kernel is cheap (8,000 cycles, about 3 microseconds),
the profiler does not see it. The level that shows all cannot be set: integers among its options arrive as booleans.
"""

from __future__ import annotations

import bisect
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final, NamedTuple
from unittest import mock

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager.polymorphic_function import atomic_function, polymorphic_function

from xttsbench.errors import first_line
from xttsbench.step.frames import CALLER, Frame
from xttsbench.step.graph_ops import CALLS

_DEVICE_NAMES: Final = ("tf_op", "long_name", "kernel_annotation", "annotation")
_WAITS: Final = CALLS | {"_Send", "_Recv", "_HostSend", "_HostRecv", "FunctionRun"}
"""Ops whose time is that of what they wait for."""


class OpEvent(NamedTuple):
    """One run of one op (or, under XLA, of one instruction)."""

    name: str
    op: str
    device: str
    lane: tuple[int, int]
    start_ps: int
    end_ps: int
    instruction: bool = False


class Call(NamedTuple):
    """One call of a traced function from Python."""

    function: str
    start_ps: int
    end_ps: int


@dataclass
class OpTime:
    """All runs of one op: times summed over threads."""

    name: str
    op: str
    device: str
    function: str
    instruction: bool
    count: int = 0
    time_s: float = 0.0

    @property
    def instruction_root(self) -> str:
        """The instruction's own name: XLA's runtime may put what it does with it before or after that."""
        return self.name.split("/")[-1]


@dataclass
class OpTrace:
    """Ops that the profiler saw while it was entered; ``reason`` says why it saw none.

    Use it as a context manager around a few steps, then read :meth:`times`.
    """

    reason: str | None = None
    events: list[OpEvent] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def __enter__(self) -> OpTrace:
        # Inside, since only this needs the profiler, and its place moved between versions.
        from tensorflow.python.profiler.internal import _pywrap_profiler

        self._session: Any = _pywrap_profiler.ProfilerSession()
        try:
            self._session.start("", {})
        except Exception as error:  # whatever it raises, a step without a profile is still a step
            self._session = None
            self.reason = f"TensorFlow's profiler did not start: {first_line(error)}"
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is None:
            return
        from tensorflow.tsl.profiler.protobuf import trace_events_pb2

        trace = trace_events_pb2.Trace()
        try:
            trace.ParseFromString(self._session.stop())
        except Exception as error:
            self.reason = f"TensorFlow's profile could not be read: {type(error).__name__}"
            return
        devices = {number: device.name for number, device in trace.devices.items()}
        self.events, self.calls = read_events(trace.trace_events, devices)

    def times(self) -> list[OpTime]:
        """Time of each op without that of the ops inside it, by name, device and function called from Python."""
        return op_times(self.events, self.calls)


def read_events(events: Iterable[Any], devices: dict[int, str]) -> tuple[list[OpEvent], list[Call]]:
    """Ops and calls among the events of a trace (``trace_events_pb2.TraceEvent``)."""
    ops, calls = [], []
    for event in events:
        start, end = event.timestamp_ps, event.timestamp_ps + event.duration_ps
        lane, device = (event.device_id, event.resource_id), devices.get(event.device_id, "")
        args = event.args
        if "/device:GPU" in device:
            name = next((args[key] for key in _DEVICE_NAMES if key in args), "")
            gpu = "GPU:" + device.rsplit("GPU:", 1)[-1].split(maxsplit=1)[0]
            ops.append(OpEvent(*_parted(name or event.name), gpu, lane, start, end))
        elif "hlo_op" in args:
            ops.append(OpEvent(args["hlo_op"], "", "CPU:0", lane, start, end, instruction=True))
        elif "long_name" in args:
            ops.append(OpEvent(*_parted(args["long_name"]), "CPU:0", lane, start, end))
        elif event.name == "EagerExecute" and args.get("is_func") in ("1", "true"):
            calls.append(Call(args.get("eager_op", ""), start, end))
    return ops, sorted(calls, key=lambda call: call.start_ps)


def op_times(events: Sequence[OpEvent], calls: Sequence[Call]) -> list[OpTime]:
    """Sum up the events: each without what ran inside it on its thread, and none that only waits. Pure."""
    found: dict[tuple[str, str, str, bool], OpTime] = {}
    starts = [call.start_ps for call in calls]
    for event, self_ps in _self_times(events):
        if event.op in _WAITS or event.op.startswith("__") or event.name.startswith("__inference_"):
            continue
        at = bisect.bisect_right(starts, event.start_ps) - 1
        function = calls[at].function if at >= 0 else ""
        key = (event.name, event.device, function, event.instruction)
        total = found.setdefault(key, OpTime(event.name, event.op, event.device, function, event.instruction))
        total.count += 1
        total.time_s += self_ps / 1e12
    return list(found.values())


def _self_times(events: Sequence[OpEvent]) -> Iterator[tuple[OpEvent, int]]:
    """Each event, and its time without that of the events inside it on its thread."""
    inside_ps, around = [0] * len(events), dict[tuple[int, int], list[int]]()
    for at in sorted(range(len(events)), key=lambda at: (events[at].start_ps, -events[at].end_ps)):
        event, stack = events[at], around.setdefault(events[at].lane, [])
        while stack and events[stack[-1]].end_ps <= event.start_ps:
            stack.pop()
        if stack:
            inside_ps[stack[-1]] += min(event.end_ps, events[stack[-1]].end_ps) - event.start_ps
        stack.append(at)
    for event, within_ps in zip(events, inside_ps, strict=True):
        yield event, max(event.end_ps - event.start_ps - within_ps, 0)


def _parted(long_name: str) -> tuple[str, str]:
    """``scope/MatMul_1:MatMul`` as name and type."""
    name, _, kind = long_name.rpartition(":")
    return (name, kind.split("#")[0]) if name else (long_name, "")


_INSTRUCTION: Final = re.compile(r"^\s*(?:ROOT\s+)?%?([\w.\-]+)\s*=.*metadata=\{([^}]*)\}", re.MULTILINE)
_NAME: Final = re.compile(r'op_name="([^"]*)"')
_TYPE: Final = re.compile(r'op_type="([^"]*)"')


def op_names(hlo: str) -> dict[str, tuple[str, str]]:
    """Instruction -> (name, type) of the op that it was made of; fusions carry that of their root."""
    found = {}
    for match in _INSTRUCTION.finditer(hlo):
        name, kind = _NAME.search(match[2]), _TYPE.search(match[2])
        if name is not None and name[1]:
            found[match[1]] = (name[1], kind[1] if kind else "")
    return found


_MAX_OPS: Final = 100_000
Stack = tuple[tuple[Any, int], ...]


@dataclass(frozen=True)
class EagerOp:
    """One op launched from Python: type, seconds, where its result is, the types of its results, and the stack."""

    op: str
    time_s: float
    device: str
    dtypes: tuple[str, ...]
    stack: Stack

    @property
    def frames(self) -> list[Frame]:
        """The stack that launched it, outermost first, from the step inwards."""
        return [Frame(code.co_filename, line, code.co_name) for code, line in reversed(self.stack)]


@dataclass
class EagerOps:
    """Notes the ops launched within it, a context manager; call :meth:`begin_step` before each of the steps.

    It stands before TensorFlow's two entries for eager ops, and before calls of traced functions, while it is entered.
    Its own time is measured and left out; still no timing of a step uses a run that it watched.
    """

    steps: list[list[EagerOp]] = field(default_factory=list)  # the ops of each step, in order
    functions: dict[str, Any] = field(default_factory=dict)  # each ``AtomicFunction`` that was called, by name
    compiled: dict[int, tuple[Any, tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)
    """Functions compiled by XLA as a whole: the ``tf.function`` with the arguments of its last call."""
    inside_s: float = 0.0  # seconds, over all steps, inside ops, called functions and this class itself
    _patches: ExitStack = field(default_factory=ExitStack)
    _depth: int = 0
    _count: int = 0

    def begin_step(self) -> None:
        """Begin the list of another step."""
        self.steps.append([])

    def __enter__(self) -> EagerOps:
        self._patch(pywrap_tfe, "TFE_Py_FastPathExecute", lambda original: self._around_op(original, 1))
        self._patch(pywrap_tfe, "TFE_Py_Execute", lambda original: self._around_op(original, 2))
        self._patch(atomic_function.AtomicFunction, "call_flat", self._around_call)
        self._patch(polymorphic_function.Function, "__call__", self._around_function)
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def _patch(self, owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._patches.enter_context(mock.patch.object(owner, name, around(getattr(owner, name))))

    def _around_op(self, original: Callable[..., Any], name_at: int) -> Callable[..., Any]:
        clock = time.perf_counter

        def execute(*args: Any) -> Any:
            entered = clock()
            name = str(args[name_at])
            if self._depth or not self.steps or self._count >= _MAX_OPS or name.startswith("__"):
                return original(*args)
            stack = _stack()
            self._depth += 1
            began = clock()
            try:
                result = original(*args)
            finally:
                ended = clock()
                self._depth -= 1
                self.inside_s += ended - entered
            self._count += 1
            outputs = result if isinstance(result, list | tuple) else (result,)
            first = next((one for one in outputs if hasattr(one, "dtype")), None)
            dtypes = () if first is None else (first.dtype.name,)
            self.steps[-1].append(EagerOp(name, ended - began, getattr(first, "device", "") or "", dtypes, stack))
            self.inside_s += clock() - ended
            return result

        return execute

    def _around_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock = time.perf_counter

        def call_flat(function: Any, *args: Any) -> Any:
            if self._depth or not self.steps:
                return original(function, *args)
            name = function.name.decode() if isinstance(function.name, bytes) else str(function.name)
            self.functions[name] = function
            self._depth += 1
            began = clock()
            try:
                return original(function, *args)
            finally:
                self._depth -= 1
                self.inside_s += clock() - began

        return call_flat

    def _around_function(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            if self.steps and getattr(function, "_jit_compile", None):
                self.compiled[id(function)] = (function, args, kwargs)
            return original(function, *args, **kwargs)

        return call


def _stack() -> Stack:
    frames = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != CALLER:
        frames.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(frames)


_KINDS: Final = 12  # Types of ops that are named


class OpCounter:
    """Counts eager ops by type and their time, by standing before TensorFlow's fast path while it is entered."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.time_ns = 0

    def __enter__(self) -> OpCounter:
        self._fast_path: Callable[..., Any] = pywrap_tfe.TFE_Py_FastPathExecute
        pywrap_tfe.TFE_Py_FastPathExecute = self._execute
        return self

    def __exit__(self, *_: object) -> None:
        pywrap_tfe.TFE_Py_FastPathExecute = self._fast_path

    def _execute(self, context: Any, name: str, *args: Any) -> Any:
        began = time.perf_counter_ns()
        try:
            return self._fast_path(context, name, *args)
        finally:
            self.time_ns += time.perf_counter_ns() - began
            self.counts[name] += 1

    def per_step(self, steps: int, calls: int) -> dict[str, Any]:
        """Counts of so many steps, with as many calls of tf.functions, as fields of a :class:`StepProfile`."""
        return {
            "steps": steps,
            "eager_ops_per_step": sum(self.counts.values()) / steps,
            "eager_op_time_s": self.time_ns / 1e9 / steps,
            "op_floor_s": _op_floor_s(),
            "function_calls_per_step": calls / steps,
            "ops": {name: count / steps for name, count in self.counts.most_common(_KINDS)},
        }


def _op_floor_s() -> float:
    """Median time to launch an eager op on scalars: all of it is dispatch."""
    value, times = tf.constant(1.0), []
    for _ in range(200):
        began = time.perf_counter_ns()
        value + value
        times.append(time.perf_counter_ns() - began)
    return sorted(times)[len(times) // 2] / 1e9
