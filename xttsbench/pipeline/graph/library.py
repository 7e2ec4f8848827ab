"""The functions in a graph: whether one holds state, and which Python functions it reaches through other functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from tensorflow.python.framework import op_def_registry

from xttsbench.pipeline.graph.registry import PYTHON_OPS, lookup

_HARMLESS: Final = ("Assert", "If", "While")
"""Ops marked stateful that hold none of their own; what a branch or loop runs is looked at itself."""


class FunctionLibrary:
    """The function definitions of one graph, by name. Every question is answered transitively."""

    def __init__(self, functions: Iterable[Any]) -> None:
        """Take the ``FunctionDef`` messages of a ``GraphDef``'s library."""
        self._functions = {function.signature.name: function for function in functions}

    def get(self, name: str | None) -> Any | None:
        """A function's definition, or ``None`` where the library holds none of that name."""
        return self._functions.get(name) if name is not None else None

    def functions(self, names: Iterable[str]) -> Iterator[Any]:
        """The named functions and those that they call, map over or branch to, each once."""
        waiting, seen = list(reversed(list(names))), set[str]()
        while waiting:
            name = waiting.pop()
            if name in seen or name not in self._functions:
                continue
            seen.add(name)
            yield self._functions[name]
            for node in self._functions[name].node_def:
                waiting.extend((node.op, *called(node)))

    def reach(self, names: Iterable[str]) -> Iterator[Any]:
        """Every ``NodeDef`` in the named functions and in those that they call, map over or branch to."""
        for function in self.functions(names):
            yield from function.node_def

    def stateful(self, names: Iterable[str]) -> bool:
        """Whether an op with state (Python, random numbers, variable, table) is reached.

        TensorFlow's own rewrites ask the same question in this way.
        """
        for node in self.reach(names):
            definition = op_def_registry.get(node.op)
            if definition is not None and definition.is_stateful and node.op not in _HARMLESS:
                return True
        return False

    def all_tokens(self) -> dict[str, str]:
        """Token -> graph op of every call of Python in the library, helpers included."""
        return {n.attr["token"].s.decode(): n.op for n in self.reach(self._functions) if n.op in PYTHON_OPS}

    def python_tokens(self, names: Iterable[str]) -> dict[str, str]:
        """Token -> graph op of the Python functions reached; the helpers of ``from_generator`` are left out."""
        tokens = {n.attr["token"].s.decode(): n.op for n in self.reach(names) if n.op in PYTHON_OPS}
        found = {}
        for token in sorted(tokens, key=lambda name: (len(name), name)):  # pyfunc_2 before pyfunc_10
            registered = lookup(token)
            if registered is None or not registered.helper:
                found[token] = tokens[token]
        return found


def called(node: Any) -> list[str]:
    """Names of the functions that a node's attributes refer to (map, branch, loop, call), in attribute order."""
    names: list[str] = []
    for key in sorted(node.attr):
        value = node.attr[key]
        if value.HasField("func"):
            names.append(value.func.name)
        names.extend(function.name for function in value.list.func)
    return names
