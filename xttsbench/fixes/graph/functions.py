"""The functions of a graph: whether they hold state, and written out so that each node is given only what it needs.

An op that TensorFlow marks as stateful may draw random numbers, write, print or advance something; it then matters how
often and in which order it runs. Those that only read (tables, variables) are let through, and Python functions where
the caller says so: what those do is looked at elsewhere. A predicate under ``tf.function`` is one call that is given
the whole element; what it looks at shows only inside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tensorflow.python.framework import op_def_registry

from xttsbench.pipeline.functions import callee, returned
from xttsbench.pipeline.nodes import FunctionLibrary, data_inputs
from xttsbench.pipeline.source import PYTHON_OPS

_READS: Final = re.compile(
    r"LookupTable(Find|Size|Export)(V2)?|ReadVariableOp|ResourceGather(Nd)?|VarHandleOp|VarIsInitializedOp|\w*HashTable(V2)?"
    r"|(Stateful)?PartitionedCall|(Stateless)?(If|While|Case)|Assert|ReadFile|MatchingFiles"
)
"""Ops that are marked stateful, or call others, and change nothing."""
_DEEPEST: Final = 30  # calls inside calls that are written out; one that is deeper stays a call


def state(library: FunctionLibrary, names: Iterable[str], *, python: bool) -> str | None:
    """The first op in the named functions, or in those that they reach, that holds state; ``None`` where none does.

    Args:
        library: the functions of the graph.
        names: of the functions to look through.
        python: whether calls of Python functions are let through.
    """
    for node in library.reach(names):
        definition = op_def_registry.get(node.op)
        if node.op in PYTHON_OPS:
            if not python:
                return str(node.op)
        elif definition is not None and definition.is_stateful and _READS.fullmatch(node.op) is None:
            return str(node.op)
    return None


def inlined(library: FunctionLibrary, function: Any, depth: int = 0) -> Any:
    """A copy of a ``FunctionDef`` in which the nodes of the functions that it calls stand for the calls.

    Nodes of a call are named ``<call>/<node>``. What waits for a call waits for the ops in it that the called function
    waits for itself. Branches and loops stay as they are. Signature and name stay, so a caller that puts the copy into
    a library renames it.
    """
    written = type(function)()
    written.CopyFrom(function)
    del written.node_def[:]
    results: dict[str, Callable[[str], str | None]] = {}
    waits: dict[str, list[str]] = {}
    for node in function.node_def:
        target = callee(library, node)
        if target is None or depth == _DEEPEST:
            written.node_def.add().CopyFrom(node)
            continue
        body = inlined(library, target, depth + 1)
        control = [one for one in node.input if one.startswith("^")]
        arguments = zip(body.signature.input_arg, data_inputs(node), strict=True)
        given = {argument.name: one for argument, one in arguments}
        for inner in body.node_def:
            copy = written.node_def.add()
            copy.CopyFrom(inner)
            copy.name = f"{node.name}/{inner.name}"
            _set_inputs(copy, [*(_inside(one, node.name, given) for one in inner.input), *control])
        results[node.name] = _result(body, node.name, given)
        waits[node.name] = [f"^{node.name}/{name}" for name in body.control_ret.values()]
    for node in written.node_def:
        _set_inputs(node, [one for reference in node.input for one in _outside(reference, results, waits)])
    for key, reference in function.ret.items():
        (written.ret[key],) = _outside(reference, results, waits)
    for key, name in function.control_ret.items():
        if name in waits:  # the call ran for its effects: those of its ops that it waits for do now
            del written.control_ret[key]
            written.signature.control_output.remove(key)
            for number, one in enumerate(waits[name]):
                written.control_ret[f"{key}_{number}"] = one.removeprefix("^")
                written.signature.control_output.append(f"{key}_{number}")
    return written


def node_of(reference: str) -> str:
    """The name of the node that a reference is to: ``map`` of ``map:output:1`` and of ``^map``."""
    return reference.removeprefix("^").split(":")[0]


def needed_nodes(function: Any, *, control: bool = True) -> set[str]:
    """Names of the nodes that lead to a function's results; with ``control``, also of those that these wait for."""
    nodes = {node.name: node for node in function.node_def}
    waiting = [*function.ret.values(), *(function.control_ret.values() if control else ())]
    found: set[str] = set()
    while waiting:
        name = node_of(waiting.pop())
        if name in nodes and name not in found:
            found.add(name)
            waiting.extend(nodes[name].input if control else data_inputs(nodes[name]))
    return found


def _result(body: Any, call: str, given: Mapping[str, str]) -> Callable[[str], str | None]:
    def reference_behind(reference: str) -> str | None:
        inside = returned(body, reference)
        return None if inside is None else _inside(inside, call, given)

    return reference_behind


def _inside(reference: str, call: str, given: Mapping[str, str]) -> str:
    """A reference of a called function as one of its caller."""
    name, mark = node_of(reference), "^" if reference.startswith("^") else ""
    if name in given:
        return f"^{node_of(given[name])}" if mark else given[name]
    return f"{mark}{call}/{reference.removeprefix('^')}"


def _outside(
    reference: str, results: Mapping[str, Callable[[str], str | None]], waits: Mapping[str, list[str]]
) -> list[str]:
    """A reference to a call as references to what stands for it; again, where that is the result of another call."""
    name = node_of(reference)
    if reference.startswith("^"):
        return waits.get(name, [reference])
    behind = results[name](reference) if name in results else None
    return [reference] if behind is None else _outside(behind, results, waits)


def _set_inputs(node: Any, references: Iterable[str]) -> None:
    """Inputs as TensorFlow wants them: data first, then control inputs, each of these once."""
    given = list(references)
    data = [one for one in given if not one.startswith("^")]
    control = dict.fromkeys(one for one in given if one.startswith("^"))
    del node.input[:]
    node.input.extend([*data, *control])
