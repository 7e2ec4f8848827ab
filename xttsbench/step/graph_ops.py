"""The ops of a traced function and of the functions that it calls: phase and user's line, found by the runtime's name.

The runtime inlines functions and loops, and names what it runs by the way down to it: ``while/body/_1/while/add`` is
``while/add`` in the graph that is the body of ``while``. A name is taken apart along the same way. What grappler made
anew keeps a part of the old name, which is tried last.

Why an op is on its device follows the order of TensorFlow's placer: what was asked for, then what kernels there are,
then what the op stands beside; last come the types whose kernels for the GPU keep their data in the host's memory.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import tensorflow as tf
from tensorflow.python.eager import context

from xttsbench.records.code import Phase
from xttsbench.step.frames import Frame, in_layer, in_order, own_phase, user_frame, writes

_MAX_OPS: Final = 40_000
_MAX_DEPTH: Final = 12
_FUNCTIONS: Final = ("f", "body", "cond", "then_branch", "else_branch", "branches")
_STEP_DOWN: Final = ("body", "cond", "then", "else")
_PASS: Final = re.compile(r"^(ConstantFolding|ArithmeticOptimizer|LayoutOptimizer|Func|FunctionalizeControlFlow)/")
_REWRITTEN: Final = re.compile(r"^\w*(Rewrite|Hoist\w*|Convert\w*)_")
_SUFFIX: Final = re.compile(r"(-\d.*|-folded.*|__cf__\d+)$")
_TRACER: Final = "func_graph_from_py_func"
"""TensorFlow's function that calls the user's to trace it: what is outside of it calls the step only."""
PLUMBING: Final = frozenset({"Placeholder", "Const", "NoOp", "_Arg", "_Retval", "Identity"})
CALLS: Final = frozenset(
    {"PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf", "Case"}
)


@dataclass(frozen=True)
class OpPlace:
    """Origin of an op in a traced function."""

    name: str  # in its graph
    op: str
    phase: Phase
    frame: Frame | None = None  # the user's innermost line on the stack that made it, where there is one
    requested: str = ""  # the device that was asked for while it was made; empty for none
    dtypes: tuple[str, ...] = ()  # names of the types of its outputs
    in_layer: bool = False  # whether a Keras layer made it


class GraphOps:
    """The ops of one ``FuncGraph``, and on demand those of the graphs that it calls.

    Reading an op's traceback takes tens of microseconds, so all graphs of a step share a budget of ops: ``[number]``.
    """

    def __init__(self, graph: Any, budget: list[int] | None = None, depth: int = 0) -> None:
        self.graph = graph
        self._budget = budget if budget is not None else [_MAX_OPS]
        self._depth = depth
        self._ops: dict[str, Any] = {op.name: op for op in graph.get_operations()}
        self.places: dict[str, OpPlace] = {}
        self._nested: dict[str, GraphOps | None] = {}
        self._read()

    def find(self, name: str) -> OpPlace | None:
        """The op that the runtime runs under this name; ``None`` where it leads nowhere."""
        bare = _SUFFIX.sub("", _REWRITTEN.sub("", _PASS.sub("", name)))
        found = self._along(name) or self._along(bare)
        return found or next((graph.places[name] for graph in self._all() if name in graph.places), None)

    def computing(self) -> Iterator[OpPlace]:
        """The ops of this graph and of those that it calls that are more than plumbing."""
        yield from (place for place in self.places.values() if place.op not in PLUMBING | CALLS)
        for op in self._ops.values():
            for graph in self._called_by(op):
                yield from graph.computing()

    def _along(self, name: str) -> OpPlace | None:
        parts = name.split("/")
        for end in range(len(parts), 0, -1):
            prefix = "/".join(parts[:end])
            place = self.places.get(prefix)
            if place is None:
                continue
            if end == len(parts):
                return place
            rest = parts[end:]
            branch = rest[0] if rest[0] in _STEP_DOWN else None
            if branch:
                rest = rest[2:] if len(rest) > 1 and rest[1].startswith("_") else rest[1:]
            for nested in self._called_by(self._ops[prefix], branch or ""):
                inside = nested._along("/".join(rest)) if rest else None
                if inside is not None:
                    return self._under(place, inside)
            if any(_function_names(self._ops[prefix])):
                return place
        return None

    @staticmethod
    def _under(call: OpPlace, inside: OpPlace) -> OpPlace:
        """Op with the phase of a call in the backward pass or by an optimizer, whatever the op's own stack says."""
        if call.phase in ("backward", "optimizer", "loss") and inside.phase in ("forward", "other"):
            return replace(inside, phase=call.phase)
        return inside

    def _graph_of(self, function: str) -> GraphOps | None:
        if function not in self._nested:
            more = self._depth < _MAX_DEPTH and self._budget[0] > 0
            graph = getattr(self.graph._get_function(function), "_cached_graph", None) if more else None
            self._nested[function] = GraphOps(graph, self._budget, self._depth + 1) if graph is not None else None
        return self._nested[function]

    def _called_by(self, op: Any, branch: str = "") -> Iterator[GraphOps]:
        for attribute, function in _function_names(op):
            if attribute.startswith(branch) and (nested := self._graph_of(function)) is not None:
                yield nested

    def _all(self) -> Iterator[GraphOps]:
        yield self
        for graph in filter(None, list(self._nested.values())):
            yield from graph._all()

    def _read(self) -> None:
        ops = list(self._ops.values())[: max(self._budget[0], 0)]
        self._budget[0] -= len(ops)
        stacks = [_stack(op) for op in ops]
        told: list[Phase | None] = [
            own_phase(stack) if stack else "backward" if by_name(op.name) else None
            for op, stack in zip(ops, stacks, strict=True)
        ]
        calls = [self._inside(op) if phase is None else None for op, phase in zip(ops, told, strict=True)]
        marks: list[tuple[Phase | None, bool]] = [
            ("backward" if called == "backward" else phase, called == "update" or writes(op.type))
            for op, phase, called in zip(ops, told, calls, strict=True)
        ]
        phases = in_order(marks)
        for number, called in enumerate(calls):
            if called == "backward":
                phases[number] = "forward"  # for the order alone: what is inside knows its own phases
            elif called == "update" and ("backward", False) in marks[:number]:
                for graph in self._called_by(ops[number]):
                    graph._belong_to("optimizer")
        scopes: dict[str, set[Frame | None]] = {}
        for op, stack, phase in zip(ops, stacks, phases, strict=True):
            frame, dtypes = user_frame(stack), sorted({output.dtype.base_dtype.name for output in op.outputs})
            self.places[op.name] = OpPlace(op.name, op.type, phase, frame, op.device, tuple(dtypes), in_layer(stack))
            if phase in ("forward", "loss"):
                for scope in _scopes(op.name):
                    scopes.setdefault(scope, set()).add(frame)
        self._own_up(scopes)

    def _inside(self, op: Any) -> Literal["backward", "update"] | None:
        """Whether a call computes gradients, or writes variables; ``None`` where it does neither, or a whole step."""
        places = [place for graph in self._called_by(op) for place in graph.computing()] if op.type in CALLS else []
        gradients, written = any(one.phase == "backward" for one in places), any(writes(one.op) for one in places)
        return None if gradients == written else "backward" if gradients else "update"

    def _belong_to(self, phase: Phase) -> None:
        """Give what is inside, and in what it calls, the phase of the call, where the stacks say nothing else."""
        for name, place in self.places.items():
            if place.phase in ("forward", "other"):
                self.places[name] = replace(place, phase=phase)
        for graph in filter(None, self._nested.values()):
            graph._belong_to(phase)

    def _own_up(self, scopes: dict[str, set[Frame | None]]) -> None:
        """Give an op of the backward pass the line of the forward pass whose scope it carries, where that is one."""
        for name, place in self.places.items():
            if place.phase != "backward" or not name.startswith("gradient_tape/"):
                continue
            own = (scopes.get(scope, set()) for scope in reversed(_scopes(name.removeprefix("gradient_tape/"))))
            if (lines := next((one for one in own if len(one) == 1), None)) is not None:
                self.places[name] = replace(place, frame=next(iter(lines)) or place.frame)


def _scopes(name: str) -> list[str]:
    """The name scopes around an op, outermost first."""
    return list(itertools.accumulate(name.split("/"), "{}/{}".format))[:-1]


def scope_of(name: str) -> str:
    """The name scope of an op, without the gradient's own: what a Keras layer's ops are known by."""
    parts = name.removeprefix("gradient_tape/").split("/")
    return "/".join(parts[:-1][:3])


def _stack(op: Any) -> list[Frame]:
    """The stack that made an op, from the traced function inwards; empty where TensorFlow made the graph itself."""
    frames = [Frame(frame.filename, frame.lineno, frame.name) for frame in op.traceback or ()]
    traced = next((at for at, frame in enumerate(frames) if frame.function == _TRACER), None)
    return frames if traced is None else frames[traced + 1 :]


def by_name(name: str) -> bool:
    """Whether the name alone says that an op belongs to the backward pass."""
    return "gradient_tape/" in name or "gradients/" in name


def _function_names(op: Any) -> Iterable[tuple[str, str]]:
    for attribute in _FUNCTIONS:
        try:
            value = op.get_attr(attribute)
        except ValueError:
            continue
        for one in value if isinstance(value, list | tuple) else (value,):
            if name := getattr(one, "name", None):
                yield attribute, name


ASKED: Final = "asked for by tf.device"
NO_GPU: Final = "no GPU here"
NO_KERNEL: Final = "no kernel for the GPU is registered"
STRINGS: Final = "strings live in the host's memory"
INT32: Final = "int32 is kept in the host's memory"
PLACER: Final = "the placer's choice"


def short_device(device: str) -> str:
    """``/job:localhost/replica:0/task:0/device:GPU:0`` as ``GPU:0``; an empty name as ``CPU:0``."""
    last = device.rsplit("/", 1)[-1].removeprefix("device:").upper()
    if not last:
        return "CPU:0"
    return last if ":" in last else f"{last}:0"


def why(device: str, requested: str, kernels: Collection[str], dtypes: Collection[str]) -> str:
    """Why an op is on its device, on a machine with a GPU.

    Args:
        device: where it ran, ``GPU:0``.
        requested: the device that was asked for while it was made, in any spelling; empty for none.
        kernels: types of device that have a kernel for it; empty where that is not known.
        dtypes: names of the types of its outputs.
    """
    kind = device.split(":", maxsplit=1)[0]
    if requested and short_device(requested).split(":")[0] == kind:
        return ASKED
    if kind == "GPU":
        return PLACER
    if kernels and "GPU" not in kernels:
        return NO_KERNEL
    if "string" in dtypes:
        return STRINGS
    return INT32 if "int32" in dtypes and set(dtypes) <= {"int32", "resource", "bool"} else PLACER


_OUTER: Final = "StatefulPartitionedCall/"


def devices_of(step: Callable[[Any], Any], batch: Any) -> dict[str, str]:
    """Name of the op in its function -> device; empty where the step cannot be traced again.

    It costs a trace and a step, so it is for machines where ops have a choice.
    """
    outer = tf.function(step, autograph=False)
    context.enable_graph_collection()
    try:
        outer(batch)
        collected = context.export_run_metadata()
    except Exception:  # a step that fetches values, or makes variables, cannot be traced: the devices stay unknown
        return {}
    finally:
        context.disable_graph_collection()
    return {
        node.name.removeprefix(_OUTER): short_device(node.device)
        for function in collected.function_graphs
        for graph in function.partition_graphs
        for node in graph.node
    }
