"""What flows where in the function of a dataset op: the arguments that its results depend on, and those it hands on.

A ``FunctionDef`` names its arguments, its nodes and, per result, the node's output that it is. The functions of
``tf.data`` take the element's components first and what they capture after them. Calls are followed; a branch or a
loop counts as depending on all that it is given.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from xttsbench.pipeline.graph.library import FunctionLibrary

_CALLS: Final = ("PartitionedCall", "StatefulPartitionedCall")
_DEEPEST: Final = 30
"""Calls inside calls that are followed; beyond, an answer is "not known" or "all of it"."""


def reads(library: FunctionLibrary, name: str | None, components: int) -> tuple[int, ...] | None:
    """Numbers of the element's components that a function's result depends on.

    Stateful ops run whatever becomes of their result, so what they are given counts as read.
    """
    function = library.get(name)
    if function is None:
        return None
    found = _dependencies(library, function, [*function.ret.values(), *_control_returns(function)], {}, 0)
    return tuple(sorted(number for number in found if number < components))


def passes(library: FunctionLibrary, name: str | None, components: int) -> dict[int, int]:
    """Number of each result that is a component of the element, untouched -> that component's number."""
    function = library.get(name)
    if function is None:
        return {}
    found = {}
    for number, output in enumerate(function.signature.output_arg):
        source = _argument_behind(library, function, function.ret[output.name], 0)
        if source is not None and source < components:
            found[number] = source
    return found


def callee(library: FunctionLibrary, node: Any) -> Any | None:
    """The definition of the function that a node calls with its own inputs as arguments; ``None`` for other ops."""
    return library.get(node.attr["f"].func.name) if node.op in _CALLS else library.get(node.op)


def returned(function: Any, reference: str) -> str | None:
    """The reference inside ``function`` of the result that a call's output (``call:output:1``) stands for."""
    outputs = [output.name for output in function.signature.output_arg]
    parts = reference.split(":")
    if len(parts) == 3 and parts[1] in function.ret and parts[1] != "output":
        return str(function.ret[parts[1]])
    number = int(parts[-1]) if len(parts) > 1 and parts[-1].isdecimal() else 0
    return str(function.ret[outputs[number]]) if number < len(outputs) else None


def arguments(function: Any) -> dict[str, int]:
    """Name of each of a function's arguments -> its number."""
    return {argument.name: number for number, argument in enumerate(function.signature.input_arg)}


def _control_returns(function: Any) -> list[str]:
    return [f"^{name}" for name in function.control_ret.values()]


def _dependencies(
    library: FunctionLibrary,
    function: Any,
    references: Iterable[str],
    known: dict[tuple[str, str], set[int]],
    depth: int,
) -> set[int]:
    """Numbers of the arguments from which the references can be reached; ``known`` has the results looked at before."""
    nodes, numbers = {node.name: node for node in function.node_def}, arguments(function)
    found: set[int] = set()
    seen: set[str] = set()
    waiting = list(references)
    while waiting:
        reference = waiting.pop()
        if reference in seen:
            continue
        seen.add(reference)
        name = reference.removeprefix("^").split(":")[0]
        if name in numbers:
            found.add(numbers[name])
        node = nodes.get(name)
        if node is None:
            continue
        target = callee(library, node)
        inside = None if target is None or reference.startswith("^") else returned(target, reference)
        if target is None or inside is None or depth == _DEEPEST:
            waiting.extend(node.input)
            continue
        data = [one for one in node.input if not one.startswith("^")]
        result = (str(target.signature.name), inside)
        if result not in known:
            known[result] = _dependencies(library, target, [inside, *_control_returns(target)], known, depth + 1)
        waiting.extend(data[number] for number in known[result] if number < len(data))
        waiting.extend(one for one in node.input if one.startswith("^"))
    return found


def _argument_behind(library: FunctionLibrary, function: Any, reference: str, depth: int) -> int | None:
    """The argument that a reference is, with identities and calls looked through."""
    nodes, numbers = {node.name: node for node in function.node_def}, arguments(function)
    for _ in range(1000):  # longer than any chain of identities that a trace leaves
        name = reference.split(":", maxsplit=1)[0]
        if name in numbers:
            return numbers[name]
        node = nodes.get(name)
        if node is None:
            return None
        target = callee(library, node)
        if node.op == "Identity":
            reference = node.input[0]
        elif node.op == "IdentityN":
            reference = node.input[int(reference.split(":")[-1])]
        elif target is not None and depth < _DEEPEST:
            inside = returned(target, reference)
            number = None if inside is None else _argument_behind(library, target, inside, depth + 1)
            if number is None:
                return None
            reference = node.input[number]
        else:
            return None
    return None
