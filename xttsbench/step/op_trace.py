"""The ops that a compiled step runs, timed one by one by TensorFlow's own profiler, kept in memory.

Eager ops carry no name in it and are timed elsewhere (:mod:`xttsbench.step.eager_ops`). Of kernels that take a few
microseconds it sees only the first runs: once TensorFlow's executor has learnt that a kernel is cheap (8,000 cycles,
about 3 microseconds), the profiler does not see it. The level that shows all cannot be set: integers among its options
arrive as booleans.
"""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

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
    """What the profiler saw while it was entered; ``reason`` says why it saw nothing.

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
            self.reason = (
                f"TensorFlow's profiler did not start: {str(error).splitlines()[0][:200] if str(error) else ''}"
            )
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
            ops.append(OpEvent(*_parted(name or event.name), _gpu(device), lane, start, end))
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
        if key not in found:
            found[key] = OpTime(event.name, event.op, event.device, function, event.instruction)
        found[key].count += 1
        found[key].time_s += self_ps / 1e12
    return list(found.values())


def _self_times(events: Sequence[OpEvent]) -> Iterator[tuple[OpEvent, int]]:
    lanes: dict[tuple[int, int], list[OpEvent]] = defaultdict(list)
    for event in events:
        lanes[event.lane].append(event)
    for own in lanes.values():
        stack: list[tuple[OpEvent, list[int]]] = []
        for event in sorted(own, key=lambda event: (event.start_ps, -event.end_ps)):
            while stack and stack[-1][0].end_ps <= event.start_ps:
                ended, inside = stack.pop()
                yield ended, max(ended.end_ps - ended.start_ps - inside[0], 0)
            if stack:
                stack[-1][1][0] += min(event.end_ps, stack[-1][0].end_ps) - event.start_ps
            stack.append((event, [0]))
        for ended, inside in stack:
            yield ended, max(ended.end_ps - ended.start_ps - inside[0], 0)


def _parted(long_name: str) -> tuple[str, str]:
    """``scope/MatMul_1:MatMul`` as name and type."""
    name, _, kind = long_name.rpartition(":")
    return (name, kind.split("#")[0]) if name else (long_name, "")


def _gpu(device: str) -> str:
    return "GPU:" + device.rsplit("GPU:", 1)[-1].split(maxsplit=1)[0]


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
